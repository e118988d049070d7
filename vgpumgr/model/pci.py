"""PCI functions as the kernel shows them."""

from __future__ import annotations

from typing import NamedTuple

from vgpumgr.model.json import JsonObject

VFIO_STUB_DRIVERS = frozenset({"pci-stub", "pcieport", "shpchp"})
"""Host drivers that may stay bound beside VFIO in a group: they do no DMA of their own (driver_managed_dma)."""


def is_bridge_class(class_id: str | None) -> bool:
    """True for bridges (class 06xx).

    "Other" bridges (0680) are endpoints in all but name: NVSwitches are of that class.
    """
    return class_id is not None and class_id.startswith("06") and not class_id.startswith("0680")


class PciFunction(NamedTuple):
    """One PCI function: the few facts every function has. A tuple, for a host has hundreds of them.

    Ids are lower-case hexadecimal without ``0x`` (``"10de"``, class ``"030200"``); ``None`` is unknown.
    ``bridges`` are the addresses between the root complex and the function, root port first, taken from
    the sysfs path. ``vfio`` is true when its driver is vfio-pci or a VFIO variant driver.
    """

    address: str
    class_id: str | None
    vendor_id: str | None
    device_id: str | None
    driver: str | None
    iommu_group: int | None
    numa_node: int | None
    bridges: tuple[str, ...] = ()
    physfn: str | None = None
    vfio: bool = False

    @property
    def is_bridge(self) -> bool:
        """Bridges never count as blockers and are never bound."""
        return is_bridge_class(self.class_id)


class Link(NamedTuple):
    """PCIe link of a function. Speeds in GT/s, widths in lanes; ``None`` is unknown."""

    speed: float | None = None
    width: int | None = None
    max_speed: float | None = None
    max_width: int | None = None

    def to_json(self) -> JsonObject:
        """``{"speed_gts", "width", "max_speed_gts", "max_width"}``."""
        return {
            "speed_gts": self.speed,
            "width": self.width,
            "max_speed_gts": self.max_speed,
            "max_width": self.max_width,
        }


class Bar(NamedTuple):
    """One base address register: its number 0-5 (6: the ROM), size in bytes, and whether it got an address."""

    number: int
    size: int
    prefetchable: bool = False
    bits64: bool = False
    assigned: bool = True

    def to_json(self) -> JsonObject:
        """``{"index", "size", "prefetchable", "64bit", "assigned"}``; size in bytes."""
        return {
            "index": self.number,
            "size": self.size,
            "prefetchable": self.prefetchable,
            "64bit": self.bits64,
            "assigned": self.assigned,
        }
