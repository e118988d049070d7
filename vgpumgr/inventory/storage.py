"""Mounted file systems, swap and stacked devices on the disks behind a function."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from vgpumgr.inventory.block_devices import BlockDevices, node_of
from vgpumgr.inventory.pools import Pools
from vgpumgr.inventory.reader import Reader, clean
from vgpumgr.model.host import Holder

_MOUNTS = ("/proc/1/mountinfo", "/proc/self/mountinfo", "/proc/self/mounts", "/proc/mounts")


class Mount(NamedTuple):
    """A mounted file system: the device number (``259:2``), the source as mounted, and where."""

    number: str
    source: str
    point: str


def find_storage(reader: Reader, disks: BlockDevices) -> list[Holder]:
    """Mounts, swap areas and stacked devices on disks behind functions.

    A stacked device counts as such where nothing is known to be mounted on it or built on it further: whoever put
    it together has the disk, be it LVM, RAID, a cache, or a pool of file systems.
    """
    if not disks.owned:
        return []
    used, pools = _used(reader), Pools(reader)
    holders = []
    for disk, owner in disks.owned:
        for name, chain in disks.stack(disk):
            path = disks.path(name)
            uses = list(used.by_device(reader, name, path))
            if not uses:
                uses = [("block", pool) for pool in pools.of(name, path)]
            if not uses and chain and not disks.above(name):
                uses = [("block", _shown(reader, name, path))]
            detail = clean(" on ".join((name, *reversed(chain))))
            holders += [Holder(kind, clean(where), owner, detail=detail) for kind, where in uses]
    return list(dict.fromkeys(holders))


def _shown(reader: Reader, name: str, path: str) -> str:
    return reader.text(f"{path}/dm/name", "host") or name


class _Used:
    """What is mounted or swapped to, by device number and by device name."""

    def __init__(self, mounts: Iterable[Mount], swaps: Iterable[str]) -> None:
        self._by_number: dict[str, list[str]] = {}
        self._by_name: dict[str, list[str]] = {}
        for mount in mounts:
            self._by_number.setdefault(mount.number, []).append(mount.point)
            # btrfs and others mount under an anonymous number (0:NN): only the source names the disk.
            # bcachefs names all of its disks there.
            if mount.source.startswith("/dev/") and mount.number.startswith(("0:", "?")):
                for source in mount.source.split(":"):
                    self._by_name.setdefault(source.removeprefix("/dev/"), []).append(mount.point)
        self._swaps = {swap.removeprefix("/dev/") for swap in swaps}

    def by_device(self, reader: Reader, name: str, path: str) -> Iterator[tuple[str, str]]:
        """``(kind, where)`` for one block device, under its kernel name and its device-mapper name."""
        number = reader.text(f"{path}/dev", "host")
        mapped = reader.text(f"{path}/dm/name", "host") if name.startswith("dm-") else None
        plain = node_of(name).removeprefix("/dev/")
        names = [plain, f"mapper/{mapped}"] if mapped else [plain]
        points = list(self._by_number.get(number or "", []))
        points += [point for each in names for point in self._by_name.get(each, [])]
        yield from (("mount", point) for point in dict.fromkeys(points))
        yield from (("swap", f"/dev/{each}") for each in names if each in self._swaps)


def _used(reader: Reader) -> _Used:
    swaps = (line.split(None, 1)[0] for line in _lines(reader, "/proc/swaps")[1:] if line.startswith("/dev/"))
    for path in _MOUNTS:
        lines = _lines(reader, path)
        if lines:
            parse = _from_mountinfo if path.endswith("mountinfo") else _from_mounts
            return _Used([mount for line in lines if (mount := parse(line))], swaps)
    return _Used([], swaps)


def _lines(reader: Reader, path: str) -> list[str]:
    try:
        return reader.kernel.read(path).decode("utf-8", "surrogateescape").splitlines()
    except OSError:
        return []


def _from_mountinfo(line: str) -> Mount | None:
    """``36 35 98:0 /root /mnt rw - ext4 /dev/sda1 rw``: number, point, and the source after the dash."""
    fields, _, rest = line.partition(" - ")
    left, right = fields.split(), rest.split()
    if len(left) < 5 or len(right) < 2:
        return None
    return Mount(left[2], _unescape(right[1]), _unescape(left[4]))


def _from_mounts(line: str) -> Mount | None:
    """``/dev/sda1 /mnt ext4 rw 0 0``: no device number, so the source has to do."""
    fields = line.split()
    return Mount("?", _unescape(fields[0]), _unescape(fields[1])) if len(fields) >= 2 else None


def _unescape(text: str) -> str:
    """The kernel writes blanks in paths as ``\\040``."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text
