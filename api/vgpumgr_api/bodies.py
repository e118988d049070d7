"""Reading a request's body: bounded, of a type we know, one JSON object."""

from __future__ import annotations

import json
from typing import Any, cast

from flask import g, request

from vgpumgr.errors import UsageError

MAX_BODY = 1 << 20
_METHODS = ("POST", "PUT", "PATCH")
_XML = ("application/xml", "text/xml")
_TAKES_XML = "domain-checks.check_domain"


class MediaTypeError(UsageError):
    """A body that is not JSON by its own account; also keeps browsers of other sites from writing here."""

    code = "media-type-unsupported"
    http_status = 415


class BodyTooLargeError(UsageError):
    """A body above the limit, however it is sent."""

    code = "body-too-large"
    http_status = 413


def read_body() -> None:
    """Before each request: read the body, if the resource takes one. No body stands for ``{}``."""
    if request.method not in _METHODS or request.url_rule is None:
        return
    body = request.stream.read(MAX_BODY + 1)
    if len(body) > MAX_BODY:
        raise BodyTooLargeError(f"the body is larger than {MAX_BODY >> 20} MiB", hint="send less")
    g.body = body
    if request.endpoint == _TAKES_XML and request.mimetype in _XML:
        value: dict[str, Any] = {"xml": ""}
    else:
        value = _object(body)
    # Where Flask keeps a body that it has parsed itself: the models are filled from there.
    request._cached_json = (value, value)


def body() -> bytes:
    """The body as it came."""
    return cast(bytes, g.body)


def xml_body(text: str) -> bytes:
    """A document that came as the body itself, or as the ``text`` of a JSON object's field."""
    return body() if request.mimetype in _XML else text.encode()


def _object(content: bytes) -> dict[str, Any]:
    if not content and not request.mimetype:
        return {}
    if request.mimetype != "application/json":
        given = request.mimetype or "none"
        raise MediaTypeError(f"the media type is {given}", hint="send Content-Type: application/json")
    try:
        value = json.loads(content, parse_constant=_no_constant, object_pairs_hook=_no_twins)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"the body is not JSON: {error}", hint="send one JSON object", code="malformed-json"
        ) from error
    if not isinstance(value, dict):
        raise UsageError("the body is not a JSON object", hint="send {...}", code="malformed-json")
    return value


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON number")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a field stands twice in one object")
    return found
