"""POSTs that carry an ``Idempotency-Key`` happen once, however often they are sent."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any, ParamSpec, cast

from flask import Response, jsonify, request

from vgpumgr.store.idempotency import Answer
from vgpumgr_api.bodies import body
from vgpumgr_api.context import ready_service
from vgpumgr_api.principals import principal

P = ParamSpec("P")
_KEPT = ("Location", "ETag")


def idempotent(answer: Callable[P, Response]) -> Callable[P, Response]:
    """Keep the first answer to a key and give it again; a dry run changes nothing and needs none of this."""

    @functools.wraps(answer)
    def once(*args: P.args, **kwargs: P.kwargs) -> Response:
        key = request.headers.get("Idempotency-Key")
        if key is None or getattr(kwargs.get("query"), "dry_run", False):
            return answer(*args, **kwargs)
        keys, tenant = ready_service().idempotency, principal().tenant or ""
        earlier = keys.begin(tenant, key, _digest())
        if earlier is not None:
            return _again(earlier)
        try:
            response = answer(*args, **kwargs)
        except BaseException:
            # Nothing was made: the client may mend its request, or try again, under the same key.
            keys.forget(tenant, key)
            raise
        kept = {name: response.headers[name] for name in _KEPT if name in response.headers}
        keys.finish(tenant, key, Answer(response.status_code, cast("dict[str, Any]", response.get_json()), kept))
        return response

    return once


def _digest() -> str:
    return hashlib.sha256(f"{request.method} {request.path} ".encode() + body()).hexdigest()


def _again(earlier: Answer) -> Response:
    response = jsonify(earlier.body)
    response.status_code = earlier.status
    response.headers.update(earlier.headers)
    response.headers["Idempotency-Replayed"] = "true"
    return response
