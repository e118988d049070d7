"""Locked memory: VFIO pins the guest's memory, and libvirt sets the limit for it by a rule of its own.

The rule (libvirt's ``qemuDomainGetMemLockLimitBytes``): an explicit ``<hard_limit>`` is taken exactly; else with
``<locked/>`` there is no limit; else the limit is the guest's memory, once for all VFIO devices together or once
for each when the guest has a vIOMMU, once more for each NVMe disk and vDPA interface, plus 1 GiB.
"""

from __future__ import annotations

from collections.abc import Sequence

from lxml import etree

from vgpumgr.domain.document import devices_of
from vgpumgr.domain.findings import Findings
from vgpumgr.domain.parser import NamedDevice, Way

GIB = 1 << 30
_UNITS = {
    "b": 1, "bytes": 1,
    "k": 1 << 10, "kib": 1 << 10, "kb": 10**3,
    "m": 1 << 20, "mib": 1 << 20, "mb": 10**6,
    "g": GIB, "gib": GIB, "gb": 10**9,
    "t": 1 << 40, "tib": 1 << 40, "tb": 10**12,
    "p": 1 << 50, "pib": 1 << 50, "pb": 10**15,
    "e": 1 << 60, "eib": 1 << 60, "eb": 10**18,
}  # fmt: skip


def locked_memory(memory: int, devices: int, *, viommu: bool, extra: int = 0) -> int:
    """Bytes that must be lockable for a guest of ``memory`` bytes with so many VFIO devices; 0 without any.

    ``extra`` counts NVMe disks and vDPA interfaces, which map all of the memory once more each.
    """
    if devices == 0 and extra == 0:
        return 0
    return memory * ((devices if viommu else min(devices, 1)) + extra) + GIB


def check_memory(root: etree._Element, named: Sequence[NamedDevice], findings: Findings) -> None:
    """A ``<hard_limit>`` below the need: the VM would fail late, with "Cannot allocate memory"."""
    limit, memory = _bytes(root.find("memtune/hard_limit")), _bytes(root.find("memory"))
    if limit is None or memory is None:
        return
    devices = sum(item.way is not Way.NVME for item in named)
    extra = sum(item.way is Way.NVME for item in named) + sum(_is_vdpa(item) for item in devices_of(root))
    viommu = root.find("devices/iommu") is not None
    need = locked_memory(memory, devices, viommu=viommu, extra=extra)
    if limit >= need:
        return
    message = (
        f"memtune hard_limit is {limit} bytes, but {_count(devices + extra)}{' behind a vIOMMU' if viommu else ''} "
        f"need {need} bytes of locked memory: raise it, or remove it and let libvirt compute the limit"
    )
    findings.error("memory-limit", message)


def _count(devices: int) -> str:
    return f"{devices} VFIO device{'s' if devices > 1 else ''}"


def _is_vdpa(element: etree._Element) -> bool:
    return element.tag == "interface" and element.get("type") == "vdpa"


def _bytes(element: etree._Element | None) -> int | None:
    """A libvirt size; the unit is KiB when none is given. ``None`` for what is no size."""
    if element is None or element.text is None:
        return None
    text, unit = element.text.strip(), (element.get("unit") or "KiB").lower()
    return int(text) * _UNITS[unit] if text.isdecimal() and unit in _UNITS else None
