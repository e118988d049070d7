"""A host in a tar: exactly what the inventory read, for ``--sysfs-root`` to read again elsewhere.

Serial numbers, MAC addresses and GPU UUIDs are left out. Nothing is copied that was not looked at, so what
is in a snapshot can be listed by reading the inventory's code.
"""

from __future__ import annotations

import errno
import io
import os
import posixpath
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import IO

from vgpumgr.inventory.doctor import diagnose
from vgpumgr.inventory.scrub import keep_link, keep_name, scrub, scrub_name
from vgpumgr.inventory.take import take_inventory
from vgpumgr.kernel.port import (
    KERNEL_LOG,
    PCI_DEVICES,
    PCI_DRIVERS,
    Kernel,
    Watch,
    list_or_empty,
    read_text,
)
from vgpumgr.model.host import HostInventory

_KEPT = ("/sys", "/proc", KERNEL_LOG)
_MAX_LINKS = 40

Observer = Callable[[Kernel, HostInventory], object]


class _Witness:
    """A kernel that remembers what was read through it. Read-only, whatever stands behind it."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.files: dict[str, bytes] = {}
        self.links: dict[str, str] = {}
        self.folders: set[str] = set()
        self.names: set[str] = set()
        """Paths that were seen to exist, though nobody read them."""

    @property
    def label(self) -> str:
        """See :class:`Kernel`."""
        return self._kernel.label

    @property
    def writable(self) -> bool:
        """See :class:`Kernel`."""
        return False

    def read(self, path: str) -> bytes:
        """See :class:`Kernel`."""
        data = self.files[path] = self._kernel.read(path)
        return data

    def readlink(self, path: str) -> str:
        """See :class:`Kernel`."""
        target = self.links[path] = self._kernel.readlink(path)
        return target

    def exists(self, path: str) -> bool:
        """See :class:`Kernel`."""
        found = self._kernel.exists(path)
        if found:
            self.names.add(path)
        return found

    def list(self, path: str) -> list[str]:
        """See :class:`Kernel`. A directory that may not be listed still has a parent worth remembering."""
        try:
            names = self._kernel.list(path)
        except PermissionError:
            self.folders.add(path.rpartition("/")[0])
            raise
        self.folders.add(path)
        self.names.update(f"{path}/{name}" for name in names)
        return names

    def write(self, path: str, text: str, *, deadline: float | None = None) -> None:
        """See :class:`Kernel`: raises ``EROFS``."""
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    def load_module(self, name: str) -> None:
        """See :class:`Kernel`: raises ``EROFS``."""
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), name)

    def watch(self) -> AbstractContextManager[Watch]:
        """See :class:`Kernel`."""
        return self._kernel.watch()


def write_snapshot(kernel: Kernel, file: IO[bytes], *, observers: Iterable[Observer] = ()) -> HostInventory:
    """Take the inventory and the doctor's look, and write what they read to ``file`` as a gzipped tar.

    ``observers`` are further readers whose sources belong in the snapshot (vGPU profiles and instances).
    Returns the inventory taken. Raises OSError when ``file`` cannot be written.
    """
    witness = _Witness(kernel)
    inventory = take_inventory(witness)
    diagnose(witness, inventory)
    for observe in (_look_for_binding, *observers):
        observe(witness, inventory)
    with tarfile.open(fileobj=file, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        for member, content in _members(witness):
            tar.addfile(member, content)
    return inventory


def _look_for_binding(kernel: Kernel, inventory: HostInventory) -> None:
    """Read what a plan to bind starts from, so that it can be shown on the snapshot too."""
    list_or_empty(kernel, PCI_DRIVERS)
    for gpu in inventory.gpus:
        for address in (gpu.address, *(companion.address for companion in gpu.companions)):
            for attribute in ("class", "modalias", "driver_override"):
                read_text(kernel, f"{PCI_DEVICES}/{address}/{attribute}")


def _members(witness: _Witness) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Folders, then files and links, in the order of their paths; each path once, at its real place."""
    entries: dict[str, bytes | str | None] = dict.fromkeys(
        scrub_name(_real(path, witness.links)) for path in witness.folders
    )
    for path, target in witness.links.items():
        if keep_link(path, target):
            entries[scrub_name(_real_parent(path, witness.links))] = scrub_name(target)
    for path, data in witness.files.items():
        entries[scrub_name(_real(path, witness.links))] = scrub(path, data)
    for path in witness.names:
        if keep_name(path):
            entries.setdefault(scrub_name(_real_parent(path, witness.links)), b"")
    parents = {parent for path in entries for parent in _parents(path)}
    for path in sorted(parents.union(entries)):
        if path.startswith(_KEPT):
            yield _member(path, None if path in parents else entries[path])


def _member(path: str, content: bytes | str | None) -> tuple[tarfile.TarInfo, IO[bytes] | None]:
    """One member: a folder (``None``), a link (text) or a file (bytes). The same host gives the same bytes."""
    member = tarfile.TarInfo(path.lstrip("/"))
    member.mode = 0o644
    if content is None:
        member.type, member.mode = tarfile.DIRTYPE, 0o755
        return member, None
    if isinstance(content, str):
        member.type, member.linkname = tarfile.SYMTYPE, content
        return member, None
    member.size = len(content)
    return member, io.BytesIO(content)


def _real(path: str, links: Mapping[str, str], depth: int = 0) -> str:
    """Where a path leads when the links that were read are followed: ``bus/pci/devices/X`` is a link."""
    done = ""
    parts = path.strip("/").split("/")
    for index, part in enumerate(parts):
        step = f"{done}/{part}"
        target = links.get(step)
        if target is not None and depth < _MAX_LINKS:
            aim = target if target.startswith("/") else f"{done}/{target}"
            return _real(posixpath.normpath("/".join((aim, *parts[index + 1 :]))), links, depth + 1)
        done = step
    return done


def _real_parent(path: str, links: Mapping[str, str]) -> str:
    """The same without following the last part, which may be a link that is wanted as such."""
    parent, _, name = path.rpartition("/")
    return f"{_real(parent, links)}/{name}"


def _parents(path: str) -> Iterator[str]:
    parent = path.rpartition("/")[0]
    while parent:
        yield parent
        parent = parent.rpartition("/")[0]
