"""/v1/domain-checks: the preflight of any domain XML against this host."""

from __future__ import annotations

from flask import Response
from flask_openapi3 import APIBlueprint, Tag

from vgpumgr_api.exchange import one, service
from vgpumgr_api.responses import CheckModel, problems
from vgpumgr_api.schemas import CheckBody

api = APIBlueprint("domain-checks", __name__, abp_tags=[Tag(name="domain-checks", description="Preflight")])


@api.post("/v1/domain-checks", summary="Check a domain XML", responses={200: CheckModel, **problems(413, 415)})
def check_domain(body: CheckBody) -> Response:
    """What would stop the VM, found before libvirt or QEMU find it. Changes nothing."""
    return one(service().check_domain(body.xml.encode()))
