"""Watches a host: GPUs and vGPUs that come and go, and allocations that lose a device, become events.

What the kernel says only tells when to look. What is written is the difference between two looks, so that a message
that is lost, comes late or comes in a burst makes no false event. While the kernel is silent, the watcher sleeps.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

from vgpumgr.allocations.missing import missing_of
from vgpumgr.allocations.presence import Presence, news, see
from vgpumgr.allocations.states import LIVE
from vgpumgr.kernel.port import Kernel, Watch
from vgpumgr.model.allocation import AllocatedDevice, Allocation, AllocationState
from vgpumgr.model.event import EventType, Happening
from vgpumgr.store.events import Events

SETTLE_SECONDS, LONGEST_SECONDS = 0.1, 1.0
"""A burst of events is over after so long a silence; a look is taken after so long in any case."""
AGAIN_SECONDS = 1.0
"""When to look again at what was changed by somebody else while it was looked at."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
STOP_SECONDS = 10.0
"""How long a look in progress is waited for."""

log = logging.getLogger(__name__)


class Watcher:
    """Takes its first look when it is made. ``live`` gives all allocations in certain states."""

    def __init__(
        self,
        kernel: Kernel,
        events: Events,
        live: Callable[[Sequence[AllocationState]], Iterator[Allocation]],
    ) -> None:
        self._kernel, self._events, self._live = kernel, events, live
        self._guard = threading.Lock()
        self._stopping = threading.Event()
        self._watch: Watch | None = None
        self._thread: threading.Thread | None = None
        self._pause = FIRST_PAUSE
        self._before: Presence | None = None
        try:
            self._before = see(kernel, None)
        except Exception:
            log.exception("the host could not be looked at; what came and went until the next look stays untold")

    def start(self) -> None:
        """Watch from now on; what has changed since the first look is told at once."""
        with self._guard:
            if not self._stopping.is_set():
                self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Watch no more."""
        with self._guard:
            self._stopping.set()
            if self._watch is not None:
                self._watch.wake()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with self._kernel.watch() as watch, self._wakeable(watch):
                    self._follow(watch)
            except Exception:
                # Whatever it was, hot-plug must not stay unseen for ever: everything is looked at anew.
                log.exception("the host could not be watched; trying again in %.0f s", self._pause)
                self._stopping.wait(self._pause)
                self._pause = min(2 * self._pause, LONGEST_PAUSE)

    @contextmanager
    def _wakeable(self, watch: Watch) -> Iterator[None]:
        with self._guard:
            self._watch = watch
        try:
            yield
        finally:
            with self._guard:
                self._watch = None

    def _follow(self, watch: Watch) -> None:
        """Look once, for what happened before the kernel was listened to; then whenever it says something."""
        settled = self._look()
        while not self._stopping.is_set():
            event = watch.poll(None if settled else AGAIN_SECONDS)
            if event is not None and event.action not in ("add", "remove"):
                continue
            if event is not None:
                _settle(watch)
            if not self._stopping.is_set():
                settled = self._look()

    def _look(self) -> bool:
        """Write down what is new. Returns whether that was all, or somebody changed something meanwhile."""
        now = see(self._kernel, self._before)
        if self._before is not None:
            self._events.append(news(self._before, now))
        self._before = now
        settled = self._look_at_allocations()
        self._pause = FIRST_PAUSE
        return settled

    def _look_at_allocations(self) -> bool:
        told = self._events.told_missing()
        settled = True
        for allocation in self._live(_COUNTED_ON):
            found = devices_news(self._kernel, allocation, told.get(allocation.id, frozenset()))
            if found and not self._events.append_of_allocation(allocation.id, allocation.generation, found):
                settled = False
        return settled


_COUNTED_ON = tuple(LIVE - {AllocationState.RELEASING})
"""Of one that is being released, devices go because that is what is being done."""


def _settle(watch: Watch) -> None:
    """Let a burst of events pass by."""
    end = monotonic() + LONGEST_SECONDS
    while (left := end - monotonic()) > 0 and watch.poll(min(SETTLE_SECONDS, left)) is not None:
        continue


def devices_news(kernel: Kernel, allocation: Allocation, told: frozenset[str]) -> list[Happening]:
    """What has gone missing of an allocation's devices, and what is back of those ``told`` to be missing."""
    missing = {reason.addresses[0]: reason for reason in missing_of(kernel, allocation)}
    here = {name for device in allocation.devices for name in _names(device)}
    gone = [
        _happening(EventType.DEVICE_MISSING, allocation, device, reason.message)
        for device, reason in missing.items()
        if device not in told
    ]
    back = [
        _happening(EventType.DEVICE_BACK, allocation, device, f"{device} is allocated and on this host again")
        for device in sorted(told & here - set(missing))
    ]
    return gone + back


def _names(device: AllocatedDevice) -> Iterator[str]:
    yield from (device.gpu, *device.companions)
    if device.handle is not None:
        yield device.handle


def _happening(kind: EventType, allocation: Allocation, device: str, message: str) -> Happening:
    data = {"vm": allocation.vm, "generation": allocation.generation, "device": device}
    return Happening(kind, allocation.id, message, data, allocation.tenant, allocation.id)
