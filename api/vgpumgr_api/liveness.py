"""Whether the service answers: asked from outside, over its own socket, as a client would."""

from __future__ import annotations

import socket
from http.client import HTTPConnection, HTTPException
from pathlib import Path

SECONDS = 10.0


class _UnixConnection(HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def answers_itself(path: Path) -> bool:
    """Whether ``GET /healthz`` is answered: threads that all hang show here."""
    connection = _UnixConnection(path)
    try:
        connection.request("GET", "/healthz", headers={"Connection": "close"})
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
