"""gunicorn's threaded worker as the whole service: one process, made to sleep while there is nothing to do.

gunicorn usually keeps a parent over its workers. A host has one writer, so there would be one worker, and systemd
already does what the parent is for: it starts the service again when it dies and, by the watchdog, when it hangs.
Without the parent the service needs a fifth less memory, and nothing has to wake up once a second to show the other
that it is alive.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from gunicorn import sock
from gunicorn.config import Config
from gunicorn.workers.gthread import ThreadWorker

from vgpumgr_api import framing
from vgpumgr_api.logs import GunicornLog

HEARTBEAT = 3600.0
"""Seconds between two turns of an idle loop: it has nothing to look after, and signals and requests wake it."""
RECEIVE_SECONDS = 10
"""How long a client may keep a thread by sending nothing in the middle of a request."""
SEND_SECONDS = 20
"""How long a client may keep a thread by taking nothing of its answer."""
GRACE_SECONDS = 30
"""How long running requests may take to end when the service is stopped."""

_TIMEVAL = struct.Struct("@ll")


class Worker(ThreadWorker):
    """Serves one WSGI application on open sockets until it is told to stop."""

    def __init__(
        self, application: Callable[..., Any], listeners: Sequence[int], threads: int, on_stop: Callable[[], None]
    ) -> None:
        settings = _settings(threads)
        log = GunicornLog(settings)
        self._application = application
        self._on_stop = on_stop
        super().__init__(
            age=1,
            ppid=os.getppid(),
            sockets=sock.create_sockets(settings, log, listeners),
            app=self,
            timeout=HEARTBEAT,
            cfg=settings,
            log=log,
        )

    def wsgi(self) -> Callable[..., Any]:
        """What gunicorn asks its application for."""
        return self._application

    def is_parent_alive(self) -> bool:
        """Whoever started the service may go; it stays."""
        return True

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        """Sleep long only while nobody is connected: connections that idle are closed on time."""
        idle = self.alive and not self.keepalived_conns and not self.pending_conns
        super().wait_for_and_dispatch_events(HEARTBEAT if idle else timeout)

    def enqueue_req(self, conn: Any) -> None:
        """gunicorn reads and writes without a limit of time; the kernel's limits on the socket end it."""
        conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL.pack(RECEIVE_SECONDS, 0))
        conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(SEND_SECONDS, 0))
        super().enqueue_req(conn)

    def handle_error(self, req: Any, client: socket.socket, addr: Any, exc: Exception) -> None:
        """Bytes that are no request, and faults outside the application, are answered with a problem."""
        request_id = uuid4().hex
        answer = framing.refusal(exc, request_id)
        if answer is not None:
            self.log.warning("%s no HTTP request: %s", request_id, ascii(str(exc)))
        else:
            self.log.error("%s fault while answering", request_id, exc_info=exc)
            answer = framing.fault(request_id)
        try:
            client.send(answer, socket.MSG_DONTWAIT)
        except OSError:
            self.log.info("%s the client did not wait for its answer", request_id)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Told to stop, by systemd or by Ctrl-C: running requests end, then the process."""
        if self.alive:
            self._on_stop()
        super().handle_exit(sig, frame)

    handle_quit = handle_exit


def _settings(threads: int) -> Config:
    settings = Config()
    values: dict[str, Any] = {
        "worker_class": Worker,
        "threads": threads,
        "graceful_timeout": GRACE_SECONDS,
        "keepalive": 5,
        "proc_name": "vgpumgr",
        "limit_request_line": 8190,
        "limit_request_fields": 64,
        # A file that gunicorn touches at each turn of the loop: in memory, so that no disk can hold it up.
        "worker_tmp_dir": "/dev/shm" if Path("/dev/shm").is_dir() else None,
    }
    for name, value in values.items():
        settings.set(name, value)
    return settings
