"""The kernel port: what the rest of the project may ask of a Linux kernel.

Paths are kernel paths as text (``/sys/bus/pci/devices/0000:3b:00.0/vendor``), whatever tree stands behind
them. Every method raises :class:`OSError` with the errno that Linux gives; nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import NamedTuple, Protocol

WRITE_DEADLINE = 30.0
"""Seconds a write may take before it is given up and its device's holders are named."""

PCI_DEVICES = "/sys/bus/pci/devices"
PCI_DRIVERS = "/sys/bus/pci/drivers"
IOMMU_GROUPS = "/sys/kernel/iommu_groups"
MDEV_DEVICES = "/sys/bus/mdev/devices"
MDEV_PARENTS = "/sys/class/mdev_bus"
KERNEL_LOG = "/dev/kmsg"


class KernelEvent(NamedTuple):
    """A hot-plug event: ``action`` is add, remove, change, bind or unbind; ``name`` the address or UUID."""

    action: str
    subsystem: str
    name: str
    properties: Mapping[str, str] = MappingProxyType({})


class Watch(Protocol):
    """An open subscription to kernel events."""

    def poll(self, timeout: float | None) -> KernelEvent | None:
        """The next event; ``None`` when ``timeout`` seconds passed without one, or somebody called :meth:`wake`.

        Without a ``timeout`` it waits as long as it takes. Raises OSError: ENOBUFS when so many events came at once
        that some were lost.
        """
        ...

    def wake(self) -> None:
        """End the :meth:`poll` that waits, or else the next one, at once. For any thread, at any time."""
        ...


class Kernel(Protocol):
    """One host's kernel: real, recorded or simulated."""

    @property
    def label(self) -> str:
        """What a person should read: ``real``, ``recorded:/path`` or ``simulated:vdi-a40``."""
        ...

    @property
    def writable(self) -> bool:
        """False for a recording: every write would raise ``EROFS``."""
        ...

    def read(self, path: str) -> bytes:
        """The content of one attribute; at most 1 MiB of a larger file.

        Raises OSError: ENOENT, EACCES, EISDIR, ELOOP, EIO, ENXIO, as the kernel does.
        """
        ...

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted as text. Raises OSError (ENOENT, ENOTDIR, EACCES)."""
        ...

    def readlink(self, path: str) -> str:
        """The text of a symbolic link; its target need not exist. Raises OSError (ENOENT, EINVAL)."""
        ...

    def exists(self, path: str) -> bool:
        """True when the path exists (a dangling link does not). Never raises for a path that cannot be read."""
        ...

    def write(self, path: str, text: str, *, deadline: float | None = None) -> None:
        """Write ``text`` in one ``write(2)`` to an existing attribute.

        Runs aside with a ``deadline`` in seconds (``None``: the one that the kernel was opened with), so a write
        that hangs in the kernel does not hang the caller.
        Raises OSError with the kernel's errno, ETIMEDOUT when the deadline passed (the write may still
        come to its end later), EROFS on a recording, EBUSY while an earlier write to the same path hangs.
        """
        ...

    def load_module(self, name: str) -> None:
        """Make a driver module available (``modprobe``); no-op when it is. Raises OSError (ENOENT when unknown)."""
        ...

    def watch(self) -> AbstractContextManager[Watch]:
        """Subscribe to PCI and mdev events until the context ends."""
        ...


def read_text(kernel: Kernel, path: str) -> str | None:
    """An attribute as stripped text, or ``None`` when it cannot be read: unknown is a value of its own."""
    try:
        return kernel.read(path).decode("utf-8", "replace").strip()
    except OSError:
        return None


def list_or_empty(kernel: Kernel, path: str) -> list[str]:
    """The names in a directory, or none when there is no such directory or it cannot be read."""
    try:
        return kernel.list(path)
    except OSError:
        return []


def link_name(kernel: Kernel, path: str) -> str | None:
    """The last part of a link's text (a driver's or a group's name), or ``None`` when there is no link."""
    try:
        return kernel.readlink(path).rstrip("/").rpartition("/")[2]
    except OSError:
        return None


def follow(kernel: Kernel, path: str) -> Iterator[str]:
    """The names along a link's text, without ``.`` and ``..``: a device's ancestors, outermost first."""
    try:
        target = kernel.readlink(path)
    except OSError:
        return
    yield from (part for part in target.split("/") if part not in ("", ".", ".."))
