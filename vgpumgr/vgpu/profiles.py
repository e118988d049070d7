"""A card's profiles with their figures and true capacity."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from vgpumgr.errors import Reason
from vgpumgr.model.vgpu import Backend, Profile, Vgpu, VgpuState
from vgpumgr.vgpu.capacity import Capacity, CardState, Resident, Shape, SizeMode, capacity
from vgpumgr.vgpu.cards import UNKNOWN_TYPE, Card, Offer, cannot_enable
from vgpumgr.vgpu.catalogue import card_framebuffer_mib, name_of_type
from vgpumgr.vgpu.names import type_number
from vgpumgr.vgpu.shapes import Known, know, mig_state, unlisted

if TYPE_CHECKING:
    from vgpumgr.vgpu.nvml_port import NvmlCard

_NUMBERS = re.compile(r"\d+")


def state_of(card: Card, reserved: Sequence[str] = (), nvml: NvmlCard | None = None) -> VgpuState:
    """What the card offers and holds.

    ``reserved`` are profile ids promised to allocations and not made yet; ``nvml`` is NVML's word on the card.
    """
    offers = [*card.offers, *unlisted(card.offers, nvml, card.backend)]
    listed = {offer.profile_id: offer for offer in offers}
    instances = tuple(_named(instance, listed) for instance in card.instances)
    for instance in instances:
        if instance.profile_id not in listed:
            # The driver no longer lists what the card is full of; it is a profile of this card all the same.
            listed[instance.profile_id] = Offer(instance.profile_id, instance.profile or instance.profile_id)
    known = know(sorted(listed.values(), key=lambda offer: _order(offer.profile_id)), nvml)
    state = _card_state(card, known, instances, reserved, nvml)
    profiles = tuple(_profile(item, _capacity(card, state, item)) for item in known.values())
    return VgpuState(True, card.backend, profiles, instances, _reasons(card))


def _named(instance: Vgpu, listed: Mapping[str, Offer]) -> Vgpu:
    if instance.profile is not None:
        return instance
    offer = listed.get(instance.profile_id)
    return instance._replace(profile=offer.name if offer else name_of_type(instance.profile_id))


def _order(profile_id: str) -> tuple[str, list[tuple[int, str]]]:
    """By driver, then by number as numbers: ``nvidia-63`` comes before ``nvidia-558``."""
    numbers = [number.lstrip("0") for number in _NUMBERS.findall(profile_id)]
    return _NUMBERS.sub("#", profile_id), [(len(number), number) for number in numbers]


def _card_state(
    card: Card,
    known: Mapping[str, Known],
    instances: Sequence[Vgpu],
    reserved: Sequence[str],
    nvml: NvmlCard | None,
) -> CardState:
    residents = [
        Resident(known[instance.profile_id].shape, gpu_instance=instance.gpu_instance) for instance in instances
    ]
    mode = _size_mode(card, known, residents, nvml)
    promised = [Resident(_promised_shape(wanted, known), reserved=True) for wanted in reserved]
    return CardState(
        address=card.address,
        mode=mode,
        residents=(*residents, *promised),
        free_vfs=len(card.free_vfs) if card.free_vfs is not None else None,
        framebuffer_mib=_framebuffer(mode, known, residents),
        mig=mig_state(nvml, known),
    )


def _promised_shape(wanted: str, known: Mapping[str, Known]) -> Shape:
    """A promise may have been written down through the other of NVIDIA's interfaces; the numbers are the same."""
    number = type_number(wanted)
    same = (item.shape for item in known.values() if number is not None and type_number(item.shape.id) == number)
    return known[wanted].shape if wanted in known else next(same, Shape(wanted, wanted))


def _size_mode(
    card: Card, known: Mapping[str, Known], residents: Sequence[Resident], nvml: NvmlCard | None
) -> SizeMode:
    """Equal size unless the card shows otherwise: NVML says so, it holds two sizes, or its VFs offer a second one.

    An mdev's ``available_instances`` is no such proof: drivers without a mixed-size mode are known to offer a
    second size and to refuse it when the VM starts.
    """
    numbers = [type_number(profile_id) for profile_id in known if profile_id != UNKNOWN_TYPE]
    if card.backend is Backend.SRIOV or None in numbers:
        return SizeMode.FREE
    if nvml is not None and nvml.mixed_size is not None:
        return SizeMode.MIXED if nvml.mixed_size else SizeMode.EQUAL
    sizes = {resident.shape.framebuffer_mib for resident in residents if resident.shape.mig_shape is None}
    if card.backend is Backend.VENDOR_VFIO and sizes:
        offered = (item.shape for item in known.values() if item.offer.available)
        sizes |= {shape.framebuffer_mib for shape in offered if shape.mig_shape is None}
    return SizeMode.MIXED if len(sizes - {None}) > 1 else SizeMode.EQUAL


def _framebuffer(mode: SizeMode, known: Mapping[str, Known], residents: Sequence[Resident]) -> int | None:
    """What all vGPUs share, in MiB. A driver that counts by itself tells only what is left."""
    if mode is SizeMode.FREE:
        sizes = (item.offer.available * (item.shape.framebuffer_mib or 0) for item in known.values())
        return max(sizes, default=0) + sum(resident.shape.framebuffer_mib or 0 for resident in residents) or None
    shapes = [item.shape for item in known.values()]
    whole = [shape.framebuffer_mib for shape in shapes if shape.max_instances == 1 and not shape.mig_shape]
    totals = [size for size in (*whole, *(card_framebuffer_mib(shape.name) for shape in shapes)) if size]
    return max(totals, default=None)


def _capacity(card: Card, state: CardState, item: Known) -> Capacity:
    if card.backend is Backend.SRIOV:
        return _plain_capacity(card, item.offer, sum(resident.reserved for resident in state.residents))
    return capacity(state, item.shape, item.offer.available)


def _plain_capacity(card: Card, offer: Offer, reserved: int) -> Capacity:
    """VFs that exist and are free, or, while there are none, those that can be enabled."""
    sriov = card.gpu.sriov
    name, total = card.address, sriov.total_vfs if sriov is not None else 0
    left = max(offer.available - reserved, 0)
    if sriov is not None and not sriov.num_vfs and offer.available and reserved:
        message = f"{name} is going to be cut into the {reserved} VFs that are promised; the number then stays"
        return Capacity(0, Reason("reserved", message, (name,)))
    if sriov is not None and sriov.num_vfs:
        message = (
            f"{sriov.num_vfs} of {total} VFs of {name} exist, {left} are free; the number changes only through 0"
        )
        return Capacity(left, Reason("vfs-fixed", message, (name,)))
    barred = cannot_enable(card.gpu)
    if barred is not None:
        return Capacity(0, barred)
    return Capacity(left, Reason("max-instances", f"{name} has at most {total} virtual functions", (name,)))


def _profile(item: Known, found: Capacity) -> Profile:
    facts, told, described, shape = item.facts, item.told, item.offer.description, item.shape
    return Profile(
        id=shape.id,
        name=shape.name,
        creatable=found.left,
        framebuffer_mib=shape.framebuffer_mib,
        max_instances=shape.max_instances,
        series=facts.series,
        heads=_first(described.heads, told and told.heads, facts.heads),
        max_resolution=described.max_resolution or (told and told.max_resolution) or facts.max_resolution,
        frame_rate_limit=_first(described.frame_rate_limit, told and told.frame_rate_limit, facts.frame_rate_limit),
        max_instances_per_vm=told and told.max_per_vm,
        mig_shape=shape.mig_shape,
        licence=(told and told.licence) or facts.licence,
        limit=None if shape.max_instances is not None and found.left >= shape.max_instances else found.limit,
    )


def _first(*values: int | None) -> int | None:
    """The first that is known; 0 is known."""
    return next((value for value in values if value is not None), None)


def _reasons(card: Card) -> tuple[Reason, ...]:
    """What is worth knowing of the card as a whole."""
    if card.backend is Backend.SRIOV:
        barred = None if card.instances else cannot_enable(card.gpu)
        return (barred,) if barred is not None else ()
    if card.free_vfs is not None and not card.free_vfs:
        message = f"all virtual functions of {card.address} that can carry a vGPU carry one"
        return (Reason("vfs-taken", message, (card.address,)),)
    return ()
