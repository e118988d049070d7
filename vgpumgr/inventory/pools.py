"""File systems that span disks: the mount table names one of their disks at most."""

from __future__ import annotations

from collections.abc import Sequence

from vgpumgr.inventory.reader import Reader

_BTRFS = "/sys/fs/btrfs"
_ZFS_POOLS = "/proc/spl/kstat/zfs"
_ZFS_MEMBER = "E:ID_FS_TYPE=zfs_member"
_ZFS_PARTITION = "PARTNAME=zfs-"


class Pools:
    """What is mounted or imported on more than one disk."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._btrfs = _btrfs_members(reader)
        self._zfs = tuple(name for name in reader.names(_ZFS_POOLS, "host") if _is_pool(reader, name))

    def of(self, name: str, path: str) -> Sequence[str]:
        """The pools that use a block device. ZFS does not tell which: any that is imported may be the one."""
        found = list(self._btrfs.get(name, ()))
        if self._zfs and self._is_zfs_member(path):
            found.append(f"zfs pool {' or '.join(self._zfs)}")
        return found

    def _is_zfs_member(self, path: str) -> bool:
        """By what udev found on the device, or by the name that ZFS gives to partitions it makes."""
        if _ZFS_PARTITION in (self._reader.text(f"{path}/uevent", "host") or ""):
            return True
        number = self._reader.text(f"{path}/dev", "host")
        known = self._reader.text(f"/run/udev/data/b{number}", "host") if number else None
        return _ZFS_MEMBER in (known or "").splitlines()


def _is_pool(reader: Reader, name: str) -> bool:
    """Pools are folders among the statistics of ZFS itself."""
    return bool(reader.names(f"{_ZFS_POOLS}/{name}", "host"))


def _btrfs_members(reader: Reader) -> dict[str, list[str]]:
    """Devices of btrfs file systems that are mounted, by name."""
    members: dict[str, list[str]] = {}
    for uuid in reader.names(_BTRFS, "host"):
        for name in reader.names(f"{_BTRFS}/{uuid}/devices", "host"):
            members.setdefault(name, []).append(f"btrfs {uuid}")
    return members
