"""POSTs that carry an ``Idempotency-Key`` happen once, however often they are sent."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, cast

from flask import Response, jsonify, request

from vgpumgr.model.operation import Operation
from vgpumgr.store.idempotency import Answer, IdempotencyKeys, Made, working_for
from vgpumgr_api.bodies import body
from vgpumgr_api.context import ready_service
from vgpumgr_api.principals import principal

P = ParamSpec("P")
Describe = Callable[[Sequence[Operation], float], Response]
"""The answer that shows operations, or what they made, after waiting for at most so many seconds."""
_KEPT = ("Location", "ETag")


def idempotent(describe: Describe) -> Callable[[Callable[P, Response]], Callable[P, Response]]:
    """Keep the first answer to a key and give it again; a dry run changes nothing and needs none of this.

    When the first request made something and then came to no answer, ``describe`` answers with what its operations
    made, as it is now.
    """

    def decorate(answer: Callable[P, Response]) -> Callable[P, Response]:
        @functools.wraps(answer)
        def once(*args: P.args, **kwargs: P.kwargs) -> Response:
            key = request.headers.get("Idempotency-Key")
            query = kwargs.get("query")
            if key is None or getattr(query, "dry_run", False):
                return answer(*args, **kwargs)
            host, tenant = ready_service(), principal().tenant or ""
            earlier = host.idempotency.begin(tenant, key, _digest())
            if isinstance(earlier, Answer):
                return _replayed(_again(earlier))
            if isinstance(earlier, Made):
                operations = [host.operation(operation_id) for operation_id in earlier.operations]
                return _replayed(describe(operations, getattr(query, "wait", 0)))
            return _first(host.idempotency, tenant, key, lambda: answer(*args, **kwargs))

        return once

    return decorate


def _first(keys: IdempotencyKeys, tenant: str, key: str, answer: Callable[[], Response]) -> Response:
    try:
        with working_for(tenant, key):
            response = answer()
    except BaseException:
        # Where nothing was made, or all of it was taken back, the client may try again under the same key.
        keys.forget(tenant, key)
        raise
    kept = {name: response.headers[name] for name in _KEPT if name in response.headers}
    keys.finish(tenant, key, Answer(response.status_code, cast("dict[str, Any]", response.get_json()), kept))
    return response


def _digest() -> str:
    return hashlib.sha256(f"{request.method} {request.path} ".encode() + body()).hexdigest()


def _again(earlier: Answer) -> Response:
    response = jsonify(earlier.body)
    response.status_code = earlier.status
    response.headers.update(earlier.headers)
    return response


def _replayed(response: Response) -> Response:
    response.headers["Idempotency-Replayed"] = "true"
    return response
