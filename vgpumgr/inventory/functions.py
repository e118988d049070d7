"""Every PCI function of the host, with as few reads as will do: a link, ``uevent``, ``numa_node``, ``driver``.

A host has hundreds of functions and few different models, drivers, buses and NUMA nodes: what a text means is
worked out once and remembered.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from vgpumgr import address
from vgpumgr.inventory.classes import gpu_kind, is_network, is_vfio_driver
from vgpumgr.inventory.reader import Reader, clean, whole
from vgpumgr.kernel.port import MDEV_PARENTS, PCI_DEVICES
from vgpumgr.model.pci import PciFunction

_MAX_NODES = 1024
"""Linux counts NUMA nodes below 2**10; a larger number is nonsense."""

_UP = "../../../devices/"
_IDS = re.compile(r"([0-9a-f]{1,6})\npci_id=([0-9a-f]{4}):([0-9a-f]{4})(?:\n|$)")
_IDS_LENGTH = len(b"FFFFFF\nPCI_ID=FFFF:FFFF\n")


def read_functions(reader: Reader, group_of: dict[str, int]) -> dict[str, PciFunction]:
    """All functions by address, in bus order. ``group_of`` is what the group directories said."""
    return _Pass(reader, group_of).run()


class _Identity(NamedTuple):
    """What a function is; ``concerned``: a GPU or a NIC, of which more is asked than of others."""

    class_id: str | None
    vendor_id: str | None
    device_id: str | None
    concerned: bool
    gpu_like: bool


class _Parent(NamedTuple):
    """What the functions on one bus have in common: where they lie, and the functions above them."""

    place: str
    bridges: tuple[str, ...]


def _judged(class_id: str | None, vendor: str | None, device: str | None) -> _Identity:
    gpu_like = gpu_kind(class_id, vendor, device) is not None
    return _Identity(class_id, vendor, device, gpu_like or is_network(class_id), gpu_like)


class _Pass:
    """One pass over the functions."""

    def __init__(self, reader: Reader, group_of: dict[str, int]) -> None:
        self._reader = reader
        self._kernel = reader.kernel
        self._group_of = group_of

    def run(self) -> dict[str, PciFunction]:
        names = self._reader.names(PCI_DEVICES, "host")
        if not names:
            self._reader.warn("no-pci-functions", f"{PCI_DEVICES} holds nothing: is this a host's /sys?", "host")
        # A fragment of a recording may hold a parent of mediated devices and nothing else of it.
        parents = self._reader.names(MDEV_PARENTS, "host")
        names = sorted({*names, *filter(address.is_address, parents)}) if parents else names
        # A wider domain is a longer name, and names of one length sort as their numbers do.
        names.sort(key=len)
        functions = {}
        for name in names:
            if address.is_address(name):
                functions[name] = self._function(name)
            else:
                self._reader.warn("not-an-address", f"{PCI_DEVICES}/{name} is not named as a PCI function", name)
        return functions

    def _function(self, name: str) -> PciFunction:
        base, bridges = self._place(name)
        class_id, vendor, device, concerned, gpu_like = self._identity(base, name)
        driver, vfio = self._driver(base)
        group = self._group_of.get(name)
        if group is None:
            group = _group_from_link(self._reader, base, name)
        physfn = None
        if concerned:
            physfn = _physical_function(self._reader, base, name)
            vfio = vfio or (gpu_like and driver is not None and self._kernel.exists(f"{base}/vfio-dev"))
        node = self._numa_node(base, name)
        return PciFunction(name, class_id, vendor, device, driver, group, node, bridges, physfn, vfio)

    def _place(self, name: str) -> tuple[str, tuple[str, ...]]:
        """Where to read of a function, and the functions above it: both from the text of its link.

        The link's target spares the kernel a detour at every read.
        """
        try:
            above, _, last = self._kernel.readlink(f"{PCI_DEVICES}/{name}").rpartition("/")
        except OSError:
            return f"{PCI_DEVICES}/{name}", ()
        parent = _parent(above)
        if last != name:
            return f"{PCI_DEVICES}/{name}", parent.bridges
        return f"{parent.place}/{name}", parent.bridges

    def _identity(self, base: str, name: str) -> _Identity:
        """Class, vendor and device: one read of ``uevent``; attribute by attribute where that does not tell."""
        try:
            text = b"\n" + self._kernel.read(f"{base}/uevent")
        except OSError:
            return _judged(*_identity_by_attributes(self._reader, base, name))
        written = text.partition(b"\nPCI_CLASS=")[2][:_IDS_LENGTH]
        return _identity_of(written) or _judged(*_identity_by_attributes(self._reader, base, name))

    def _driver(self, base: str) -> tuple[str | None, bool]:
        """The driver's name, and whether it is a VFIO driver's."""
        try:
            target = self._kernel.readlink(f"{base}/driver")
        except OSError:
            return None, False
        return _driver_of(target)

    def _numa_node(self, base: str, name: str) -> int | None:
        try:
            data = self._kernel.read(f"{base}/numa_node")
        except OSError as error:
            self._reader.unreadable(error, f"{base}/numa_node", name)
            return None
        node = _whole(data)
        if node is None or node >= _MAX_NODES:
            self._reader.malformed(f"{base}/numa_node", data.decode("utf-8", "replace").strip(), name)
            return None
        return node if node >= 0 else None


@lru_cache(maxsize=1024)
def _identity_of(written: bytes) -> _Identity | None:
    """From ``30200\\nPCI_ID=10DE:2235`` and whatever follows; ``None`` when it is no such text."""
    found = _IDS.match(written.decode("latin-1").lower())
    if found is None:
        return None
    class_id, vendor, device = found.groups()
    return _judged(class_id.rjust(6, "0"), vendor, device)


@lru_cache(maxsize=256)
def _driver_of(target: str) -> tuple[str | None, bool]:
    """The driver's name from the text of a link, and whether it is a VFIO driver's."""
    name = clean(target.rstrip("/").rpartition("/")[2]) or None
    return name, is_vfio_driver(name)


@lru_cache(maxsize=256)
def _whole(data: bytes) -> int | None:
    return whole(data.decode("utf-8", "replace"))


@lru_cache(maxsize=1024)
def _parent(above: str) -> _Parent:
    """From the text of a device link, less its last part.

    A host bridge nested in the path (VMD) starts a new hierarchy: what is before it is no PCIe parent.
    """
    parts = above.split("/")
    roots = [index for index, part in enumerate(parts) if part.startswith("pci")]
    below = parts[roots[-1] + 1 :] if roots else []
    place = f"/sys/devices/{above.removeprefix(_UP)}" if above.startswith(_UP) else PCI_DEVICES
    return _Parent(place, tuple(part for part in below if address.is_address(part)))


def _identity_by_attributes(reader: Reader, base: str, name: str) -> tuple[str | None, str | None, str | None]:
    class_id = reader.hex(f"{base}/class", 6, name)
    vendor = reader.hex(f"{base}/vendor", 4, name)
    device = reader.hex(f"{base}/device", 4, name)
    if class_id is None:
        reader.warn("class-unknown", f"{name} has no class: it cannot be told whether it is a GPU", name)
    return class_id, vendor, device


def _group_from_link(reader: Reader, base: str, name: str) -> int | None:
    """The group's number from the link's text alone: in a recording the link may dangle."""
    text = reader.link_name(f"{base}/iommu_group")
    if text is None:
        return None
    number = whole(text)
    if number is None or number < 0:
        reader.malformed(f"{base}/iommu_group", text, name)
        return None
    return number


def _physical_function(reader: Reader, base: str, own: str) -> str | None:
    name = reader.link_name(f"{base}/physfn")
    return name if name is not None and name != own and address.is_address(name) else None
