"""How many more vGPUs of a profile a card takes, and what keeps it from taking more. Pure functions.

The driver's own offer is the first bound and is never exceeded. Everything else narrows it: what the driver
cannot know (reservations of ours), what it tells only per VF, and what it is known to get wrong (a second size
on a card that holds one size only).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from vgpumgr.errors import Reason

if TYPE_CHECKING:
    from vgpumgr.vgpu.mig import MigState


class SizeMode(StrEnum):
    """What sizes may share a card."""

    EQUAL = "equal"
    """One framebuffer size for all vGPUs of the card (NVIDIA's default)."""
    MIXED = "mixed"
    """Any sizes, each at fixed aligned places."""
    FREE = "free"
    """The driver counts it out by itself (GVT-g, other mdev drivers, plain VFs)."""


class Shape(NamedTuple):
    """What capacity depends on in a profile. Sizes in MiB; ``None`` is unknown."""

    id: str
    name: str
    framebuffer_mib: int | None = None
    max_instances: int | None = None
    max_mixed: int | None = None
    mig_shape: str | None = None
    """Set for MIG-backed profiles: the GPU instance it lives in (``1g.10gb``)."""
    places: int | None = None
    """Places in mixed-size mode that the driver says are free for it."""


class Resident(NamedTuple):
    """A vGPU on the card, made or (``reserved``) promised and not made yet.

    ``placement`` is the place in mixed-size mode in MiB from the start of the framebuffer, where known;
    ``gpu_instance`` the GPU instance of a MIG-backed one.
    """

    shape: Shape
    placement: int | None = None
    gpu_instance: int | None = None
    reserved: bool = False


class CardState(NamedTuple):
    """What a card holds. ``parents`` counts the free VFs; ``None`` when vGPUs live on the card itself."""

    address: str
    mode: SizeMode
    residents: tuple[Resident, ...] = ()
    free_vfs: int | None = None
    framebuffer_mib: int | None = None
    """All that vGPUs can share: what a profile of the whole card has."""
    mig: MigState | None = None


class Capacity(NamedTuple):
    """``left`` more fit; ``limit`` says why not more."""

    left: int
    limit: Reason


def capacity(card: CardState, shape: Shape, offered: int | None) -> Capacity:
    """How many more of ``shape`` the card takes now.

    ``offered`` is the driver's word: the instances it says are available (vGPUs on the card), or how many free
    VFs offer the profile. ``None``: the driver was not asked and only the rules bind.
    """
    bounds = [
        *_mig(card, shape),
        *_size_class(card, shape),
        *_instances(card, shape),
        *_placements(card, shape),
        *_vfs(card),
        *_memory(card, shape),
        *_offer(card, shape, offered),
    ]
    if not bounds:
        message = f"nothing tells how many of {shape.name} {card.address} takes"
        return Capacity(0, Reason("capacity-unknown", message, (card.address,)))
    # Promises can take a bound below none; of those that leave none, the first is the cause and the rest follow.
    left, limit = min(((max(left, 0), limit) for left, limit in bounds), key=lambda bound: bound[0])
    return Capacity(left, limit)


_Bound = tuple[int, Reason]


def _mig(card: CardState, shape: Shape) -> list[_Bound]:
    if card.mig is None:
        return _mig_unknown(card, shape)
    from vgpumgr.vgpu.mig import mig_bound

    held = [
        (resident.shape.mig_shape, resident.shape.framebuffer_mib, resident.gpu_instance)
        for resident in card.residents
        if resident.shape.mig_shape is not None
    ]
    bound = mig_bound(card.address, card.mig, shape.mig_shape, shape.framebuffer_mib, held)
    return [bound] if bound is not None else []


def _mig_unknown(card: CardState, shape: Shape) -> list[_Bound]:
    """Without NVML, GPU instances cannot be counted: a driver that offers a MIG-backed profile has room for one."""
    if shape.mig_shape is None:
        return []
    message = f"the GPU instances {shape.mig_shape} of {card.address} cannot be counted: one can be told for sure"
    reserved = sum(resident.reserved for resident in card.residents)
    return [(1 - reserved, Reason("mig-instances-unknown", message, (card.address,)))]


def _size_class(card: CardState, shape: Shape) -> list[_Bound]:
    """Equal-size mode: the first vGPU's size is the size of all."""
    if card.mode is not SizeMode.EQUAL or shape.mig_shape is not None or shape.framebuffer_mib is None:
        return []
    for resident in _time_sliced(card):
        size = resident.shape.framebuffer_mib
        if size is not None and size != shape.framebuffer_mib:
            what = "promised" if resident.reserved else "on the card"
            message = (
                f"{card.address} takes one size at a time: {resident.shape.name} ({size} MiB) is {what}, "
                f"{shape.name} has {shape.framebuffer_mib} MiB"
            )
            return [(0, Reason("size-class", message, (card.address,)))]
    return []


def _instances(card: CardState, shape: Shape) -> list[_Bound]:
    """The most the card takes of one size, less what is there. All series of a size count together."""
    if shape.mig_shape is not None or card.mode is SizeMode.FREE:
        return []
    most = shape.max_instances if card.mode is SizeMode.EQUAL else shape.max_mixed
    if most is None and shape.places is not None:
        return []
    if most is None:
        return _most_unknown(card, shape)
    held = [resident for resident in _time_sliced(card) if _same_size(resident.shape, shape)]
    reserved = sum(resident.reserved for resident in held)
    told = f"{len(held)} of at most {most} are taken" + (f" ({reserved} of them promised)" if reserved else "")
    code = "reserved" if reserved == len(held) > 0 else "max-instances"
    return [(most - len(held), Reason(code, f"{shape.name} on {card.address}: {told}", (card.address,)))]


def _most_unknown(card: CardState, shape: Shape) -> list[_Bound]:
    """What VFs offer cannot be added up without knowing the most the card takes: an offer stands for one."""
    if card.free_vfs is None:
        return []
    message = f"it is not known how many of {shape.name} {card.address} takes: one at a time can be told for sure"
    reserved = sum(resident.reserved for resident in card.residents)
    return [(1 - reserved, Reason("max-instances-unknown", message, (card.address,)))]


def _same_size(one: Shape, other: Shape) -> bool:
    """True also where a size is not known: then it is counted, so that the answer is not too high."""
    sizes = (one.framebuffer_mib, other.framebuffer_mib)
    return None in sizes or sizes[0] == sizes[1]


def _placements(card: CardState, shape: Shape) -> list[_Bound]:
    """Mixed-size mode: each size has its aligned places; a vGPU spoils every place that it touches."""
    if card.mode is not SizeMode.MIXED or shape.mig_shape is not None:
        return []
    if shape.places is not None:
        reserved = [resident.shape for resident in card.residents if resident.reserved]
        return [_told_places(card, shape, reserved)]
    total, slots = card.framebuffer_mib, shape.max_mixed
    if not total or not slots:
        return []
    width = total // slots
    places = range(0, width * slots, width)
    residents = _time_sliced(card)
    placed = [(r.placement, r.shape.framebuffer_mib or total) for r in residents if r.placement is not None]
    free = [at for at in places if all(at + width <= start or start + size <= at for start, size in placed)]
    # Where a vGPU without a known place lies cannot be told: it is taken to spoil as much as it can.
    unplaced = [r.shape for r in residents if r.placement is None]
    left = len(free) - sum(_spoiled(other, width, total) for other in unplaced)
    message = f"{left if left > 0 else 'none'} of the {slots} places for {shape.name} on {card.address} are free"
    return [(left, Reason("placement", message, (card.address,)))]


def _told_places(card: CardState, shape: Shape, reserved: Sequence[Shape]) -> _Bound:
    """The driver's own count of free places, less what promised vGPUs may spoil of them."""
    told = shape.places or 0
    total = card.framebuffer_mib or 0
    width = shape.framebuffer_mib or total
    spoiled = sum(_spoiled(other, width, total) if width else told for other in reserved)
    message = f"{told} places for {shape.name} on {card.address} are free"
    if spoiled:
        message += f", {min(spoiled, told)} of them promised"
    return told - spoiled, Reason("placement", message, (card.address,))


def _spoiled(other: Shape, width: int, total: int) -> int:
    if other.max_mixed:
        return max(1, total // other.max_mixed // width)
    return max(1, -(-(other.framebuffer_mib or total) // width))


def _vfs(card: CardState) -> list[_Bound]:
    if card.free_vfs is None:
        return []
    reserved = sum(resident.reserved for resident in card.residents)
    left = card.free_vfs - reserved
    told = f"{card.free_vfs} virtual functions of {card.address} are free"
    if reserved:
        told += f", {reserved} of them promised"
    return [(left, Reason("vfs-taken", told, (card.address,)))]


def _memory(card: CardState, shape: Shape) -> list[_Bound]:
    """Framebuffer left, where both sides of the sum are known. Never more than the driver offers: a bound only."""
    total, size = card.framebuffer_mib, shape.framebuffer_mib
    if not total or not size or shape.mig_shape is not None or card.mode is SizeMode.EQUAL:
        return []
    if card.mode is SizeMode.FREE and not card.residents:
        # The driver's own count is all there is to know: what it shares out is told from that count alone.
        return []
    used = sum(resident.shape.framebuffer_mib or 0 for resident in card.residents)
    left = max(total - used, 0)
    message = f"{left} of {total} MiB of {card.address} are left, {shape.name} takes {size}"
    return [(left // size, Reason("framebuffer", message, (card.address,)))]


def _offer(card: CardState, shape: Shape, offered: int | None) -> list[_Bound]:
    if offered is None:
        return []
    reserved = sum(resident.reserved for resident in card.residents)
    if card.free_vfs is None:
        message = f"the driver of {card.address} has {offered} more of {shape.name}"
    else:
        message = f"{offered} virtual functions of {card.address} offer {shape.name}"
    if reserved and offered:
        message += f", {min(reserved, offered)} of them promised"
    code = "not-offered" if offered == 0 else "reserved" if offered <= reserved else "driver-offer"
    return [(offered - reserved, Reason(code, message, (card.address,)))]


def _time_sliced(card: CardState) -> Sequence[Resident]:
    return [resident for resident in card.residents if resident.shape.mig_shape is None]
