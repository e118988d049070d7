"""What the kernel logs while a driver is asked for something: the reason behind a bare errno."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from vgpumgr.kernel.port import KERNEL_LOG, Kernel

MOST_LINES = 5
"""Lines that are kept; the rest is in the log."""
_RECORD = 8192

Said = Callable[[], Sequence[str]]


class KernelLog:
    """The log of one host. This one is of a host whose log cannot be read: it never says anything."""

    @contextmanager
    def follow(self) -> Iterator[Said]:
        """From here on, calling what this gives returns the messages that were logged since, the last ones."""
        yield list


class DeviceLog(KernelLog):
    """This machine's log, from ``/dev/kmsg``; silent for a caller who may not read it."""

    def __init__(self, path: str = KERNEL_LOG) -> None:
        self._path = path

    @contextmanager
    def follow(self) -> Iterator[Said]:
        """See :class:`KernelLog`."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            yield list
            return
        try:
            os.lseek(descriptor, 0, os.SEEK_END)
            yield lambda: _records(descriptor)[-MOST_LINES:]
        finally:
            os.close(descriptor)


def _records(descriptor: int) -> list[str]:
    """One record a read; EAGAIN at the end, EPIPE where records were overwritten meanwhile."""
    found = []
    for _ in range(1000):
        try:
            record = os.read(descriptor, _RECORD)
        except BrokenPipeError:
            continue
        except OSError:
            break
        if not record:
            break
        text = record.decode("utf-8", "replace").partition(";")[2]
        found.append(text.splitlines()[0] if text else "")
    return [line for line in found if line]


def open_log(kernel: Kernel) -> KernelLog:
    """The log of the host a kernel belongs to: this machine's, a simulated host's own, none for a recording."""
    if kernel.label.startswith("simulated:"):
        from vgpumgr.kernel.simulated.log import SimulatedLog

        return SimulatedLog(kernel)
    return DeviceLog() if kernel.writable else KernelLog()
