"""The service as a real process: start, serve, stop; its socket; what systemd hears."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

from tests.api.conftest import GPU
from tests.api.running import SECONDS, Running, ask, command, environment, running
from vgpumgr_api.problems import Problem
from vgpumgr_api.server import STREAMS

AS_SYSTEMD = """\
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Hands a socket over as systemd does, then becomes the command."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """For tests that leave it as it was: starting takes longer than what they do."""
    with running(tmp_path_factory.mktemp("shared")) as started:
        yield started


def second_start(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder), capture_output=True, text=True, timeout=SECONDS, check=False, env=environment(folder)
    )


def test_it_serves_on_its_socket_and_ends_cleanly_when_told_to(service: Running) -> None:
    assert stat.S_IMODE(service.socket.stat().st_mode) == 0o660
    connection = service.connect()
    assert ask(connection, "GET", "/readyz") == (200, {"status": "ready", "waiting_for": []})
    status, allocation = ask(connection, "POST", "/v1/allocations?wait=30", {"vm": "vm1", "gpu": GPU})
    assert (status, allocation["state"]) == (201, "ready")
    assert ask(connection, "DELETE", f"/v1/allocations/{allocation['id']}?wait=30")[0] == 200
    connection.close()
    assert service.stop() == 0
    assert service.hear() == "STOPPING=1"
    assert not service.socket.exists()
    assert service.process.stderr is not None
    assert "Traceback" not in service.process.stderr.read()


def test_ctrl_c_ends_it_cleanly_too(service: Running) -> None:
    service.process.send_signal(signal.SIGINT)
    assert service.process.wait(SECONDS) == 0
    assert not service.socket.exists()


def test_a_second_one_is_refused_in_one_line_while_the_first_lives(shared: Running) -> None:
    ended = second_start(shared.socket.parent)
    assert ended.returncode == 5
    assert ended.stderr.startswith(f"error: the socket {shared.socket} is in use")
    assert ended.stderr.count("\n") == 1
    assert ask(shared.connect(), "GET", "/healthz")[0] == 200


def test_after_a_kill_it_starts_again_on_the_same_socket(tmp_path: Path) -> None:
    with running(tmp_path) as first:
        status, allocation = ask(first.connect(), "POST", "/v1/allocations?wait=30", {"vm": "vm1"})
        assert status == 201
        first.process.kill()
        first.process.wait()
        assert first.socket.exists()
    with running(tmp_path) as again:
        found = ask(again.connect(), "GET", f"/v1/allocations/{allocation['id']}")
        assert found[0] == 200


def test_it_answers_on_loopback_under_its_own_names_only(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with running(tmp_path, ["--listen", f"127.0.0.1:{port}"]):
        connection = HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        assert ask(connection, "GET", "/v1/host")[0] == 200
        assert ask(connection, "GET", "/v1/host", headers={"Host": "evil.example"})[0] == 421


def test_on_the_unix_socket_any_name_will_do(shared: Running) -> None:
    assert ask(shared.connect(), "GET", "/healthz", headers={"Host": "gpu-host"})[0] == 200


@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "announced"])
def test_an_oversized_body_is_refused_however_it_is_sent(shared: Running, chunked: bool) -> None:
    connection = shared.connect()
    pieces = (b" " * 65536 for _ in range(32))
    body = pieces if chunked else b"".join(pieces)
    connection.request("POST", "/v1/candidates", body, {"Content-Type": "application/json"}, encode_chunked=chunked)
    response = connection.getresponse()
    assert (response.status, response.headers["Content-Type"]) == (413, "application/problem+json")
    assert ask(shared.connect(), "GET", "/healthz")[0] == 200


def test_garbage_instead_of_http_harms_nobody(shared: Running) -> None:
    for garbage in (
        b"\x00\xff\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET " + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    ):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(SECONDS)
            connection.connect(str(shared.socket))
            try:
                connection.sendall(garbage)
                assert b"200 OK" not in connection.recv(1000)
            except (BrokenPipeError, ConnectionResetError):
                continue
    assert ask(shared.connect(), "GET", "/healthz")[0] == 200


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (b"nonsense\r\n\r\n", 400, "malformed-request"),
        (b"GET / HTTP/9.9\r\n\r\n", 400, "malformed-request"),
        (b"G@T / HTTP/1.1\r\n\r\n", 400, "malformed-request"),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400, "malformed-request"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", 400, "malformed-request"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "malformed-request"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: zip\r\n\r\n", 501, "transfer-coding-unsupported"),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", 414, "url-too-long"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 100 + b"\r\n", 431, "headers-too-large"),
        (b"GET / HTTP/1.1\r\nExpect: miracles\r\n\r\n", 417, "expectation-failed"),
    ],
)
def test_bytes_that_are_no_request_are_answered_with_a_problem(
    shared: Running, request_: bytes, status: int, code: str
) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(SECONDS)
        connection.connect(str(shared.socket))
        connection.sendall(request_)
        response = HTTPResponse(connection)
        response.begin()
        body = json.loads(response.read())
    assert (response.status, response.headers["Content-Type"]) == (status, "application/problem+json")
    assert (body["status"], body["code"]) == (status, code)
    assert set(body) == set(Problem.model_fields)


def test_one_key_sent_by_many_at_once_makes_one_allocation(shared: Running) -> None:
    statuses: list[int] = []

    def send() -> None:
        answer = ask(
            shared.connect(), "POST", "/v1/allocations?wait=30", {"vm": "vm1"}, {"Idempotency-Key": "same"}
        )
        statuses.append(answer[0])

    senders = [threading.Thread(target=send) for _ in range(6)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join(SECONDS)
    assert set(statuses) <= {201, 409}
    assert 201 in statuses
    assert len(ask(shared.connect(), "GET", "/v1/allocations")[1]["items"]) == 1


def test_a_full_house_of_streams_hinders_nobody_and_ends_with_the_service(service: Running) -> None:
    streams = []
    for _ in range(STREAMS):
        connection = service.connect()
        connection.request("GET", "/v1/events", headers={"Accept": "text/event-stream"})
        streams.append(connection.getresponse())
    full = ask(service.connect(), "GET", "/v1/events", headers={"Accept": "text/event-stream"})
    assert (full[0], full[1]["code"]) == (503, "streams-full")
    assert ask(service.connect(), "POST", "/v1/allocations?wait=30", {"vm": "vm1"})[0] == 201
    service.process.send_signal(signal.SIGTERM)
    for stream in streams:
        text = stream.read().decode()  # to its proper end: a stream that breaks off raises IncompleteRead
        assert "event: allocation.ready\n" in text
        assert text.endswith("\n\n")
    assert service.process.wait(SECONDS) == 0
    assert service.process.stderr is not None
    assert "Traceback" not in service.process.stderr.read()


def test_the_watchdog_is_fed(tmp_path: Path) -> None:
    with running(tmp_path, WATCHDOG_USEC="200000") as service:
        assert service.hear() == "WATCHDOG=1"


def test_it_serves_on_the_socket_of_systemd_and_leaves_it_there(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "activated.sock"))
        listener.listen()
        number = listener.fileno()
        wrapper = [sys.executable, "-c", AS_SYSTEMD, str(number)]
        with running(folder, wrapper=wrapper, fds=[number], WATCHDOG_USEC="200000") as service:
            there = Running(service.process, tmp_path / "activated.sock", service.said)
            assert ask(there.connect(), "GET", "/healthz")[0] == 200
            assert not service.socket.exists()
            assert service.hear() == "WATCHDOG=1"
            assert service.stop() == 0
        assert (tmp_path / "activated.sock").exists()


def test_what_keeps_it_from_starting_is_one_line(tmp_path: Path) -> None:
    settings = environment(tmp_path, VGPUMGR_DATABASE="sqlite:////proc/nowhere/vgpumgr.db")
    ended = subprocess.run(
        command(tmp_path), capture_output=True, text=True, timeout=SECONDS, check=False, env=settings
    )
    assert ended.returncode == 5
    assert ended.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "s.sock").exists()


def test_the_log_can_be_read_by_programs(tmp_path: Path) -> None:
    with running(tmp_path, VGPUMGR_LOG_FORMAT="json") as service:
        ask(service.connect(), "POST", "/v1/candidates", {"vm": "a"}, {"X-Request-Id": "r1"})
        service.stop()
        assert service.process.stderr is not None
        lines = [json.loads(line) for line in service.process.stderr]
    assert all(set(line) == {"time", "level", "logger", "message"} for line in lines)
    assert any(line["message"].startswith("r1 POST /v1/candidates 200") for line in lines)


def test_its_helpers_inherit_no_socket_of_systemd(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        children = Path(f"/proc/{service.process.pid}/environ").read_bytes().split(b"\0")
        assert os.getpid() != service.process.pid
        assert not [item for item in children if item.startswith(b"LISTEN_")]
