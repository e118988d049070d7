"""The service as a process: gunicorn with one worker, whose threads share one :class:`Service`.

One worker, because a host has one writer, and libvirt's connection and the queue of operations live in it. The
parent imports no more than gunicorn, and starts the worker again if it dies.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gunicorn.app.base import BaseApplication

from vgpumgr.config import Config
from vgpumgr.errors import VgpumgrError
from vgpumgr_api.notify import Notifier
from vgpumgr_api.sockets import open_sockets

if TYPE_CHECKING:
    from vgpumgr.service import Service

log = logging.getLogger("vgpumgr")

GRACE_SECONDS = 30
"""How long running requests may take to end when the service is stopped."""
FROZEN_SECONDS = 300
"""A worker that does not even turn its loop for so long is replaced."""
_FORMAT = "%(levelname)s %(name)s: %(message)s"


def serve(config: Config) -> int:
    """Run the service until it is told to stop. Returns the exit status.

    Raises UnavailableError ``address-in-use`` and kin before anything is started.
    """
    logging.basicConfig(stream=sys.stderr, level=config.log_level.upper(), format=_FORMAT)
    notifier = Notifier.taken_from_environment()
    activated = "LISTEN_FDS" in os.environ
    sockets = [] if activated else open_sockets(config)
    _Server(config, notifier, sockets).run()
    return 0


class _Server(BaseApplication):
    """gunicorn, told what to do by our configuration instead of its own files."""

    def __init__(self, config: Config, notifier: Notifier, sockets: list[socket.socket]) -> None:
        self._config = config
        self._notifier = notifier
        self._sockets = sockets
        super().__init__()

    def load_config(self) -> None:
        """See gunicorn."""
        config = self._config
        settings: dict[str, Any] = {
            "bind": [f"fd://{listener.fileno()}" for listener in self._sockets],
            "workers": 1,
            "worker_class": "gthread",
            "threads": config.threads,
            "timeout": FROZEN_SECONDS,
            "graceful_timeout": GRACE_SECONDS,
            "keepalive": 5,
            "proc_name": "vgpumgr",
            "loglevel": config.log_level,
            "limit_request_line": 8190,
            "limit_request_fields": 64,
            "worker_tmp_dir": "/dev/shm" if Path("/dev/shm").is_dir() else None,
            "control_socket_disable": True,
            "worker_exit": self._worker_exit,
        }
        for name, value in settings.items():
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def load(self) -> Any:
        """In the worker: the service and the application over it. Reconciling goes on beside the first answers."""
        from vgpumgr.assembly import open_service
        from vgpumgr_api.app import create_app

        try:
            self._service = open_service(self._config)
        except VgpumgrError as error:
            log.error("cannot start: %s", error)
            self._notifier.send(f"STATUS=cannot start: {error.message}")
            # gunicorn's word for "do not try again": its parent ends too, with this status.
            raise SystemExit(4) from error
        app = create_app(self._service)
        threading.Thread(target=self._start, args=(self._service,), name="start", daemon=True).start()
        return app

    def _start(self, service: Service) -> None:
        try:
            service.start()
        except VgpumgrError as error:
            log.error("the host could not be reconciled: %s", error)
            self._notifier.send(f"STATUS=not ready: {error.message}")
            return
        log.info("ready")
        self._notifier.send("READY=1\nSTATUS=serving")
        self._notifier.watch(lambda: _answers_itself(self._config.socket))

    def _worker_exit(self, _server: object, _worker: object) -> None:
        self._notifier.stopping()
        service = getattr(self, "_service", None)
        if service is not None:
            service.close()


class _UnixConnection(HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=10)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _answers_itself(path: Path) -> bool:
    """Whether a request from outside would be answered: threads that hang show here."""
    connection = _UnixConnection(path)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
