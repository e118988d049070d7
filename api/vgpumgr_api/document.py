"""What the OpenAPI document says beyond the models: ids, headers of answers, bodies that are not JSON."""

from __future__ import annotations

from typing import Any

from vgpumgr_api.guards import EVENT_STREAM

Operation = dict[str, Any]

_TEXT = {"type": "string"}
_REQUEST_ID = {"description": "names this request in the service's log", "schema": _TEXT}
_HEADERS: dict[str, dict[str, Any]] = {
    "200": {"ETag": {"description": "for `If-Match` and `If-None-Match`, where the answer is one thing"}},
    "201": {"Location": {"description": "the URL of what was made"}},
    "202": {"Location": {"description": "the operation's URL"}},
    "503": {"Retry-After": {"description": "seconds after which to ask again"}},
}
_BINARY = {"type": "string", "format": "binary"}
_CONTENT = {
    ("/v1/allocations/{id}/xml", "get"): ("the domain XML", {"application/xml": {"schema": _TEXT}}),
    ("/v1/host/snapshot", "get"): ("a tar", {"application/x-tar": {"schema": _BINARY}}),
}
# Python 3.13 names these statuses as RFC 9110 does; the document reads alike on every Python.
_PHRASES = {"Unprocessable Entity": "Unprocessable Content", "Request Entity Too Large": "Content Too Large"}
_METHODS = ("get", "post", "put", "patch", "delete")


def operation_id(*, bp_name: str = "", name: str = "", path: str = "", method: str = "") -> str:
    """The function's name: ``list_gpus``, ``bind_gpu``; what generated clients call their methods."""
    return name


def complete(spec: dict[str, Any]) -> None:
    """Add to the document that was generated from the models."""
    for path, item in spec["paths"].items():
        for method in set(item) & set(_METHODS):
            _complete(item[method], *_CONTENT.get((path, method), (None, None)))
    spec["paths"]["/v1/events"]["get"]["responses"]["200"]["content"][EVENT_STREAM] = {"schema": _TEXT}
    body = spec["paths"]["/v1/domain-checks"]["post"]["requestBody"]
    body["content"]["application/xml"] = {"schema": _TEXT}


def _complete(operation: Operation, description: str | None, content: dict[str, Any] | None) -> None:
    responses = operation["responses"]
    if content is not None:
        responses["200"] = {"description": description, "content": content}
    operation["responses"] = dict(sorted(responses.items()))
    for status, response in operation["responses"].items():
        response["description"] = _PHRASES.get(response["description"], response["description"])
        headers = response.setdefault("headers", {})
        headers["X-Request-Id"] = _REQUEST_ID
        for name, header in _HEADERS.get(status, {}).items():
            headers[name] = {"schema": _TEXT, **header}
