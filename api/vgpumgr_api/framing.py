"""What a client hears whose bytes are no HTTP request: a problem too, though no application ever sees it."""

from __future__ import annotations

from http import HTTPStatus

from gunicorn.http import errors

from vgpumgr_api.problems import MEDIA_TYPE, problem_text

_REFUSALS: tuple[tuple[type[Exception], HTTPStatus, str, str], ...] = (
    (errors.LimitRequestLine, HTTPStatus.REQUEST_URI_TOO_LONG, "url-too-long", "send a shorter URL"),
    (
        errors.LimitRequestHeaders,
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
        "headers-too-large",
        "send fewer and shorter headers",
    ),
    (errors.ExpectationFailed, HTTPStatus.EXPECTATION_FAILED, "expectation-failed", "send no other Expect header"),
    (
        errors.UnsupportedTransferCoding,
        HTTPStatus.NOT_IMPLEMENTED,
        "transfer-coding-unsupported",
        "send the body with Content-Length or chunked",
    ),
    (errors.ParseException, HTTPStatus.BAD_REQUEST, "malformed-request", "send HTTP/1.1"),
)
"""The most particular first."""
_OWN_FAULTS = (errors.InvalidResponseHeader, errors.InvalidResponseHeaderName)
"""gunicorn's errors of parsing that are about our answer, not about the request."""


def refusal(error: Exception, request_id: str) -> bytes | None:
    """The whole answer to bytes that are no request; ``None`` when the error is no client's doing."""
    if isinstance(error, _OWN_FAULTS):
        return None
    for kind, status, code, hint in _REFUSALS:
        if isinstance(error, kind):
            return _answer(status, problem_text(status, code, str(error), hint, request_id=request_id))
    return None


def fault(request_id: str) -> bytes:
    """The whole answer when the service failed outside its application."""
    hint = f"its log has the details under {request_id}; please report it"
    text = problem_text(500, "internal", "the service met a fault of its own", hint, request_id=request_id)
    return _answer(HTTPStatus.INTERNAL_SERVER_ERROR, text)


def _answer(status: HTTPStatus, text: str) -> bytes:
    body = text.encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        "Connection: close",
        f"Content-Type: {MEDIA_TYPE}",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join((*head, "", "")).encode("ascii") + body
