"""Telling systemd how we are: readiness, stopping, and the watchdog's pings (sd_notify)."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class Notifier:
    """Speaks to the socket that systemd named; does nothing where there is none."""

    def __init__(self, address: str | None, watchdog_seconds: float | None) -> None:
        self._address = address
        self._watchdog_seconds = watchdog_seconds
        self._stop = threading.Event()

    @classmethod
    def taken_from_environment(cls) -> Notifier:
        """What systemd put into the environment; taken out of it, for nobody else shall announce us early."""
        address = os.environ.pop("NOTIFY_SOCKET", None)
        microseconds = os.environ.pop("WATCHDOG_USEC", "")
        os.environ.pop("WATCHDOG_PID", None)
        return cls(address, int(microseconds) / 1e6 if microseconds.isdecimal() else None)

    def send(self, text: str) -> None:
        """Send ``READY=1``, ``STOPPING=1``, ``STATUS=…`` or ``WATCHDOG=1``."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as connection:
                connection.connect(address)
                connection.sendall(text.encode())
        except OSError as error:
            log.warning("systemd could not be told %r: %s", text, error)

    def watch(self, alive: Callable[[], bool]) -> None:
        """Ping the watchdog at half its interval for as long as ``alive()`` says so."""
        if not self._address or not self._watchdog_seconds:
            return
        interval = self._watchdog_seconds / 2

        def ping() -> None:
            while not self._stop.wait(interval):
                if alive():
                    self.send("WATCHDOG=1")
                else:
                    log.error("the service does not answer itself; the watchdog is left to act")

        threading.Thread(target=ping, name="watchdog", daemon=True).start()

    def stopping(self) -> None:
        """Say that we stop, and ping no more."""
        self._stop.set()
        self.send("STOPPING=1")
