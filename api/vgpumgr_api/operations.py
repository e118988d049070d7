"""/v1/operations: plans being carried out, and their journal."""

from __future__ import annotations

from flask import Response

from vgpumgr_api.answers import many, one
from vgpumgr_api.context import context, service
from vgpumgr_api.outcomes import problems
from vgpumgr_api.resource import Resource
from vgpumgr_api.responses import OperationModel, OperationPage
from vgpumgr_api.schemas import IdPath, OperationListQuery, WaitQuery

api = Resource("operations", __name__, "Plans being carried out")


@api.get("/v1/operations", summary="Operations", responses={200: OperationPage, **problems()})
def list_operations(query: OperationListQuery) -> Response:
    """Newest first, without their steps."""
    page = service().operations(state=query.state, subject=query.subject, limit=query.limit, cursor=query.cursor)
    return many(page.items, page.next_cursor)


@api.get("/v1/operations/<id>", summary="One operation", responses={200: OperationModel, **problems(404)})
def show_operation(path: IdPath, query: WaitQuery) -> Response:
    """An operation with its steps; with `wait`, once it is final or the time is up."""
    return one(context().waiting_room.wait(path.id, query.wait))
