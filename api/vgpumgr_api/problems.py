"""Errors as RFC 9457 problem details, for everything: our own errors, HTTP's, validation's, and faults of ours."""

from __future__ import annotations

import json
import logging
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from flask import Flask, Response, make_response, request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from werkzeug.exceptions import HTTPException

from vgpumgr.errors import VgpumgrError
from vgpumgr_api.requests import request_id

MEDIA_TYPE = "application/problem+json"
_TYPE = "urn:vgpumgr:problem:"
"""Problem types are names, not addresses: docs/reference/errors.md says what each code means."""

_EXAMPLE: dict[str, Any] = {
    "type": _TYPE + "no-candidate",
    "title": "Conflict",
    "status": 409,
    "detail": "nothing on this host can give desktop-17 1 × NVIDIA A40-4Q",
    "code": "no-candidate",
    "hint": "the reasons say what stands in the way of each GPU",
    "errors": [],
    "reasons": [
        {"code": "reserved", "message": "0000:3b:00.0 is promised to an allocation", "addresses": ["0000:3b:00.0"]}
    ],
    "request_id": "6f1c2c0c8f5e4f0e9d523f1c1f6f1c11",
}

log = logging.getLogger(__name__)

HTTP_CODES = {
    400: ("malformed-request", "look at the request against /openapi.json"),
    404: ("not-found", "GET /openapi.json lists every resource"),
    405: ("method-not-allowed", "see the Allow header"),
    406: ("not-acceptable", "the API answers in application/json"),
    413: ("body-too-large", "send at most 1 MiB"),
    415: ("media-type-unsupported", "send Content-Type: application/json"),
}


class FieldError(BaseModel):
    """What is wrong with one field of a request."""

    field: str = Field(description="where: `body.vm`, `query.limit`, `path.address`")
    pointer: str | None = Field(description="JSON pointer into the body: `#/vm`; null outside the body")
    message: str
    type: str = Field(description="the kind of fault, stable")


class ProblemReason(BaseModel):
    """One reason of a refusal."""

    code: str
    message: str
    addresses: list[str]


class Problem(BaseModel):
    """RFC 9457 problem details."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    type: str
    title: str
    status: int
    detail: str
    code: str = Field(description="stable; what programs match on")
    hint: str = Field(
        description="what to do about it, for people; an option such as --also is the field of that name here"
    )
    errors: list[FieldError] = Field(default_factory=list)
    reasons: list[ProblemReason] = Field(default_factory=list)
    request_id: str = Field(description="names this request in the service's log")


def problem(
    status: int,
    code: str,
    detail: str,
    hint: str = "",
    *,
    errors: list[dict[str, Any]] | None = None,
    reasons: list[dict[str, Any]] | None = None,
) -> Response:
    """A problem response."""
    text = problem_text(status, code, detail, hint, errors=errors, reasons=reasons, request_id=request_id())
    return Response(text, status, content_type=MEDIA_TYPE)


def problem_text(
    status: int,
    code: str,
    detail: str,
    hint: str,
    *,
    request_id: str,
    errors: list[dict[str, Any]] | None = None,
    reasons: list[dict[str, Any]] | None = None,
) -> str:
    """A problem as JSON."""
    body = {
        "type": _TYPE + code,
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
        "hint": hint,
        "errors": errors or [],
        "reasons": reasons or [],
        "request_id": request_id,
    }
    return json.dumps(body)


def from_error(error: VgpumgrError) -> Response:
    """One of our errors, with its own status, code, hint and reasons."""
    if error.http_status >= 500:
        log.error("%s %s: %s", request_id(), error.code, error.message)
    reasons = [reason.to_json() for reason in error.reasons]
    response = problem(error.http_status, error.code, error.message, error.hint, reasons=reasons)
    if error.http_status == HTTPStatus.SERVICE_UNAVAILABLE:
        response.headers["Retry-After"] = "5"
    return response


def from_validation(error: ValidationError) -> Response:
    """A request that does not fit its model: 422 with every field that is wrong."""
    where = {"Query": "query", "Path": "path", "Headers": "header"}
    part = next((name for suffix, name in where.items() if error.title.endswith(suffix)), "body")
    errors = [
        {
            "field": ".".join([part, *map(str, item["loc"])]),
            "pointer": _pointer(item["loc"]) if part == "body" else None,
            "message": item["msg"],
            "type": item["type"],
        }
        for item in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    detail = "; ".join(f"{item['field']}: {item['message']}" for item in errors)
    return problem(422, "validation-failed", detail, "correct the fields named in 'errors'", errors=errors)


def _pointer(place: tuple[int | str, ...]) -> str:
    """RFC 6901, as a fragment."""
    return "#" + "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in place)


def _from_http(error: HTTPException) -> Response:
    if error.response is not None:
        return make_response(error.response)
    status = error.code or 500
    code, hint = HTTP_CODES.get(status, ("http-error", ""))
    response = problem(status, code, _detail(status, error), hint)
    for name, value in error.get_headers():
        if name.lower() in ("allow", "retry-after"):
            response.headers[name] = value
    return response


def _detail(status: int, error: HTTPException) -> str:
    """What is wrong, in our words where HTTP's library has only general ones."""
    if status == HTTPStatus.NOT_FOUND:
        return f"there is no resource {quote(request.path)}"
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        return f"{quote(request.path)} does not take {request.method}"
    return str(error.description or HTTPStatus(status).phrase)


def _from_fault(error: Exception) -> Response:
    """A fault of ours: the log has the trace, the client only that there was one."""
    log.error("%s fault while answering %s %s", request_id(), request.method, request.path, exc_info=error)
    return problem(
        500,
        "internal",
        "the service met a fault of its own",
        f"its log has the details under {request_id()}; please report it",
    )


def register(app: Flask) -> None:
    """Answer every error of an application with a problem."""
    app.register_error_handler(VgpumgrError, from_error)
    app.register_error_handler(HTTPException, _from_http)
    app.register_error_handler(Exception, _from_fault)
