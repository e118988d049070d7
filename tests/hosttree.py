"""Builds small trees of /sys and /proc for tests, and reads them as a kernel would."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from vgpumgr.kernel.port import PCI_DEVICES

PLAIN_CONFIG = bytes.fromhex("de103522") + bytes(60)
VF_CONFIG = b"\xff" * 4 + bytes(60)
DEAD_CONFIG = b"\xff" * 64


class TreeKernel:
    """A tree on disk behind the kernel port, for reading only. ``denied`` paths answer EACCES."""

    label = "tree"
    writable = False

    def __init__(self, root: Path, denied: frozenset[str] = frozenset()) -> None:
        self._root = str(root)
        self._denied = denied
        self.opened: list[str] = []

    def _path(self, path: str) -> str:
        if path in self._denied:
            raise PermissionError(13, "Permission denied", path)
        return self._root + path

    def read(self, path: str) -> bytes:
        self.opened.append(path)
        descriptor = os.open(self._path(path), os.O_RDONLY)
        try:
            return os.read(descriptor, 1 << 20)
        finally:
            os.close(descriptor)

    def list(self, path: str) -> list[str]:
        self.opened.append(path)
        return sorted(os.listdir(self._path(path)))

    def readlink(self, path: str) -> str:
        return os.readlink(self._path(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(self._root + path)


class HostTree:
    """A host under construction. Every method adds one thing and can be called again for another."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._places: dict[str, str] = {}
        self._vfs: dict[str, int] = {}
        (root / "sys/bus/pci/devices").mkdir(parents=True)

    def kernel(self, *denied: str) -> TreeKernel:
        return TreeKernel(self.root, frozenset(denied))

    def file(self, path: str, content: str | bytes) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)

    def link(self, path: str, target: str) -> None:
        """A link; an absolute target in /sys or /proc is made relative, as the kernel would."""
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if target.startswith("/sys/"):
            target = os.path.relpath(target, os.path.dirname(path))
        place.symlink_to(target)

    def folder(self, path: str) -> None:
        (self.root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def iommu(self, unit: str = "dmar0") -> None:
        self.folder(f"/sys/devices/virtual/iommu/{unit}")
        self.link(f"/sys/class/iommu/{unit}", f"/sys/devices/virtual/iommu/{unit}")

    def function(
        self,
        address: str,
        class_id: str,
        ids: str,
        driver: str | None = None,
        group: int | None = None,
        *,
        parent: str | None = None,
        physfn: str | None = None,
        config: bytes | None = PLAIN_CONFIG,
        **attributes: str,
    ) -> str:
        """A PCI function; returns its real directory. ``attributes`` are further files by name."""
        domain_bus = address.rsplit(":", 1)[0]
        above = self._places[parent] if parent else f"/sys/devices/pci{domain_bus}"
        place = self._places[address] = f"{above}/{address}"
        vendor, device = ids.split(":")
        self.file(f"{place}/class", f"0x{class_id}\n")
        self.file(f"{place}/vendor", f"0x{vendor}\n")
        self.file(f"{place}/device", f"0x{device}\n")
        self.file(f"{place}/numa_node", "0\n")
        self.file(f"{place}/uevent", f"PCI_CLASS={int(class_id, 16):X}\nPCI_ID={vendor.upper()}:{device.upper()}\n")
        if config is not None:
            self.file(f"{place}/config", config)
        for name, text in attributes.items():
            self.file(f"{place}/{name}", text + "\n")
        self.link(f"{PCI_DEVICES}/{address}", place)
        if driver is not None:
            self.link(f"/sys/bus/pci/drivers/{driver}/{address}", place)
            self.link(f"{place}/driver", f"/sys/bus/pci/drivers/{driver}")
        if group is not None:
            self.member(group, address, place)
        if physfn is not None:
            self.link(f"{place}/physfn", self._places.get(physfn, f"{above}/{physfn}"))
            index = self._vfs[physfn] = self._vfs.get(physfn, -1) + 1
            if physfn in self._places:
                self.link(f"{self._places[physfn]}/virtfn{index}", place)
        return place

    def member(self, group: int, name: str, place: str) -> None:
        """A member of an IOMMU group, PCI function or not."""
        home = f"/sys/kernel/iommu_groups/{group}"
        self.link(f"{home}/devices/{name}", place)
        self.link(f"{place}/iommu_group", home)

    def process(self, pid: int, name: str, *opened: str) -> None:
        """A process with open files."""
        self.file(f"/proc/{pid}/comm", f"{name}\n")
        self.folder(f"/proc/{pid}/fd")
        for number, target in enumerate(opened):
            self.link(f"/proc/{pid}/fd/{number}", target)

    def files(self, contents: Mapping[str, str]) -> None:
        for path, content in contents.items():
            self.file(path, content)
