"""A small HTTP client over a unix socket: JSON in, JSON out, problem details as this project's errors."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from vgpumgr.cli.problems import raise_problem
from vgpumgr.errors import UnavailableError

JsonObject = dict[str, Any]
TIMEOUT_SECONDS = 90.0
"""Longer than any answer takes: the service waits at most 60 seconds for an operation."""


class UnixConnection(HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path, timeout: float = TIMEOUT_SECONDS) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Open the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Client:
    """One connection to the service."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = UnixConnection(path)

    def connect(self) -> None:
        """Open the socket now. Raises OSError when nobody listens."""
        self._connection.connect()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """GET, decoded."""
        return self._json("GET", path, query)

    def pages(self, path: str, query: Mapping[str, Any] | None = None) -> Iterator[JsonObject]:
        """Every item of a list, page by page."""
        wanted = dict(query or {})
        while True:
            page = self.get(path, wanted)
            yield from page["items"]
            if not page.get("next_cursor"):
                return
            wanted["cursor"] = page["next_cursor"]

    def post(
        self,
        path: str,
        body: JsonObject,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """POST a JSON object, decoded. Carries an idempotency key of its own."""
        sent = {"Idempotency-Key": str(uuid.uuid4()), **(headers or {})}
        return self._json("POST", path, query, json.dumps(body).encode(), sent)

    def delete(
        self,
        path: str,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """DELETE, decoded."""
        return self._json("DELETE", path, query, headers=headers)

    def raw(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[bytes, Mapping[str, str]]:
        """One exchange: the answer's body and headers. A problem is raised as an error."""
        target = target_of(path, query or {})
        try:
            # A body that is too large is answered before it has been read: the answer is what counts then.
            with suppress(BrokenPipeError):
                self._connection.request(method, target, body, dict(headers or {}))
            response = self._connection.getresponse()
            content = response.read()
        except (OSError, HTTPException) as error:
            self._connection.close()
            raise UnavailableError(
                f"the service on {self.path} broke off: {str(error) or type(error).__name__}",
                hint="journalctl -u vgpumgr says why",
                code="service-unavailable",
            ) from error
        if response.status >= 400:
            raise_problem(response.status, content)
        return content, {key.lower(): value for key, value in response.getheaders()}

    def _json(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        sent = {"Accept": "application/json", **(headers or {})}
        if body is not None:
            sent["Content-Type"] = "application/json"
        content, _ = self.raw(method, path, query, body, sent)
        return json.loads(content) if content else None


def target_of(path: str, query: Mapping[str, Any]) -> str:
    """A path with what was given of a query."""
    given = {key: _text(value) for key, value in query.items() if value is not None}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def _text(value: Any) -> str | list[str]:
    if isinstance(value, list):
        return [str(item) for item in value]
    return str(value).lower() if isinstance(value, bool) else str(value)
