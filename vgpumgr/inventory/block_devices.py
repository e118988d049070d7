"""Block devices of the host: which hang on which function, and what is built on them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from vgpumgr.inventory.reader import Reader

_BLOCK = "/sys/class/block"
_WHOLE_DISKS = "/sys/block"
_SUBSYSTEM = "nvme-subsystem"
_CHARACTER = {"nvme": "", "nvme-generic": "", "scsi_generic": "", "scsi_tape": "", "bsg": "bsg/"}
"""Classes whose nodes reach a disk past its block device, and the folder of their nodes below /dev."""
_MAX_STACK = 16


class Disk(NamedTuple):
    """A block device: its directory in sysfs, and the text of the link that says where it hangs."""

    path: str
    place: str


class BlockDevices:
    """The host's block devices, as seen from some functions. Partitions are devices of their own."""

    def __init__(self, reader: Reader, addresses: set[str]) -> None:
        self._reader = reader
        self._addresses = addresses
        self._disks = _disks(reader) if addresses else {}
        owned = {(name, owner) for name, disk in self._disks.items() for owner in self._owners(disk.place)}
        self.owned = tuple(sorted(owned))
        """Names of devices that hang on a function, each with the function's address; on two functions: twice."""

    def path(self, name: str) -> str:
        """A device's directory in sysfs; one that is only known as a holder of another need not have it."""
        disk = self._disks.get(name)
        return disk.path if disk is not None else f"{_BLOCK}/{name}"

    def _owners(self, place: str) -> Iterator[str]:
        """The functions under a device; a multipath NVMe disk hangs on its subsystem, not on a function."""
        parts = place.split("/")
        yield from (part for part in parts if part in self._addresses)
        if _SUBSYSTEM in parts[:-1]:
            subsystem = parts[parts.index(_SUBSYSTEM) + 1]
            for controller in self._reader.names(f"/sys/class/{_SUBSYSTEM}/{subsystem}", "host"):
                if controller.startswith("nvme"):
                    below = self._reader.link(f"/sys/class/nvme/{controller}") or ""
                    yield from (part for part in below.split("/") if part in self._addresses)

    def stack(self, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        """A device and everything built on it, each with what lies under it."""
        seen = {name}
        todo: list[tuple[str, tuple[str, ...]]] = [(name, ())]
        while todo:
            name, below = todo.pop()
            yield name, below
            if len(below) < _MAX_STACK:
                uppers = [upper for upper in self.above(name) if upper not in seen]
                seen.update(uppers)
                todo += [(upper, (*below, name)) for upper in uppers]

    def above(self, name: str) -> list[str]:
        """What is built straight on a device: mapped devices, RAIDs, caches, loop devices."""
        held = self._reader.names(f"{self.path(name)}/holders", "host")
        return [*held, *self._loops.get(node_of(name), ())]

    @cached_property
    def _loops(self) -> dict[str, list[str]]:
        """Loop devices by what they stand on: the kernel has that open itself, and no process shows it."""
        found: dict[str, list[str]] = {}
        for name, disk in self._disks.items():
            backing = (
                self._reader.text(f"{disk.path}/loop/backing_file", "host") if name.startswith("loop") else None
            )
            if backing is not None:
                found.setdefault(backing, []).append(name)
        return found

    def nodes(self) -> Iterator[tuple[str, str]]:
        """Device nodes through which a disk of a function is reached, each with the function's address."""
        for name, owner in self.owned:
            yield from ((node_of(device), owner) for device, _ in self.stack(name))
        for kind, folder in _CHARACTER.items():
            for name in self._reader.names(f"/sys/class/{kind}", "host") if self._addresses else ():
                place = self._reader.link(f"/sys/class/{kind}/{name}") or ""
                yield from ((node_of(folder + name), owner) for owner in self._owners(place))


def node_of(name: str) -> str:
    """The node of a device; sysfs writes ``!`` for a slash in a name."""
    return "/dev/" + name.replace("!", "/")


def _disks(reader: Reader) -> dict[str, Disk]:
    """Block devices by name, partitions too. A recording may have only ``/sys/block``, partitions inside."""
    disks = {name: _disk(reader, f"{_BLOCK}/{name}") for name in reader.names(_BLOCK, "host")}
    if disks:
        return disks
    for name in reader.names(_WHOLE_DISKS, "host"):
        disk = disks[name] = _disk(reader, f"{_WHOLE_DISKS}/{name}")
        for child in reader.names(disk.path, "host"):
            if child.startswith(name):
                disks[child] = Disk(f"{disk.path}/{child}", disk.place)
    return disks


def _disk(reader: Reader, path: str) -> Disk:
    return Disk(path, reader.link(path) or "")
