"""The client of the service: one connection, pages, problems as errors."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.cli.conftest import Vgpumgr
from vgpumgr.cli.client import Client
from vgpumgr.errors import (
    ConflictError,
    FailedError,
    NotFoundError,
    RefusedError,
    UnavailableError,
    UsageError,
    VgpumgrError,
)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        if parts.path == "/list":
            cursor = query.get("cursor", [None])[0]
            page = {"items": [{"n": 1}], "next_cursor": "two"} if cursor is None else {"items": [{"n": 2}]}
            self._answer(200, page | {"state": query.get("state")})
        elif parts.path == "/cut":
            self.close_connection = True
        elif parts.path == "/html":
            self._answer(502, b"<html>bad gateway</html>")
        else:
            status = int(parts.path.removeprefix("/status/"))
            reasons = [{"code": "boot-display", "message": "the console", "addresses": ["0000:01:00.0"]}]
            self._answer(status, {"code": "some-code", "detail": "what", "hint": "do", "reasons": reasons})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(201, {"body": body, "key": self.headers["Idempotency-Key"]})

    def _answer(self, status: int, content: Any) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def address_string(self) -> str:
        return "unix"


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    path = tmp_path / "api.sock"
    with _Server(str(path), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        client = Client(path)
        yield client
        client.close()
        server.shutdown()
        thread.join()


def test_a_list_is_read_to_its_last_page_with_the_filters_kept(client: Client) -> None:
    assert [item["n"] for item in client.pages("/list", {"state": "ready"})] == [1, 2]


def test_every_post_carries_its_own_idempotency_key(client: Client) -> None:
    first, second = client.post("/x", {"vm": "a"}), client.post("/x", {"vm": "a"})
    assert first["body"] == {"vm": "a"}
    assert first["key"]
    assert first["key"] != second["key"]


@pytest.mark.parametrize(
    ("status", "kind", "exit_status"),
    [
        (400, UsageError, 2),
        (404, NotFoundError, 2),
        (409, RefusedError, 3),
        (412, ConflictError, 3),
        (413, UsageError, 2),
        (422, UsageError, 2),
        (500, FailedError, 4),
        (503, UnavailableError, 5),
    ],
)
def test_a_problem_becomes_the_error_it_was(
    status: int, kind: type[VgpumgrError], exit_status: int, client: Client
) -> None:
    with pytest.raises(kind) as caught:
        client.get(f"/status/{status}")
    error = caught.value
    assert (error.code, error.message, error.hint, error.exit_status) == ("some-code", "what", "do", exit_status)
    assert error.reasons[0].addresses == ("0000:01:00.0",)


def test_an_answer_that_is_no_problem_is_still_an_error(client: Client) -> None:
    with pytest.raises(VgpumgrError, match="502"):
        client.get("/html")


def test_a_connection_that_breaks_off_says_so(client: Client) -> None:
    with pytest.raises(UnavailableError) as caught:
        client.get("/cut")
    assert caught.value.code == "service-unavailable"


def test_without_a_service_allocations_say_how_to_start_it(vgpumgr: Vgpumgr) -> None:
    ended = vgpumgr("alloc", "list")
    assert ended.status == 5
    assert ended.err.count("\n") == 1
    assert "systemctl start vgpumgr" in ended.err


def test_a_socket_that_is_named_must_answer(vgpumgr: Vgpumgr, tmp_path: Path) -> None:
    ended = vgpumgr("--socket", tmp_path / "nobody.sock", "gpu", "list")
    assert ended.status == 5
    assert "nobody.sock" in ended.err
