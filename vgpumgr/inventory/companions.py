"""Which other functions belong to a GPU, and which merely share its IOMMU group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from vgpumgr.inventory.classes import gpu_kind, is_audio
from vgpumgr.model.host import Companion, GpuKind, IommuGroup
from vgpumgr.model.pci import PciFunction

_OFFERED = (GpuKind.GPU, GpuKind.ACCELERATOR)


class CardMap:
    """Functions by slot and by switch, so that finding a card's parts never scans the whole host."""

    def __init__(self, functions: Mapping[str, PciFunction]) -> None:
        self.functions = functions
        self.by_slot: dict[str, list[PciFunction]] = {}
        self.by_switch: dict[str, list[PciFunction]] = {}
        for function in functions.values():
            self.by_slot.setdefault(_slot(function.address), []).append(function)
            if len(function.bridges) > 1 and not function.is_bridge:
                self.by_switch.setdefault(function.bridges[1], []).append(function)

    def slot_mates(self, gpu: PciFunction) -> list[PciFunction]:
        """The other functions of the GPU's slot."""
        return [other for other in self.by_slot[_slot(gpu.address)] if other.address != gpu.address]

    def behind_own_switch(self, gpu: PciFunction) -> list[PciFunction]:
        """Functions behind the switch on the card itself (Intel Arc and AMD boards carry one).

        It is the card's own when its maker is the GPU's maker: ``bridges[0]`` is the host's root port.
        """
        if len(gpu.bridges) < 2:
            return []
        switch = self.functions.get(gpu.bridges[1])
        if switch is None or switch.vendor_id is None or switch.vendor_id != gpu.vendor_id:
            return []
        return [other for other in self.by_switch[gpu.bridges[1]] if other.address != gpu.address]


def find_companions(
    gpu: PciFunction, kind: GpuKind, cards: CardMap, device_links: Sequence[str]
) -> tuple[Companion, ...]:
    """The functions that must (same group, or same slot where no groups exist) or should travel with ``gpu``."""
    if kind not in _OFFERED:
        return ()
    found: dict[str, tuple[PciFunction, str]] = {}
    for other in cards.slot_mates(gpu):
        if _same_card(gpu, other, cards):
            found[other.address] = (other, "same slot")
    for other in cards.behind_own_switch(gpu):
        if is_audio(other.class_id):
            found.setdefault(other.address, (other, "behind the card's own switch"))
    for name in device_links:
        linked = cards.functions.get(name)
        if linked is not None and name != gpu.address and _may_travel(linked):
            found.setdefault(name, (linked, "device link"))
    ordered = sorted(found.values(), key=lambda pair: (len(pair[0].address), pair[0].address))
    return tuple(_companion(gpu, other, why) for other, why in ordered)


def is_second_head(function: PciFunction, cards: CardMap) -> bool:
    """True for a display function (class 0380) beside function 0 of the same card: no GPU of its own."""
    if function.class_id is None or not function.class_id.startswith("0380") or function.address.endswith(".0"):
        return False
    if function.physfn is not None:
        return False  # Virtual functions of a card share its slot, too.
    first = cards.functions.get(function.address[:-1] + "0")
    return (
        first is not None
        and first.vendor_id == function.vendor_id
        and first.class_id is not None
        and first.class_id.startswith("0300")
    )


def strangers(
    gpu: PciFunction,
    companions: Iterable[Companion],
    group: IommuGroup | None,
    functions: Mapping[str, PciFunction],
) -> list[PciFunction]:
    """Endpoints in the GPU's group that are not part of the card."""
    if group is None:
        return []
    own = {gpu.address, *(companion.address for companion in companions)}
    members = (functions.get(name) for name in group.members if name not in own)
    return [member for member in members if member is not None and not member.is_bridge]


def _same_card(gpu: PciFunction, other: PciFunction, cards: CardMap) -> bool:
    """Functions of one slot are one card when one maker made them; audio always goes with the display.

    An integrated GPU shares its slot with the chipset's USB and crypto functions, which are not its own.
    """
    if not _may_travel(other) and not is_second_head(other, cards):
        return False
    return is_audio(other.class_id) or (other.vendor_id is not None and other.vendor_id == gpu.vendor_id)


def _may_travel(other: PciFunction) -> bool:
    """Bridges never, other GPUs never, VFs never."""
    is_gpu = gpu_kind(other.class_id, other.vendor_id, other.device_id) is not None
    return not other.is_bridge and not is_gpu and other.physfn is None


def _companion(gpu: PciFunction, other: PciFunction, why: str) -> Companion:
    grouped = gpu.iommu_group is not None and other.iommu_group == gpu.iommu_group
    required = grouped or (gpu.iommu_group is None and why == "same slot")
    reason = f"{why}, same IOMMU group {gpu.iommu_group}" if grouped else why
    return Companion(other.address, other.class_id, other.driver, required, reason)


def _slot(address: str) -> str:
    return address[:-2]
