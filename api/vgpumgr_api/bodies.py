"""Reading a request's body: bounded, of a type we know, one JSON object."""

from __future__ import annotations

import json
from typing import Any, cast

from flask import g, request

from vgpumgr.errors import UsageError

MAX_BODY = 1 << 20
_LET_BY = 16 << 20
_PIECE = 1 << 16
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
    g.body = body = _received()
    if body and request.headers.get("Content-Encoding", "identity") != "identity":
        raise MediaTypeError(
            f"the body is encoded as {request.headers['Content-Encoding']!r}",
            hint="send it as it is, without Content-Encoding",
        )
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


def _received() -> bytes:
    """The body, read to its end. What comes after the limit is let by, so that the client hears the answer."""
    stream = request.environ["wsgi.input"]
    try:
        content: bytes = stream.read(MAX_BODY + 1)
        if len(content) <= MAX_BODY:
            return content
        left = _LET_BY
        while left > 0 and (piece := stream.read(_PIECE)):
            left -= len(piece)
    except OSError as error:
        raise UsageError(
            f"the body broke off: {error}", hint="send it again, whole", code="malformed-request"
        ) from error
    raise BodyTooLargeError(f"the body is larger than {MAX_BODY >> 20} MiB", hint="send less")


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
