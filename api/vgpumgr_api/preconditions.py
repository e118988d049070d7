"""Entity tags: what a caller has read, and whether it is still so."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Protocol

from flask import request
from werkzeug.http import parse_etags

from vgpumgr.errors import ConflictError, UsageError
from vgpumgr.model.allocation import Allocation
from vgpumgr.model.json import JsonObject

_DIGITS = 16


class ToJson(Protocol):
    """Anything of the model."""

    def to_json(self) -> JsonObject:
        """Its JSON."""
        ...


class PreconditionError(ConflictError):
    """The thing was changed since the caller read it."""

    code = "generation-mismatch"
    http_status = 412


def etag_of(item: ToJson) -> str:
    """An allocation's generation; of anything else, a digest of what it looks like."""
    if isinstance(item, Allocation):
        return str(item.generation)
    return hashlib.sha256(json.dumps(item.to_json(), sort_keys=True).encode()).hexdigest()[:_DIGITS]


def require_match(look: Callable[[], ToJson]) -> None:
    """Raise PreconditionError when the request has an ``If-Match`` that is not of the thing as it is now."""
    text = request.headers.get("If-Match")
    if text is None:
        return
    tags = parse_etags(text)
    if not tags:
        raise UsageError(
            f"If-Match: {text} is no entity tag of ours", hint="send the ETag you got", code="etag-invalid"
        )
    current = etag_of(look())
    if not tags.star_tag and not tags.is_strong(current):
        raise PreconditionError(
            f'it was changed since you read it: its entity tag is "{current}" now',
            hint="read it again, then decide again",
        )


def matched_generation(allocation: Allocation) -> int | None:
    """The generation that a change must find, checked against ``If-Match``; ``None`` when the caller named none."""
    require_match(lambda: allocation)
    named = request.headers.get("If-Match", "*").strip()
    return None if named == "*" else allocation.generation
