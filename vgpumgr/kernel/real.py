"""The kernel of the machine this runs on."""

from __future__ import annotations

import errno
import os
import select
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

from vgpumgr.kernel.port import WRITE_DEADLINE, KernelEvent, Watch

if TYPE_CHECKING:
    import subprocess

READ_LIMIT = 1 << 20
_LAST_SECONDS = 1.0
"""How long a writer that was killed may take to go."""
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC

# The writer is a process of its own: a write that hangs in the kernel cannot always be taken back, not even by
# killing, so it must be somebody else who hangs. Its exit status is the errno; it imports nothing but os.
_WRITER = """
import os, sys
path, text = sys.argv[1], os.fsencode(sys.argv[2])
try:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    written = os.write(descriptor, text)
except OSError as error:
    os._exit(error.errno or 5)
os._exit(0 if written == len(text) else 5)
"""


def read_file(path: str, flags: int = 0) -> bytes:
    """At most :data:`READ_LIMIT` bytes of a file; never blocks on a fifo."""
    descriptor = os.open(path, _FLAGS | flags)
    try:
        data = os.read(descriptor, 8192)
        # An attribute comes whole in one read; files of /proc come in pieces and end with an empty one.
        return data if len(data) < 4096 and "/sys/" in path else data + _rest(descriptor, len(data))
    finally:
        os.close(descriptor)


def _rest(descriptor: int, have: int) -> bytes:
    chunks = []
    try:
        while have < READ_LIMIT and (chunk := os.read(descriptor, min(65536, READ_LIMIT - have))):
            chunks.append(chunk)
            have += len(chunk)
    except BlockingIOError:
        # /dev/kmsg would wait for the next message: what there is has been read.
        return b"".join(chunks)
    return b"".join(chunks)


class RealKernel:
    """The live kernel. ``root`` is ``/`` but for tests that mount a kernel's trees elsewhere."""

    def __init__(self, root: str = "/", write_deadline: float = WRITE_DEADLINE) -> None:
        self.root = root
        self.write_deadline = write_deadline
        self._prefix = root.rstrip("/")
        self._hanging: dict[str, subprocess.Popen[bytes]] = {}
        self._guard = threading.Lock()

    @property
    def label(self) -> str:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        return "real"

    @property
    def writable(self) -> bool:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        return True

    def read(self, path: str) -> bytes:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        return read_file(self._prefix + path)

    def list(self, path: str) -> list[str]:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        names = os.listdir(self._prefix + path)
        names.sort()
        return names

    def readlink(self, path: str) -> str:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        return os.readlink(self._prefix + path)

    def exists(self, path: str) -> bool:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        return os.path.exists(self._prefix + path)

    def write(self, path: str, text: str, *, deadline: float | None = None) -> None:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        import subprocess

        writer = self._start(path, text)
        try:
            status = writer.wait(self.write_deadline if deadline is None else deadline)
        except subprocess.TimeoutExpired:
            self._give_up(path, writer)
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), path) from None
        if status:
            code = status if status > 0 else errno.EINTR
            raise OSError(code, os.strerror(code), path)

    def _give_up(self, path: str, writer: subprocess.Popen[bytes]) -> None:
        """End a write that hangs, so that it does not come true after its plan was taken back. One that sleeps
        where no signal reaches it stays; until it is gone, nobody writes there again.
        """
        import subprocess

        writer.kill()
        try:
            writer.wait(_LAST_SECONDS)
        except subprocess.TimeoutExpired:
            with self._guard:
                self._hanging[path] = writer

    def _start(self, path: str, text: str) -> subprocess.Popen[bytes]:
        import subprocess

        with self._guard:
            earlier = self._hanging.get(path)
            if earlier is not None and earlier.poll() is None:
                raise OSError(errno.EBUSY, f"an earlier write (pid {earlier.pid}) still hangs", path)
            self._hanging.pop(path, None)
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WRITER, self._prefix + path, text],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def load_module(self, name: str) -> None:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        if self.exists(f"/sys/module/{name.replace('-', '_')}"):
            return
        from vgpumgr.kernel.modules import load

        load(name)

    @contextmanager
    def watch(self) -> Iterator[Watch]:
        """See :class:`vgpumgr.kernel.port.Kernel`."""
        import pyudev

        monitor = pyudev.Monitor.from_netlink(pyudev.Context())
        for subsystem in ("pci", "mdev"):
            monitor.filter_by(subsystem)
        monitor.start()
        watch = _UdevWatch(monitor)
        try:
            yield watch
        finally:
            watch.close()


class _UdevWatch:
    """udev's events, and a bell of our own beside them."""

    def __init__(self, monitor: Any) -> None:
        self._monitor = monitor
        self._bell: int | None = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._guard = threading.Lock()

    def poll(self, timeout: float | None) -> KernelEvent | None:
        """See :class:`vgpumgr.kernel.port.Watch`."""
        assert self._bell is not None
        end = None if timeout is None else monotonic() + timeout
        poller = select.poll()
        poller.register(self._monitor.fileno(), select.POLLIN)
        poller.register(self._bell, select.POLLIN)
        while ready := dict(poller.poll(None if end is None else max(0.0, end - monotonic()) * 1000)):
            if self._bell in ready:
                os.eventfd_read(self._bell)
                return None
            device = self._monitor.poll(0)
            if device is not None:
                return KernelEvent(
                    device.action or "change", device.subsystem or "", device.sys_name, dict(device.properties)
                )
            # It was of a subsystem that nobody asked for.
        return None

    def wake(self) -> None:
        """See :class:`vgpumgr.kernel.port.Watch`."""
        with self._guard:
            if self._bell is not None:
                os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        """Nobody polls any more; whoever wakes it yet does nothing."""
        with self._guard:
            if self._bell is not None:
                os.close(self._bell)
                self._bell = None
