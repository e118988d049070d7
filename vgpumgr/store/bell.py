"""A bell that is rung whenever events have been committed: who follows them sleeps until then."""

from __future__ import annotations

import threading


class Bell:
    """Counts its strokes, so that one between two waits is not missed."""

    def __init__(self) -> None:
        self._strokes = 0
        self._struck = threading.Condition()

    @property
    def strokes(self) -> int:
        """How often it was rung."""
        with self._struck:
            return self._strokes

    def ring(self) -> None:
        """Wake all who wait."""
        with self._struck:
            self._strokes += 1
            self._struck.notify_all()

    def wait(self, heard: int, seconds: float) -> int:
        """Return once there are more strokes than those ``heard``, or after ``seconds``: how many there are."""
        with self._struck:
            self._struck.wait_for(lambda: self._strokes != heard, seconds)
            return self._strokes
