"""``vgpumgr event``: against a service that breaks off when told to, and against a real one."""

from __future__ import annotations

import json
import os
import re
import signal
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import CHECKOUT, Vgpumgr
from vgpumgr.cli import follow as following
from vgpumgr.cli.demo_service import DemoService, running_service
from vgpumgr.cli.follow import follow
from vgpumgr.errors import UnavailableError, UsageError

GPU = "0000:3b:00.0"


def frame(number: int) -> bytes:
    return b'id: %d\nevent: operation.failed\ndata: {"id": %d}\n\n' % (number, number)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers one request after the other as it was told to; a number is a status."""

    daemon_threads = True
    answers: list[bytes | int]
    asked: list[tuple[str, str | None]]


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        server.asked.append((self.path, self.headers["Last-Event-ID"]))
        answer = server.answers.pop(0)
        self.send_response(answer if isinstance(answer, int) else 200)
        self.end_headers()
        text = json.dumps({"code": "some-code", "detail": "no"}).encode() if isinstance(answer, int) else answer
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def address_string(self) -> str:
        return "unix"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[_Server]:
    with _Server(str(tmp_path / "api.sock"), _Handler) as server:
        server.asked = []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(following, "sleep", slept.append)
    return slept


def path_of(server: _Server) -> Path:
    return Path(str(server.server_address))


def test_a_stream_is_taken_up_where_it_broke_off(server: _Server, pauses: list[float]) -> None:
    server.answers = [
        b"retry: 3000\nid: 4\n\n",
        b"retry: 3000\nid: 4\n\n" + frame(5) + b": nothing new\nid: 7\n\n" + frame(8)[:-1],
        frame(8) + frame(9),
    ]
    notes: list[str] = []
    events = follow(path_of(server), {"type": "operation.failed"}, None, notes.append)
    assert [item["id"] for item in islice(events, 3)] == [5, 8, 9]
    target = "/v1/events?type=operation.failed"
    assert server.asked == [(target, None), (target, "4"), (target, "7")]
    assert pauses == [1.0, 1.0]
    assert notes == ["the service ended the stream; connecting again in 1 s"] * 2


def test_the_pauses_grow_to_a_limit_while_the_service_is_away(server: _Server, pauses: list[float]) -> None:
    server.answers = [frame(1), *[503] * 7, frame(2), frame(3)]
    notes: list[str] = []
    events = follow(path_of(server), {}, 0, notes.append)
    assert [item["id"] for item in islice(events, 3)] == [1, 2, 3]
    assert pauses == [1, 1 * 2, 4, 8, 16, 30, 30, 30, 1]
    assert notes[1] == "no; connecting again in 2 s"


def test_what_was_missed_is_said(server: _Server, pauses: list[float]) -> None:
    server.answers = [b'id: 7\nevent: events.lost\ndata: {"after": 2}\n\n' + frame(8)]
    notes: list[str] = []
    assert next(follow(path_of(server), {}, 2, notes.append))["id"] == 8
    assert notes == ["events up to 7 are not kept any more, and were missed"]
    assert server.asked[0][1] == "2"


@pytest.mark.parametrize(("status", "kind"), [(503, UnavailableError), (422, UsageError)])
def test_what_is_not_there_at_first_is_not_waited_for(
    status: int, kind: type[Exception], server: _Server, pauses: list[float]
) -> None:
    server.answers = [status]
    with pytest.raises(kind):
        next(follow(path_of(server), {}, None, pauses.append))  # type: ignore[arg-type]  # it is not called
    assert pauses == []


def test_a_request_that_is_refused_later_is_not_repeated(server: _Server, pauses: list[float]) -> None:
    server.answers = [frame(1), 400]
    events = follow(path_of(server), {}, None, lambda text: None)
    next(events)
    with pytest.raises(UsageError):
        next(events)


# -- a real service -----------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def service() -> Iterator[DemoService]:
    with running_service("vdi-a40") as service:
        yield service


def test_the_list_is_a_table_newest_first_and_takes_filters(service: DemoService, vgpumgr: Vgpumgr) -> None:
    def here(*arguments: object) -> Any:
        return vgpumgr("--socket", service.socket, *arguments)

    assert here("event", "list").out == "no events\n"
    assert here("gpu", "bind", GPU).status == 0
    assert here("gpu", "release", GPU).status == 0
    heading, newest, _ = here("event", "list").out.splitlines()
    assert heading.split() == ["ID", "TIME", "TYPE", "SUBJECT", "MESSAGE"]
    assert re.fullmatch(rf" 2  \S+Z  operation\.succeeded  {GPU}  release of {GPU} succeeded", newest)
    assert [item["id"] for item in here("event", "list", "-o", "json").json] == [2, 1]
    assert [item["id"] for item in here("event", "list", "--limit", 1, "-o", "json").json] == [2]
    assert here("event", "list", "--after", 2, "-o", "json").json == []
    assert here("event", "list", "--type", "operation.stuck", "-o", "json").json == []
    assert here("event", "list", "--type", "nothing").status == 2


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_following_prints_as_it_comes_and_ends_quietly(service: DemoService, vgpumgr: Vgpumgr, output: str) -> None:
    assert vgpumgr("--socket", service.socket, "gpu", "bind", GPU).status == 0
    assert vgpumgr("--socket", service.socket, "gpu", "release", GPU).status == 0
    command = ["--socket", str(service.socket), "event", "follow", "--after", "0", "-o", output]
    with subprocess.Popen(
        # Tests that run in a shell's background inherit that it is ignored.
        ["env", "--default-signal=INT", sys.executable, "-m", "vgpumgr.cli", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'api'}"},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        if output == "json":
            assert json.loads(first)["subject"] == GPU
        elif output == "yaml":
            assert (first, process.stdout.readline()) == ("---\n", "id: 1\n")
        else:
            assert first.startswith("1  ")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert (process.returncode, said) == (130, "")


def test_a_host_in_this_process_has_nothing_to_follow(vgpumgr: Vgpumgr) -> None:
    ended = vgpumgr("--simulate", "vdi-a40", "event", "follow")
    assert ended.status == 2
    assert "running service" in ended.err
    assert vgpumgr("--simulate", "vdi-a40", "event", "list").out == "no events\n"
