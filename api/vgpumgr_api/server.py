"""The service as a process: sockets, the assembled :class:`~vgpumgr.service.Service`, and its worker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from vgpumgr.assembly import open_service
from vgpumgr.config import Config
from vgpumgr.errors import EXIT_OK, VgpumgrError
from vgpumgr.service import Service
from vgpumgr_api import logs, sockets
from vgpumgr_api.app import create_app
from vgpumgr_api.liveness import prober
from vgpumgr_api.notify import Notifier
from vgpumgr_api.worker import Worker

HEALTH_THREADS = 1
"""A thread beyond the configured ones: a full house still answers how it is."""
STREAMS = 8
"""How many clients may follow events at a time; each has a thread of its own beside those that answer requests."""

log = logging.getLogger("vgpumgr")


def serve(config: Config) -> int:
    """Run the service until it is told to stop. Returns the exit status.

    Raises UnavailableError ``address-in-use`` and kin, and whatever keeps the service from being assembled, before
    anything is served.
    """
    logs.set_up(config.log_level, config.log_format)
    notifier = Notifier.taken_from_environment()
    listeners, own_socket = sockets.open_all(config)
    try:
        _run(config, listeners, notifier)
    finally:
        if own_socket:
            sockets.remove(config.socket)
    return EXIT_OK


def _run(config: Config, listeners: list[int], notifier: Notifier) -> None:
    service = open_service(config)
    try:
        app = create_app(service, seats=max(1, config.threads // 2), streams=STREAMS, names=config.server_names)

        def stop() -> None:
            notifier.stopping()
            app.extensions["vgpumgr"].close()

        # Made first: gunicorn closes the descriptors that it is given, and goes on with copies.
        start = (service, notifier, prober(listeners[0]))
        worker = Worker(app, listeners, config.threads + HEALTH_THREADS + STREAMS, stop)
        # Reconciling goes on beside the first answers: /readyz says how far it is.
        threading.Thread(target=_start, args=start, name="start", daemon=True).start()
        worker.init_process()
    finally:
        # What is being done to the host is let end: the step in progress, and those that belong to it.
        service.close()


def _start(service: Service, notifier: Notifier, answers: Callable[[], bool]) -> None:
    try:
        watcher = service.watch()  # before anything is put in order: what that changes is news too
        service.start()
    except VgpumgrError as error:
        log.error("the host could not be reconciled: %s", error)
        notifier.send(f"STATUS=not ready: {error.message}")
        return
    watcher.start()
    log.info("ready")
    notifier.send("READY=1\nSTATUS=serving")
    notifier.watch(answers)
