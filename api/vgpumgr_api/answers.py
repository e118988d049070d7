"""What answers have in common: one thing, a page of a list, work that goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import urlencode

from flask import Response, jsonify, request

from vgpumgr.allocations.machines import raise_failure
from vgpumgr.errors import UsageError
from vgpumgr.model.allocation import Allocation
from vgpumgr.model.operation import Operation
from vgpumgr_api.context import context
from vgpumgr_api.preconditions import ToJson, etag_of

_CURSOR_DIGITS = 9


def plain(item: ToJson) -> Response:
    """Something that was worked out for this request: a plan, candidates, findings."""
    return jsonify(item.to_json())


def one(item: ToJson, status: int = 200) -> Response:
    """One thing, with its entity tag; 304 when the caller has it already."""
    response = jsonify(item.to_json())
    response.status_code = status
    response.set_etag(etag_of(item))
    if request.method == "GET":
        response.make_conditional(request)
    return response


def many(items: Sequence[ToJson], next_cursor: str | None = None, **more: object) -> Response:
    """A page of a list, with a ``Link`` to the next one, and what ``more`` is to be said of the list."""
    response = jsonify({"items": [item.to_json() for item in items], "next_cursor": next_cursor, **more})
    if next_cursor is not None:
        arguments = urlencode({**request.args.to_dict(), "cursor": next_cursor})
        response.headers["Link"] = f'<{request.path}?{arguments}>; rel="next"'
    return response


def page_of(items: Sequence[ToJson], limit: int, cursor: str | None, **more: object) -> Response:
    """A page of a list that lies in memory. The cursor is the place to go on from."""
    start = 0
    if cursor is not None:
        if not (cursor.isascii() and cursor.isdecimal()) or len(cursor) > _CURSOR_DIGITS:
            raise UsageError(
                "the cursor is not one that a list gave out", hint="start without it", code="cursor-invalid"
            )
        start = int(cursor)
    following = str(start + limit) if start + limit < len(items) else None
    return many(items[start : start + limit], following, **more)


def working(operation: Operation, wait: float) -> Response:
    """The answer to a change that takes its time: 202 with the operation's URL, or 200 with how it ended."""
    operation = context().waiting_room.wait(operation.id, wait)
    return _accepted(operation, operation)


def working_one(operations: Sequence[Operation], wait: float) -> Response:
    """The same for a request that is known to have made one operation."""
    return working(operations[0], wait)


def working_all(operations: Sequence[Operation], wait: float) -> Response:
    """The answer to a change of several operations: 202, or 200 when all have ended (or there were none)."""
    here = context()
    if operations:
        # They run one after the other: when the last has ended, so have the others.
        here.waiting_room.wait(operations[-1].id, wait)
    seen = [here.service.operation(operation.id) for operation in operations]
    response = jsonify({"plans": [], "operations": [operation.to_json() for operation in seen]})
    if not all(operation.final for operation in seen):
        response.status_code = 202
        response.headers["Location"] = "/v1/operations"
    return response


def prepared(operations: Sequence[Operation], wait: float) -> Response:
    """The answer to a request that is known to have made an allocation: as it is now, whatever became of it."""
    allocation = context().service.allocation(str(operations[0].allocation_id))
    return preparing(allocation, wait, made=True)


def finished(operation: Operation, wait: float, answer: Callable[[str], Response]) -> Response:
    """The answer to a change that is mostly quick: ``answer`` for its subject once it has succeeded.

    202 with the operation when that takes longer than ``wait`` seconds, or when the caller would rather not wait. A
    failure is raised as it was journaled.
    """
    if _rather_not_wait():
        response = _begun(operation)
        response.headers["Preference-Applied"] = "respond-async"
        return response
    operation = context().waiting_room.wait(operation.id, wait)
    if not operation.final:
        return _begun(operation)
    raise_failure(operation)
    return answer(operation.subject)


def _rather_not_wait() -> bool:
    preferences = request.headers.get("Prefer", "").split(",")
    return any(item.partition(";")[0].strip().lower() == "respond-async" for item in preferences)


def _begun(operation: Operation, item: ToJson | None = None) -> Response:
    """202 with the operation's URL, and with the operation unless another ``item`` says more."""
    response = one(item or operation, 202)
    response.headers["Location"] = f"/v1/operations/{operation.id}"
    return response


def preparing(allocation: Allocation, wait: float, *, made: bool = False) -> Response:
    """The same for an allocation, as it is after its operation (or in the middle); 201 when it was ``made``."""
    if allocation.operation_id is None:
        return one(allocation)
    here = context()
    operation = here.waiting_room.wait(allocation.operation_id, wait)
    response = _accepted(here.service.allocation(allocation.id), operation)
    if made and operation.final:
        response.status_code = 201
        response.headers["Location"] = f"/v1/allocations/{allocation.id}"
    return response


def _accepted(item: Allocation | Operation, operation: Operation) -> Response:
    return one(item) if operation.final else _begun(operation, item)
