"""IOMMU groups: who is in them, whether VFIO could claim them, and whether an IOMMU is at work at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vgpumgr import address
from vgpumgr.inventory.classes import is_vfio_driver
from vgpumgr.inventory.reader import Reader, clean, hex_id, whole
from vgpumgr.kernel.port import IOMMU_GROUPS
from vgpumgr.model.host import Blocker, IommuGroup, IommuState
from vgpumgr.model.pci import VFIO_STUB_DRIVERS, PciFunction

_IOMMU_CLASS = "/sys/class/iommu"
_NOIOMMU_NAME = "vfio-noiommu"
_HINTS = ("intel_iommu=", "amd_iommu=", "iommu=", "iommu.", "vfio-pci.ids=", "pcie_acs_override=", "pci=")


def read_membership(reader: Reader) -> dict[int, list[str]]:
    """Members by group number, as the group directories list them (empty where there are none)."""
    members: dict[int, list[str]] = {}
    for name in reader.names(IOMMU_GROUPS, "host"):
        number = whole(name)
        if number is None or number < 0:
            reader.warn("group-malformed", f"{IOMMU_GROUPS}/{name} is not a group number", name)
            continue
        members[number] = reader.names(f"{IOMMU_GROUPS}/{name}/devices", f"group {name}")
    return members


def group_of_members(membership: Mapping[int, Iterable[str]]) -> dict[str, int]:
    """The same by member."""
    return {member: number for number, members in membership.items() for member in members}


def build_groups(
    reader: Reader, membership: Mapping[int, list[str]], functions: Mapping[str, PciFunction], detailed: set[int]
) -> dict[int, IommuGroup]:
    """All groups by number: from the directories, and from the functions' own links where those are missing.

    ``detailed`` are the groups whose domain type is worth a read.
    """
    names = dict(membership)
    for function in functions.values():
        number = function.iommu_group
        if number is not None and function.address not in names.get(number, ()):
            names[number] = sorted([*names.get(number, ()), function.address])
    return {
        number: _build_group(reader, number, names[number], functions, number in detailed)
        for number in sorted(names)
    }


def _build_group(
    reader: Reader, number: int, names: list[str], functions: Mapping[str, PciFunction], detailed: bool
) -> IommuGroup:
    members, others, blockers = [], [], []
    # In bus order: names come sorted as text, and a wider domain is a longer name.
    for name in sorted(names, key=len):
        if name in functions or address.is_address(name):
            members.append(name)
            blocker = _function_blocks(name, functions.get(name))
        else:
            others.append(clean(name))
            blocker = _other_blocks(reader, number, name)
        if blocker is not None:
            blockers.append(blocker)
    kind = reader.text(f"{IOMMU_GROUPS}/{number}/type", f"group {number}") if detailed else None
    return IommuGroup(number, tuple(members), tuple(blockers), tuple(others), clean(kind) if kind else None)


def _function_blocks(name: str, function: PciFunction | None) -> Blocker | None:
    if function is None:
        return Blocker(name, None, "in the group, but not among the PCI functions: its driver cannot be told")
    driver = function.driver
    if driver is None or function.vfio or driver in VFIO_STUB_DRIVERS or function.is_bridge:
        return None
    return Blocker(name, driver, f"bound to the host driver {driver}")


def _other_blocks(reader: Reader, number: int, name: str) -> Blocker | None:
    """A member that is no PCI function blocks when a host driver has it; mediated devices never do."""
    if _is_uuid(name):
        return None
    driver = reader.link_name(f"{IOMMU_GROUPS}/{number}/devices/{name}/driver")
    if driver is None or driver.startswith("vfio") or is_vfio_driver(driver):
        return None
    return Blocker(clean(name), clean(driver), f"not a PCI function; bound to the host driver {clean(driver)}")


def _is_uuid(name: str) -> bool:
    parts = name.split("-")
    return [len(part) for part in parts] == [8, 4, 4, 4, 12] and all(hex_id(part, 12) for part in parts)


def iommu_state(reader: Reader, groups: Iterable[IommuGroup]) -> IommuState:
    """Judged by effect: IOMMU units registered, or real groups. The command line gives hints, no more."""
    units = reader.names(_IOMMU_CLASS, "host")
    numbers = [group.id for group in groups]
    active = bool(units) or bool(numbers)
    hints = () if active else ("no entry in /sys/class/iommu and no group in /sys/kernel/iommu_groups",)
    if active and not units and _is_noiommu(reader, numbers[0]):
        reader.warn("vfio-noiommu", "VFIO runs in its unsafe no-IOMMU mode: its groups isolate nothing", "host")
        active, hints = False, ("the only groups are those of VFIO's no-IOMMU mode",)
    return IommuState(active=active, hints=(*hints, *_command_line(reader)))


def _is_noiommu(reader: Reader, number: int) -> bool:
    return reader.text(f"{IOMMU_GROUPS}/{number}/name", f"group {number}") == _NOIOMMU_NAME


def _command_line(reader: Reader) -> Iterable[str]:
    for word in (reader.text("/proc/cmdline", "host") or "").split():
        if word.startswith(_HINTS):
            yield f"the kernel command line has {clean(word)}"
