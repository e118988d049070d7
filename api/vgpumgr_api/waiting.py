"""The room where requests wait for operations: bounded, and emptied when the service stops."""

from __future__ import annotations

import threading
import time

from vgpumgr.model.operation import Operation
from vgpumgr.service import Service

MAX_SECONDS = 300
_SLICE_SECONDS = 1.0
"""How soon a waiting request notices that the service stops."""
_STANDING_SECONDS = 0.25
"""How long a request waits for which no seat is free: enough that its client does not spin."""


class WaitingRoom:
    """Each waiting request keeps a thread, so that only so many may: the others are answered at once."""

    def __init__(self, service: Service, seats: int) -> None:
        self._service = service
        self._seats = threading.BoundedSemaphore(seats)
        self._closed = False

    def wait(self, operation_id: str, seconds: float) -> Operation:
        """The operation once it is final, or as it is after at most ``seconds``. NotFoundError."""
        operation = self._service.operation(operation_id)
        if operation.final or seconds <= 0:
            return operation
        if not self._seats.acquire(blocking=False):
            return self._service.wait(operation_id, min(seconds, _STANDING_SECONDS))
        try:
            end = time.monotonic() + seconds
            while not operation.final and not self._closed and (left := end - time.monotonic()) > 0:
                operation = self._service.wait(operation_id, min(left, _SLICE_SECONDS))
            return operation
        finally:
            self._seats.release()

    def close(self) -> None:
        """Answer everybody now."""
        self._closed = True
