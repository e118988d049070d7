"""Mounted file systems and swap on the disks behind a function, through whatever is stacked on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from vgpumgr.inventory.reader import Reader, clean
from vgpumgr.model.host import Holder

_BLOCK = "/sys/class/block"
_WHOLE_DISKS = "/sys/block"
_MOUNTS = ("/proc/1/mountinfo", "/proc/self/mountinfo", "/proc/self/mounts", "/proc/mounts")
_SUBSYSTEM = "nvme-subsystem"
_MAX_STACK = 16


class Mount(NamedTuple):
    """A mounted file system: the device number (``259:2``), the source as mounted, and where."""

    number: str
    source: str
    point: str


class _Disk(NamedTuple):
    """A block device: its directory in sysfs, and the text of the link that says where it hangs."""

    path: str
    place: str


def find_storage(reader: Reader, addresses: set[str]) -> list[Holder]:
    """Mounts and swap areas on disks behind the given functions."""
    disks = _disks(reader)
    owned = {name: owner for name, disk in disks.items() for owner in _owners(reader, disk.place, addresses)}
    if not owned:
        return []
    used = _used(reader)
    holders = []
    for disk, owner in sorted(owned.items()):
        for name, chain in _stack(reader, disk, disks):
            for kind, where in used.by_device(reader, name, disks[name].path):
                detail = " on ".join((name, *reversed(chain)))
                holders.append(Holder(kind, clean(where), owner, detail=clean(detail)))
    return list(dict.fromkeys(holders))


def _disks(reader: Reader) -> dict[str, _Disk]:
    """Block devices by name, partitions too. A recording may have only ``/sys/block``, partitions inside."""
    disks = {name: _disk(reader, f"{_BLOCK}/{name}") for name in reader.names(_BLOCK, "host")}
    if disks:
        return disks
    for name in reader.names(_WHOLE_DISKS, "host"):
        disk = disks[name] = _disk(reader, f"{_WHOLE_DISKS}/{name}")
        for child in reader.names(disk.path, "host"):
            if child.startswith(name):
                disks[child] = _Disk(f"{disk.path}/{child}", disk.place)
    return disks


def _disk(reader: Reader, path: str) -> _Disk:
    return _Disk(path, reader.link(path) or "")


def _owners(reader: Reader, path: str, addresses: set[str]) -> Iterator[str]:
    """The watched functions under a disk; a multipath NVMe disk hangs on its subsystem, not on a function."""
    parts = path.split("/")
    yield from (part for part in parts if part in addresses)
    if _SUBSYSTEM in parts[:-1]:
        subsystem = parts[parts.index(_SUBSYSTEM) + 1]
        for controller in reader.names(f"/sys/class/{_SUBSYSTEM}/{subsystem}", "host"):
            if controller.startswith("nvme"):
                place = reader.link(f"/sys/class/nvme/{controller}") or ""
                yield from (part for part in place.split("/") if part in addresses)


def _stack(reader: Reader, disk: str, disks: Mapping[str, _Disk]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The disk itself and everything built on it, each with what lies under it."""
    seen = {disk}
    todo: list[tuple[str, tuple[str, ...]]] = [(disk, ())]
    while todo:
        name, below = todo.pop()
        yield name, below
        if len(below) < _MAX_STACK:
            for upper in reader.names(f"{disks[name].path}/holders", "host"):
                if upper not in seen and upper in disks:
                    seen.add(upper)
                    todo.append((upper, (*below, name)))


class _Used:
    """What is mounted or swapped to, by device number and by device name."""

    def __init__(self, mounts: Iterable[Mount], swaps: Iterable[str]) -> None:
        self._by_number: dict[str, list[str]] = {}
        self._by_name: dict[str, list[str]] = {}
        for mount in mounts:
            self._by_number.setdefault(mount.number, []).append(mount.point)
            # btrfs and others mount under an anonymous number (0:NN): only the source names the disk.
            if mount.source.startswith("/dev/") and mount.number.startswith(("0:", "?")):
                self._by_name.setdefault(mount.source.removeprefix("/dev/"), []).append(mount.point)
        self._swaps = {swap.removeprefix("/dev/") for swap in swaps}

    def by_device(self, reader: Reader, name: str, path: str) -> Iterator[tuple[str, str]]:
        """``(kind, where)`` for one block device, under its kernel name and its device-mapper name."""
        number = reader.text(f"{path}/dev", "host")
        mapped = reader.text(f"{path}/dm/name", "host") if name.startswith("dm-") else None
        names = [name, f"mapper/{mapped}"] if mapped else [name]
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
