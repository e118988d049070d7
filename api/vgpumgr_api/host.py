"""/v1/host: the machine as a whole."""

from __future__ import annotations

import io

from flask import Response, jsonify

from vgpumgr_api.answers import plain
from vgpumgr_api.context import service
from vgpumgr_api.host_responses import DiagnosisModel, HostModel, InventoryModel
from vgpumgr_api.outcomes import problems
from vgpumgr_api.resource import Resource
from vgpumgr_api.schemas import NoQuery

api = Resource("host", __name__, "The machine as a whole")


@api.get("/v1/host", summary="The host", responses={200: HostModel, **problems()})
def show_host(query: NoQuery) -> Response:
    """Host name, kernel and IOMMU."""
    return jsonify(service().inventory().to_json()["host"])


@api.get("/v1/host/inventory", summary="Everything in one object", responses={200: InventoryModel, **problems()})
def show_inventory(query: NoQuery) -> Response:
    """Groups, GPUs, vGPUs and warnings."""
    return plain(service().inventory())


@api.get(
    "/v1/host/doctor",
    summary="What stands between each GPU and a VM",
    responses={200: DiagnosisModel, **problems()},
)
def show_doctor(query: NoQuery) -> Response:
    """Per GPU, findings with their remedies."""
    return plain(service().doctor())


@api.get("/v1/host/snapshot", summary="A recording of this host", responses=problems())
def take_snapshot(query: NoQuery) -> Response:
    """A tar that `--sysfs-root` reads; serial numbers and MAC addresses are left out."""
    out = io.BytesIO()
    service().snapshot(out)
    headers = {"Content-Disposition": 'attachment; filename="host-snapshot.tar"'}
    return Response(out.getvalue(), content_type="application/x-tar", headers=headers)
