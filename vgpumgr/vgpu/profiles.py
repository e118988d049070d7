"""A card's profiles with their figures and true capacity: kernel first, shipped facts for what it leaves out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from vgpumgr.errors import Reason
from vgpumgr.model.vgpu import Backend, Profile, Vgpu, VgpuState
from vgpumgr.vgpu.capacity import Capacity, CardState, Resident, Shape, SizeMode, capacity
from vgpumgr.vgpu.cards import Card, Offer, cannot_enable
from vgpumgr.vgpu.catalogue import Facts, card_framebuffer_mib, facts_for, name_of_type
from vgpumgr.vgpu.names import type_number

_NUMBERS = re.compile(r"\d+")


def state_of(card: Card, reserved: Sequence[str] = ()) -> VgpuState:
    """What the card offers and holds. ``reserved`` are profile ids promised to allocations and not made yet."""
    known = {offer.profile_id: offer for offer in card.offers}
    instances = tuple(_named(instance, known) for instance in card.instances)
    for instance in instances:
        if instance.profile_id not in known:
            # The driver no longer lists what the card is full of; it is a profile of this card all the same.
            known[instance.profile_id] = Offer(instance.profile_id, instance.profile or instance.profile_id)
    offers = sorted(known.values(), key=lambda offer: _order(offer.profile_id))
    shapes = {offer.profile_id: shape_of(offer) for offer in offers}
    state = _card_state(card, offers, shapes, instances, reserved)
    profiles = tuple(
        _profile(offer, shapes[offer.profile_id], _capacity(card, state, offer, shapes)) for offer in offers
    )
    return VgpuState(True, card.backend, profiles, instances, _reasons(card))


def shape_of(offer: Offer) -> Shape:
    """What capacity depends on, from the driver's description or else the catalogue."""
    facts = facts_for(offer.name)
    described = offer.description
    return Shape(
        id=offer.profile_id,
        name=offer.name,
        framebuffer_mib=described.framebuffer_mib or facts.framebuffer_mib,
        max_instances=described.max_instances or facts.max_instances,
        max_mixed=facts.max_mixed,
        mig_shape=facts.mig_shape,
    )


def _named(instance: Vgpu, known: dict[str, Offer]) -> Vgpu:
    if instance.profile is not None:
        return instance
    offer = known.get(instance.profile_id)
    return replace(instance, profile=offer.name if offer else name_of_type(instance.profile_id))


def _order(profile_id: str) -> tuple[str, list[int]]:
    """By driver, then by number as numbers: ``nvidia-63`` comes before ``nvidia-558``."""
    return _NUMBERS.sub("#", profile_id), [int(number) for number in _NUMBERS.findall(profile_id)]


def _card_state(
    card: Card,
    offers: Sequence[Offer],
    shapes: dict[str, Shape],
    instances: Sequence[Vgpu],
    reserved: Sequence[str],
) -> CardState:
    residents = [Resident(shapes[instance.profile_id]) for instance in instances]
    mode = _size_mode(card, offers, shapes, residents)
    promised = [
        Resident(shapes.get(profile_id) or Shape(profile_id, profile_id), reserved=True) for profile_id in reserved
    ]
    return CardState(
        address=card.address,
        mode=mode,
        residents=(*residents, *promised),
        free_vfs=len(card.free_vfs) if card.free_vfs is not None else None,
        framebuffer_mib=_framebuffer(mode, offers, shapes, residents),
    )


def _size_mode(
    card: Card, offers: Sequence[Offer], shapes: dict[str, Shape], residents: Sequence[Resident]
) -> SizeMode:
    """Equal size unless the card shows otherwise: it holds two sizes, or its VFs offer a second one.

    An mdev's ``available_instances`` is no such proof: drivers without a mixed-size mode are known to offer a
    second size and to refuse it when the VM starts.
    """
    if card.backend is Backend.SRIOV or any(type_number(offer.profile_id) is None for offer in offers):
        return SizeMode.FREE
    sizes = {resident.shape.framebuffer_mib for resident in residents if resident.shape.mig_shape is None}
    if card.backend is Backend.VENDOR_VFIO and sizes:
        sizes |= {_sliced_size(shapes[offer.profile_id]) for offer in offers if offer.count}
    return SizeMode.MIXED if len(sizes - {None}) > 1 else SizeMode.EQUAL


def _sliced_size(shape: Shape) -> int | None:
    return shape.framebuffer_mib if shape.mig_shape is None else None


def _framebuffer(
    mode: SizeMode, offers: Sequence[Offer], shapes: dict[str, Shape], residents: Sequence[Resident]
) -> int | None:
    """What all vGPUs share, in MiB. A driver that counts by itself tells only what is left."""
    if mode is SizeMode.FREE:
        left = max((offer.count * (shapes[offer.profile_id].framebuffer_mib or 0) for offer in offers), default=0)
        return left + sum(resident.shape.framebuffer_mib or 0 for resident in residents) or None
    whole = [shape.framebuffer_mib for shape in shapes.values() if shape.max_instances == 1 and not shape.mig_shape]
    totals = [size for size in (*whole, *(card_framebuffer_mib(offer.name) for offer in offers)) if size]
    return max(totals, default=None)


def _capacity(card: Card, state: CardState, offer: Offer, shapes: dict[str, Shape]) -> Capacity:
    shape = shapes[offer.profile_id]
    if card.backend is Backend.SRIOV:
        return _plain_capacity(card, offer, sum(resident.reserved for resident in state.residents))
    return capacity(state, shape, offer.count)


def _plain_capacity(card: Card, offer: Offer, reserved: int) -> Capacity:
    """VFs that exist and are free, or, while there are none, those that can be enabled."""
    sriov = card.gpu.sriov
    name, total = card.address, sriov.total_vfs if sriov is not None else 0
    left = max(offer.count - reserved, 0)
    if sriov is not None and sriov.num_vfs:
        message = (
            f"{sriov.num_vfs} of {total} VFs of {name} exist, {left} are free; the number changes only through 0"
        )
        return Capacity(left, Reason("vfs-fixed", message, (name,)))
    barred = cannot_enable(card.gpu)
    if barred is not None:
        return Capacity(0, barred)
    return Capacity(left, Reason("max-instances", f"{name} has at most {total} virtual functions", (name,)))


def _profile(offer: Offer, shape: Shape, found: Capacity) -> Profile:
    facts: Facts = facts_for(offer.name)
    described = offer.description
    return Profile(
        id=offer.profile_id,
        name=offer.name,
        creatable=found.count,
        framebuffer_mib=shape.framebuffer_mib,
        max_instances=shape.max_instances,
        series=facts.series,
        heads=described.heads if described.heads is not None else facts.heads,
        max_resolution=described.max_resolution or facts.max_resolution,
        frame_rate_limit=(
            described.frame_rate_limit if described.frame_rate_limit is not None else facts.frame_rate_limit
        ),
        mig_shape=shape.mig_shape,
        licence=facts.licence,
        limit=None if shape.max_instances is not None and found.count >= shape.max_instances else found.limit,
    )


def _reasons(card: Card) -> tuple[Reason, ...]:
    """What is worth knowing of the card as a whole."""
    if card.backend is Backend.SRIOV:
        barred = None if card.instances else cannot_enable(card.gpu)
        return (barred,) if barred is not None else ()
    if card.free_vfs is not None and not card.free_vfs:
        message = f"all virtual functions of {card.address} that can carry a vGPU carry one"
        return (Reason("vfs-taken", message, (card.address,)),)
    return ()
