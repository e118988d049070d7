"""Whether the service answers: asked from outside, over its own socket, as a client would."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from typing import Any

SECONDS = 10.0


class _Connection(HTTPConnection):
    """HTTP to wherever a listening socket listens."""

    def __init__(self, family: int, address: Any) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self._family, self._address = family, address

    def connect(self) -> None:
        self.sock = socket.socket(self._family, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._address)


def prober(listener: int) -> Callable[[], bool]:
    """A function that tells whether ``GET /healthz`` is answered there: threads that all hang show.

    ``listener`` is the file descriptor of a listening socket, whoever opened it.
    """
    with socket.socket(fileno=os.dup(listener)) as listening:
        family, address = listening.family, listening.getsockname()

    def answers() -> bool:
        connection = _Connection(family, address)
        try:
            connection.request("GET", "/healthz", headers={"Connection": "close"})
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    return answers
