"""/v1/host: the machine as a whole; and the health endpoints beside it."""

from __future__ import annotations

import io

from flask import Response, jsonify
from flask_openapi3 import APIBlueprint, Tag

from vgpumgr_api.exchange import one, service
from vgpumgr_api.responses import HostModel, InventoryModel, StatusModel, problems

api = APIBlueprint("host", __name__, abp_tags=[Tag(name="host", description="The machine as a whole")])


@api.get("/v1/host", summary="The host", responses={200: HostModel, **problems()})
def show_host() -> Response:
    """Host name, kernel and IOMMU."""
    return jsonify(service().inventory().to_json()["host"])


@api.get("/v1/host/inventory", summary="Everything in one object", responses={200: InventoryModel, **problems()})
def show_inventory() -> Response:
    """Groups, GPUs, vGPUs and warnings."""
    return one(service().inventory())


@api.get("/v1/host/doctor", summary="What stands between each GPU and a VM", responses=problems())
def show_doctor() -> Response:
    """Per GPU, findings with their remedies."""
    return one(service().doctor())


@api.get("/v1/host/snapshot", summary="A recording of this host", responses=problems())
def take_snapshot() -> Response:
    """A tar that `--sysfs-root` reads; serial numbers and MAC addresses are left out."""
    out = io.BytesIO()
    service().snapshot(out)
    headers = {"Content-Disposition": 'attachment; filename="host-snapshot.tar"'}
    return Response(out.getvalue(), content_type="application/x-tar", headers=headers)


@api.get("/healthz", summary="Whether the process answers", responses={200: StatusModel})
def show_health() -> Response:
    """Always 200 while the process answers."""
    return jsonify({"status": "ok", "waiting_for": []})


@api.get("/readyz", summary="Whether the service may be used", responses={200: StatusModel, 503: StatusModel})
def show_readiness() -> Response:
    """503 until what a crash or a reboot cut short is finished or taken back, and bindings are restored."""
    ready, waiting_for = service().ready()
    response = jsonify({"status": "ready" if ready else "starting", "waiting_for": list(waiting_for)})
    response.status_code = 200 if ready else 503
    return response
