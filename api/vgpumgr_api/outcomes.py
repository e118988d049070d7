"""How requests can end beside well, for the OpenAPI document of each route."""

from __future__ import annotations

from typing import Any

Responses = dict[Any, Any]
_PROBLEM = {"content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}}

_ALWAYS = (400, 406, 421, 422, 500, 503)


def problems(*statuses: int) -> Responses:
    """Problem answers for a route, beside those that every route can give."""
    texts = {
        400: "the request cannot be read",
        403: "a page of another site asked for this change; or the kernel does not let the service do it",
        404: "there is no such thing",
        406: "the caller takes no type that this resource comes in",
        409: "refused, or in conflict with the present state; `reasons` says why",
        412: "changed since it was read",
        413: "the body is too large",
        415: "the body is not JSON",
        421: "on TCP, under a name that is not the service's",
        422: "the request does not fit its model; `errors` names the fields",
        500: "tried and failed; what was done was undone, or is named in `reasons`",
        503: "the service, libvirt or the database is not available",
    }
    return {status: {"description": texts[status], **_PROBLEM} for status in (*_ALWAYS, *statuses)}
