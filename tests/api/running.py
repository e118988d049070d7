"""A real service as a process of its own, and HTTP to its socket."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.databases import put_empty_database

CHECKOUT = Path(__file__).resolve().parents[2]
SECONDS = 60.0


class UnixConnection(HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def ask(
    connection: HTTPConnection, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> tuple[int, Any]:
    """One exchange in JSON."""
    content = None if body is None else json.dumps(body)
    sent = {"Content-Type": "application/json"} if content else {}
    connection.request(method, path, content, {**sent, **(headers or {})})
    response = connection.getresponse()
    text = response.read()
    return response.status, json.loads(text) if text else None


@dataclass(frozen=True)
class Running:
    """``said`` is systemd's end: what the service announces."""

    process: subprocess.Popen[str]
    socket: Path
    said: socket.socket

    def connect(self) -> UnixConnection:
        return UnixConnection(self.socket)

    def hear(self) -> str:
        return self.said.recv(1000).decode()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS)


def command(folder: Path, *arguments: str) -> list[str]:
    here = ["--socket", str(folder / "s.sock"), "--simulate", "vdi-a40"]
    return [sys.executable, "-m", "vgpumgr.cli", *here, "serve", *arguments]


def environment(folder: Path, **others: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VGPUMGR_", "LISTEN_"))}
    return {
        **kept,
        "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'api'}",
        "VGPUMGR_STATE_DIR": str(folder),
        "VGPUMGR_RUNTIME_DIR": str(folder),
        "VGPUMGR_LIBVIRT_URI": "test:///default",
        **others,
    }


@contextmanager
def running(
    folder: Path,
    arguments: Sequence[str] = (),
    *,
    wrapper: Sequence[str] = (),
    fds: Sequence[int] = (),
    **others: str,
) -> Iterator[Running]:
    """Start ``vgpumgr serve``, wait until it says that it is ready; end it in any case.

    ``wrapper`` comes before the command, ``fds`` are inherited, ``others`` go into the environment.
    """
    put_empty_database(folder)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as said:
        said.bind(str(folder / "notify"))
        said.settimeout(SECONDS)
        process = subprocess.Popen(
            [*wrapper, *command(folder, *arguments)],
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            pass_fds=fds,
            env=environment(folder, NOTIFY_SOCKET=str(folder / "notify"), **others),
        )
        service = Running(process, folder / "s.sock", said)
        try:
            assert service.hear().startswith("READY=1")
            yield service
        finally:
            process.kill()
            process.communicate()
            (folder / "notify").unlink()
