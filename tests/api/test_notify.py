"""What systemd is told, and when."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from vgpumgr_api.notify import Notifier


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket that systemd would listen on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(60)
        yield listener


def notifier(systemd: socket.socket, watchdog_seconds: float | None = None) -> Notifier:
    return Notifier(systemd.getsockname(), watchdog_seconds)


def test_systemd_hears_what_is_sent(systemd: socket.socket) -> None:
    notifier(systemd).send("READY=1")
    assert systemd.recv(100) == b"READY=1"


def test_abstract_sockets_are_understood() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0vgpumgr-test-{os.getpid()}")
        Notifier(f"@vgpumgr-test-{os.getpid()}", None).send("READY=1")
        assert listener.recv(100) == b"READY=1"


def test_nobody_else_can_announce_us(monkeypatch: pytest.MonkeyPatch, systemd: socket.socket) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", systemd.getsockname())
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    found = Notifier.taken_from_environment()
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & set(os.environ)
    found.send("STATUS=x")
    assert systemd.recv(100) == b"STATUS=x"


def test_the_watchdog_is_fed_only_while_the_service_answers(systemd: socket.socket) -> None:
    answers = iter([True, True, False, False])
    asked = threading.Event()

    def alive() -> bool:
        answer = next(answers, None)
        if answer is None:
            asked.set()
        return bool(answer)

    found = notifier(systemd, watchdog_seconds=0.02)
    found.watch(alive)
    assert asked.wait(60)
    found.stopping()
    said = [systemd.recv(100) for _ in range(3)]
    assert said == [b"WATCHDOG=1", b"WATCHDOG=1", b"STOPPING=1"]


def test_without_systemd_nothing_is_said_and_nothing_fails() -> None:
    earlier = set(threading.enumerate())  # another test's watchdog may still be ending
    silent = Notifier(None, 1.0)
    silent.send("READY=1")
    silent.watch(lambda: True)
    silent.stopping()
    assert "watchdog" not in {thread.name for thread in set(threading.enumerate()) - earlier}


def test_a_systemd_that_is_gone_does_not_stop_the_service(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Notifier(str(tmp_path / "gone"), None).send("READY=1")
    assert "could not be told" in caplog.text
