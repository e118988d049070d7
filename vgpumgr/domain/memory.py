"""Locked memory: VFIO pins the guest's memory, and libvirt sets the limit for it by a rule of its own.

The rule (libvirt's ``qemuDomainGetMemLockLimitBytes``): an explicit ``<hard_limit>`` is taken exactly; with
``<locked/>`` there is no limit; else the limit is the guest's memory, once for all VFIO devices together or
once for each when the guest has a vIOMMU, plus 1 GiB.
"""

from __future__ import annotations

from lxml import etree

from vgpumgr.model.domain import Problem

GIB = 1 << 30
_UNITS = {
    "b": 1, "bytes": 1, "k": 1 << 10, "kib": 1 << 10, "kb": 1000, "m": 1 << 20, "mib": 1 << 20, "mb": 10**6,
    "g": GIB, "gib": GIB, "gb": 10**9, "t": 1 << 40, "tib": 1 << 40, "tb": 10**12,
}  # fmt: skip


def locked_memory(memory: int, devices: int, *, viommu: bool) -> int:
    """Bytes that must be lockable for a guest of ``memory`` bytes with so many VFIO devices; 0 without any."""
    if devices == 0:
        return 0
    return memory * (devices if viommu else 1) + GIB


def memory_problems(root: etree._Element, devices: int) -> list[Problem]:
    """A ``<hard_limit>`` below the need: the VM would fail late, with "Cannot allocate memory"."""
    limit, memory = _bytes(root.find("memtune/hard_limit")), _bytes(root.find("memory"))
    if limit is None or memory is None or devices == 0 or root.find("memoryBacking/locked") is not None:
        return []
    need = locked_memory(memory, devices, viommu=root.find("devices/iommu") is not None)
    if limit >= need:
        return []
    message = (
        f"memtune hard_limit is {limit} bytes, but {devices} VFIO device{'s' if devices > 1 else ''} "
        f"need {need} bytes of locked memory: raise it, or remove it and let libvirt compute the limit"
    )
    return [Problem("memory-limit", "error", message)]


def _bytes(element: etree._Element | None) -> int | None:
    """A libvirt size; the unit is KiB when none is given. ``None`` for what is no size."""
    if element is None or element.text is None:
        return None
    text, unit = element.text.strip(), (element.get("unit") or "KiB").lower()
    return int(text) * _UNITS[unit] if text.isdecimal() and unit in _UNITS else None
