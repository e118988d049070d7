"""Things that go wrong on purpose: writes that fail, hang, or silently do nothing."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from enum import StrEnum


class Mishap(StrEnum):
    """What happens to a write."""

    FAIL = "fail"
    HANG = "hang"
    IGNORE = "ignore"


@dataclass
class Fault:
    """A mishap for writes whose path (or whose text) matches ``pattern``; ``times`` counts down, -1 is for ever."""

    pattern: re.Pattern[str]
    mishap: Mishap
    errno: int = 0
    times: int = -1


class Faults:
    """The mishaps to come, looked up by each write."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._guard = threading.Lock()

    def add(self, pattern: str, mishap: Mishap, *, errno: int = 0, times: int = -1) -> None:
        """From now on, writes to ``"PATH TEXT"`` that match the regular expression meet the mishap."""
        with self._guard:
            self._faults.append(Fault(re.compile(pattern), mishap, errno, times))

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        with self._guard:
            self._faults.clear()

    def next(self, path: str, text: str) -> Fault | None:
        """The mishap that this write meets, used up by one."""
        with self._guard:
            for fault in self._faults:
                if fault.times != 0 and fault.pattern.search(f"{path} {text.strip()}"):
                    fault.times -= 1 if fault.times > 0 else 0
                    return fault
        return None
