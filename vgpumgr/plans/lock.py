"""One writer per host: a lock that the service and a lone command line both take before they change anything."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from vgpumgr.errors import ConflictError, PermissionDeniedError


class HostLock:
    """Mutual exclusion between threads and, where ``path`` is given, between processes.

    The kernel drops the lock with the process that held it, so a killed writer never leaves it behind.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._threads = threading.RLock()

    @contextmanager
    def held(self, *, patience: float = 10.0) -> Iterator[None]:
        """Hold the lock; wait ``patience`` seconds for another process, then ConflictError ``host-busy``."""
        with self._threads:
            if self._path is None:
                yield
                return
            descriptor = self._open(self._path)
            try:
                _lock(descriptor, self._path, patience)
                yield
            finally:
                os.close(descriptor)

    @staticmethod
    def _open(path: Path) -> int:
        try:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except PermissionError as error:
            raise PermissionDeniedError(f"cannot open {path}: {error.strerror}", hint="run as root") from error


def _lock(descriptor: int, path: Path, patience: float) -> None:
    end = monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic() > end:
                raise ConflictError(
                    "another vgpumgr is changing this host right now",
                    hint=f"wait for it to finish; it holds {path}",
                    code="host-busy",
                ) from None
            sleep(0.05)
        else:
            return
