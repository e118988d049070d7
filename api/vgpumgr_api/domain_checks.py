"""/v1/domain-checks: the preflight of any domain XML against this host."""

from __future__ import annotations

from flask import Response

from vgpumgr_api.answers import plain
from vgpumgr_api.bodies import xml_body
from vgpumgr_api.context import service
from vgpumgr_api.outcomes import problems
from vgpumgr_api.resource import Resource
from vgpumgr_api.responses import CheckModel
from vgpumgr_api.schemas import CheckBody, NoQuery

api = Resource("domain-checks", __name__, "Preflight")


@api.post("/v1/domain-checks", summary="Check a domain XML", responses={200: CheckModel, **problems(403, 413, 415)})
def check_domain(query: NoQuery, body: CheckBody) -> Response:
    """What would stop the VM, found before libvirt finds it. Changes nothing. The XML may be the body itself."""
    return plain(service().check_domain(xml_body(body.xml)))
