"""What all resources share of an exchange: the caller, dry runs, waiting, idempotency, entity tags, pages."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol, cast

from flask import Response, current_app, g, jsonify, request

from vgpumgr.errors import ConflictError, UnavailableError, UsageError
from vgpumgr.model.allocation import Allocation
from vgpumgr.model.json import JsonObject
from vgpumgr.model.operation import Operation
from vgpumgr.service import Service
from vgpumgr.store.idempotency import Answer

P = ParamSpec("P")
MAX_BODY = 1 << 20
BODY_METHODS = ("POST", "PUT", "PATCH")


class ToJson(Protocol):
    """Anything of the model."""

    def to_json(self) -> JsonObject:
        """Its JSON."""
        ...


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. Today the file mode of the unix socket (and loopback) says: an administrator of this host.

    Authentication puts another one here, in one place (:func:`identify`); everything below asks only this.
    """

    name: str = "administrator"
    tenant: str | None = None
    """``None``: may act for any tenant, and see all."""


def service() -> Service:
    """The use-cases behind this application."""
    return cast(Service, current_app.extensions["vgpumgr"])


def ready_service() -> Service:
    """The use-cases, once the host has been reconciled: before that, changes would be made blindly."""
    found = service()
    ready, waiting_for = found.ready()
    if not ready:
        raise UnavailableError(
            f"the service is starting: it waits for {', '.join(waiting_for)}",
            hint="ask again soon",
            code="starting",
        )
    return found


def identify() -> None:
    """Before each request: who asks, and that the request is one we can read."""
    g.principal = Principal()
    if request.method in BODY_METHODS:
        g.raw_body = _read_body()


def principal() -> Principal:
    """Who asks."""
    return cast(Principal, g.principal)


class MediaTypeError(UsageError):
    """A body that is not JSON by its own account; also keeps browsers of other sites from writing here."""

    code = "media-type-unsupported"
    http_status = 415


class BodyTooLargeError(UsageError):
    """A body above the limit, however it is sent."""

    code = "body-too-large"
    http_status = 413


def _read_body() -> bytes:
    """The body, which must be one JSON object, or nothing."""
    body = request.stream.read(MAX_BODY + 1)
    if len(body) > MAX_BODY:
        raise BodyTooLargeError(f"the body is larger than {MAX_BODY >> 20} MiB", hint="send less")
    if not body and not request.mimetype:
        body = b"{}"
    elif request.mimetype != "application/json":
        given = request.mimetype or "none"
        raise MediaTypeError(f"the media type is {given}", hint="send Content-Type: application/json")
    try:
        value = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"the body is not JSON: {error}", hint="send one JSON object", code="malformed-json"
        ) from error
    if not isinstance(value, dict):
        raise UsageError("the body is not a JSON object", hint="send {...}", code="malformed-json")
    request._cached_json = (value, value)
    return body


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON number")


def one(item: ToJson, status: int = 200) -> Response:
    """One thing."""
    response = jsonify(item.to_json())
    response.status_code = status
    if isinstance(item, Allocation):
        response.set_etag(str(item.generation))
    return response


def many(items: Sequence[ToJson], next_cursor: str | None = None) -> Response:
    """A page of a list, with a ``Link`` to the next one."""
    response = jsonify({"items": [item.to_json() for item in items], "next_cursor": next_cursor})
    if next_cursor is not None:
        arguments = {**request.args.to_dict(), "cursor": next_cursor}
        from urllib.parse import urlencode

        response.headers["Link"] = f'<{request.path}?{urlencode(arguments)}>; rel="next"'
    return response


def page_of(items: Sequence[ToJson], limit: int, cursor: str | None) -> Response:
    """A page of a list that lies in memory. The cursor is the place to go on from."""
    start = 0
    if cursor is not None:
        if not cursor.isdecimal() or len(cursor) > 9:
            raise UsageError(
                "the cursor is not one that a list gave out", hint="start without it", code="cursor-invalid"
            )
        start = int(cursor)
    following = str(start + limit) if start + limit < len(items) else None
    return many(items[start : start + limit], following)


def working(item: Operation | Allocation, operation_id: str | None, wait: float, made: bool = False) -> Response:
    """The answer to a change that may take long: 202 with the operation's URL, or what came of it in ``wait``."""
    host = service()
    if operation_id is None:
        return one(item)
    operation = host.wait(operation_id, wait) if wait > 0 else host.operation(operation_id)
    latest: Operation | Allocation = operation
    if isinstance(item, Allocation):
        latest = host.allocation(item.id)
    if not operation.final:
        response = one(latest, 202)
        response.headers["Location"] = f"/v1/operations/{operation_id}"
        return response
    response = one(latest, 201 if made else 200)
    if made and isinstance(item, Allocation):
        response.headers["Location"] = f"/v1/allocations/{item.id}"
    return response


def expected_generation() -> int | None:
    """The generation that ``If-Match`` names; ``None`` without it, or for ``*``."""
    text = request.headers.get("If-Match")
    if text is None or text.strip() == "*":
        return None
    value = text.strip().removeprefix("W/").strip('"')
    if not value.isdecimal() or len(value) > 9:
        raise UsageError(
            f"If-Match: {text} is no entity tag of ours", hint="send the ETag you got", code="etag-invalid"
        )
    return int(value)


class PreconditionError(ConflictError):
    """The thing was changed since the caller read it."""

    code = "generation-mismatch"
    http_status = 412


def idempotent(answer: Callable[P, Response]) -> Callable[P, Response]:
    """Let a POST that carries an ``Idempotency-Key`` happen once, however often it is sent."""

    @functools.wraps(answer)
    def once(*args: P.args, **kwargs: P.kwargs) -> Response:
        key = request.headers.get("Idempotency-Key")
        if key is None or request.args.get("dry_run") == "true":
            return answer(*args, **kwargs)
        if not 0 < len(key) <= 255 or not key.isprintable():
            raise UsageError(
                "Idempotency-Key must be 1 to 255 printable characters", code="idempotency-key-invalid"
            )
        keys, tenant = ready_service().idempotency, principal().tenant or ""
        earlier = keys.begin(tenant, key, _request_hash())
        if earlier is not None:
            return _again(earlier)
        try:
            response = answer(*args, **kwargs)
        except BaseException:
            # Nothing was made: the client may mend its request, or try again, under the same key.
            keys.forget(tenant, key)
            raise
        kept = {name: response.headers[name] for name in ("Location", "ETag") if name in response.headers}
        keys.finish(tenant, key, Answer(response.status_code, cast("dict[str, Any]", response.get_json()), kept))
        return response

    return once


def _request_hash() -> str:
    text = f"{request.method} {request.path} ".encode() + cast(bytes, g.raw_body)
    return hashlib.sha256(text).hexdigest()


def _again(earlier: Answer) -> Response:
    response = jsonify(earlier.body)
    response.status_code = earlier.status
    response.headers.update(earlier.headers)
    response.headers["Idempotency-Replayed"] = "true"
    return response
