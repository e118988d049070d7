"""Every request has an id, and a line in the log."""

from __future__ import annotations

import logging
import re
import time
from urllib.parse import quote
from uuid import uuid4

from flask import Flask, Response, g, has_request_context, request

log = logging.getLogger("vgpumgr.requests")

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_READING = ("GET", "HEAD", "OPTIONS")


def request_id() -> str:
    """The id of the request that is being answered: the caller's own (``X-Request-Id``), or a new one."""
    if not has_request_context():
        return "-"
    if "request_id" not in g:
        given = request.headers.get("X-Request-Id", "")
        g.request_id = given if _ID.fullmatch(given) else uuid4().hex
    return str(g.request_id)


def _begin() -> None:
    g.began = time.monotonic()


def _end(response: Response) -> Response:
    response.headers["X-Request-Id"] = request_id()
    # Reads are many and change nothing: they are logged only when asked for, or when they went wrong.
    level = logging.DEBUG if request.method in _READING and response.status_code != 500 else logging.INFO
    seconds = time.monotonic() - g.get("began", time.monotonic())
    path = quote(request.path)
    log.log(level, "%s %s %s %d %.3fs", request_id(), request.method, path, response.status_code, seconds)
    return response


def register(app: Flask) -> None:
    """Let every request of an application have an id and a line."""
    app.before_request(_begin)
    app.after_request(_end)
