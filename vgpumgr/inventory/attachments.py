"""What the host itself has attached to a function: outputs, interfaces, disks.

Block devices and interfaces are found by their place in the device tree: the function's address is part of
the sysfs path. What is stacked on a disk (partitions, LUKS, LVM, RAID) is followed upwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vgpumgr.inventory.block_devices import BlockDevices
from vgpumgr.inventory.reader import Reader, clean, hex_id
from vgpumgr.inventory.storage import find_storage
from vgpumgr.inventory.watched import Watched
from vgpumgr.kernel.port import PCI_DEVICES
from vgpumgr.model.host import Holder

_NET = "/sys/class/net"
_IFF_UP = 0x1


def find_attachments(reader: Reader, watched: Mapping[str, Watched], disks: BlockDevices) -> list[Holder]:
    """Outputs, interfaces and disks of the watched functions that the host uses."""
    holders = [holder for function in watched.values() for holder in _displays(reader, function)]
    bound = {name for name, function in watched.items() if function.driver is not None}
    if bound:
        holders.extend(_interfaces(reader, bound))
    holders.extend(find_storage(reader, disks))
    return holders


def owner_in_path(path: str, addresses: set[str]) -> str | None:
    """The watched function that a device path runs through."""
    return next((part for part in path.split("/") if part in addresses), None)


def _displays(reader: Reader, function: Watched) -> Iterator[Holder]:
    """Connectors with a monitor that is switched on. Without ``enabled`` (or ``status``) it counts as on."""
    if "drm" not in function.names:
        return
    base = f"{PCI_DEVICES}/{function.address}/drm"
    for card in reader.names(base, function.address):
        if not card.startswith("card"):
            continue
        for connector in reader.names(f"{base}/{card}", function.address):
            if not connector.startswith(f"{card}-"):
                continue
            status = reader.text(f"{base}/{card}/{connector}/status", function.address)
            enabled = reader.text(f"{base}/{card}/{connector}/enabled", function.address)
            if status == "connected" and enabled in ("enabled", None):
                yield Holder("display", clean(connector), function.address, detail="a monitor is switched on")


def _interfaces(reader: Reader, addresses: set[str]) -> Iterator[Holder]:
    for name in reader.names(_NET, "host"):
        owner = owner_in_path(reader.link(f"{_NET}/{name}") or "", addresses)
        if owner is not None and _is_up(reader, name, owner):
            yield Holder("network", clean(name), owner, detail="the interface is up")


def _is_up(reader: Reader, name: str, owner: str) -> bool:
    """Up by the administrator's flag or by its state; one whose state cannot be read counts as up."""
    flags = hex_id(reader.text(f"{_NET}/{name}/flags", owner) or "", 8)
    state = reader.text(f"{_NET}/{name}/operstate", owner)
    if flags is None:
        return state in ("up", "unknown", None)
    return bool(int(flags, 16) & _IFF_UP) or state == "up"
