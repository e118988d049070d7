"""/v1/candidates: what could satisfy a request, and why the rest cannot."""

from __future__ import annotations

from flask import Response

from vgpumgr_api.answers import plain
from vgpumgr_api.context import service
from vgpumgr_api.outcomes import problems
from vgpumgr_api.resource import Resource
from vgpumgr_api.responses import PlacementModel
from vgpumgr_api.schemas import NoQuery, RequestBody

api = Resource("candidates", __name__, "What would fit")


@api.post(
    "/v1/candidates", summary="What would fit", responses={200: PlacementModel, **problems(403, 404, 413, 415)}
)
def list_candidates(query: NoQuery, body: RequestBody) -> Response:
    """Candidates, best first; and every GPU that was passed over, with its reasons. Changes nothing."""
    return plain(service().candidates(body.to_request()))
