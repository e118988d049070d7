"""/healthz and /readyz: whether the process answers, and whether it may be used."""

from __future__ import annotations

from flask import Response, jsonify

from vgpumgr_api.context import service
from vgpumgr_api.host_responses import StatusModel
from vgpumgr_api.resource import Resource

api = Resource("health", __name__, "How the service is")


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
