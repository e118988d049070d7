"""The outer QEMU's control socket: plug boards in, pull them out, take pictures."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any


class QmpError(RuntimeError):
    """QEMU refused a command."""


class Qmp:
    """A connection that is ready for commands."""

    def __init__(self, path: Path, timeout: float = 30.0) -> None:
        self._link = socket.socket(socket.AF_UNIX)
        self._link.settimeout(timeout)
        self._link.connect(str(path))
        self._lines = self._link.makefile("rb")
        self._events: list[dict[str, Any]] = []
        self._next()
        self.command("qmp_capabilities")

    def close(self) -> None:
        """Hang up."""
        self._lines.close()
        self._link.close()

    def command(self, name: str, **arguments: object) -> Any:
        """Run one command and return its answer. Raises QmpError, TimeoutError."""
        self._link.sendall(json.dumps({"execute": name, "arguments": arguments}).encode() + b"\n")
        while True:
            message = self._next()
            if "return" in message:
                return message["return"]
            if "error" in message:
                raise QmpError(f"{name} {arguments}: {message['error']['desc']}")
            self._events.append(message)

    def wait_event(self, name: str, timeout: float, **data: object) -> dict[str, Any]:
        """The next event of this name whose data hold ``data``. Raises TimeoutError."""
        deadline = time.monotonic() + timeout
        while True:
            while self._events:
                event = self._events.pop(0)
                found = event.get("data", {})
                if event.get("event") == name and all(found.get(key) == value for key, value in data.items()):
                    return event
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no {name} {data} from QEMU in {timeout:.0f} s")
            self._link.settimeout(left)
            self._events.append(self._next())

    def _next(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line:
            raise QmpError("QEMU hung up")
        message: dict[str, Any] = json.loads(line)
        return message
