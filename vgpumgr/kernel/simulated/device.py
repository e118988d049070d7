"""A simulated PCI function: where it lies in the tree, and what the driver core knows of it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class SimFunction:
    """One function. ``native`` are the drivers whose id tables match it, the preferred one first."""

    address: str
    path: str
    """Its directory under /sys/devices, without links."""
    native: tuple[str, ...] = ()
    driver: str | None = None
    override: str | None = None
    group: int | None = None
    physfn: str | None = None
    vfs: list[str] = field(default_factory=list)
    sriov: SriovShape | None = None
    holders: set[int] = field(default_factory=set)
    """Process ids that keep the device open; unbinding waits for them."""


@dataclass(frozen=True)
class SriovShape:
    """How a physical function numbers its VFs. ``refuses`` is the errno its driver answers with, 0 for none."""

    total: int
    offset: int
    stride: int
    vf_device: str
    vf_class: str | None = None
    vf_driver: str | None = None
    refuses: int = 0


def vf_address(physfn: str, shape: SriovShape, index: int) -> str:
    """A VF's address: 16-bit routing-id arithmetic over bus, slot and function; it may spill to the next bus."""
    domain, bus, rest = physfn.split(":")
    slot, function = rest.split(".")
    routing = (int(bus, 16) << 8 | int(slot, 16) << 3 | int(function)) + shape.offset + shape.stride * index
    return f"{domain}:{routing >> 8 & 0xFF:02x}:{routing >> 3 & 0x1F:02x}.{routing & 7}"
