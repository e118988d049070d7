"""/v1/events: what happened, as a list or as a stream."""

from __future__ import annotations

from flask import Response, request

from vgpumgr.model.event import Wanted
from vgpumgr_api.answers import many
from vgpumgr_api.context import context, service
from vgpumgr_api.guards import EVENT_STREAM, wants_stream
from vgpumgr_api.outcomes import problems
from vgpumgr_api.principals import principal
from vgpumgr_api.resource import Resource
from vgpumgr_api.responses import EventPage
from vgpumgr_api.schemas import EventQuery, FollowHeaders

api = Resource("events", __name__, "What happened")


@api.get("/v1/events", summary="Events", responses={200: EventPage, **problems()})
def list_events(query: EventQuery, header: FollowHeaders) -> Response:
    """Of one's own tenant, or of all for an administrator. A list, newest first; or, with
    `Accept: text/event-stream`, a stream of what happens from now on, or after the id that is given.
    """
    wanted = Wanted(query.type, query.subject, principal().tenant or query.tenant)
    if wants_stream():
        response = _stream(wanted, query.after if header.last_id is None else header.last_id)
    else:
        page = service().events.list(wanted, after=query.after or 0, limit=query.limit, cursor=query.cursor)
        response = many(page.items, page.next_cursor)
    response.vary.add("Accept")
    return response


def _stream(wanted: Wanted, after: int | None) -> Response:
    if request.method == "HEAD":
        return Response(content_type=EVENT_STREAM)
    streams = context().streams
    response = Response(streams.open(wanted, after), content_type=EVENT_STREAM)
    response.call_on_close(streams.leave)
    response.headers["X-Accel-Buffering"] = "no"  # A proxy that collects the answer first would never pass it on.
    return response
