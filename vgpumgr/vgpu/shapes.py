"""What is known of each profile of a card, from whoever knows it best: the driver's files, NVML, shipped facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from vgpumgr.model.vgpu import Backend
from vgpumgr.vgpu.capacity import Shape
from vgpumgr.vgpu.cards import Offer
from vgpumgr.vgpu.catalogue import Facts, facts_for, name_of_type
from vgpumgr.vgpu.names import type_number

if TYPE_CHECKING:
    from vgpumgr.vgpu.mig import MigState
    from vgpumgr.vgpu.nvml_port import NvmlCard, NvmlProfile


class Known(NamedTuple):
    """One profile with all that is known of it. ``told`` is NVML's word, where it has one."""

    offer: Offer
    facts: Facts
    told: NvmlProfile | None
    shape: Shape


def know(offers: Sequence[Offer], nvml: NvmlCard | None) -> Mapping[str, Known]:
    """Profile id → what is known, in the order of the offers."""
    told = {profile.id: profile for profile in nvml.profiles} if nvml is not None else {}
    shapes = {profile.id: profile.shape for profile in nvml.mig_profiles} if nvml is not None else {}
    return {
        offer.profile_id: _know(offer, told.get(type_number(offer.profile_id) or -1), shapes) for offer in offers
    }


def _know(offer: Offer, told: NvmlProfile | None, shapes: Mapping[int, str]) -> Known:
    # Where the driver gives no name, the id stands in its place; the catalogue may know whose it is.
    name = name_of_type(offer.profile_id) if offer.name == offer.profile_id else None
    facts, described = facts_for(name or offer.name), offer.description
    mig_shape = facts.mig_shape
    if told is not None and told.gpu_instance_profile is not None:
        mig_shape = shapes.get(told.gpu_instance_profile, mig_shape)
    shape = Shape(
        id=offer.profile_id,
        name=offer.name,
        framebuffer_mib=described.framebuffer_mib or (told and told.framebuffer_mib) or facts.framebuffer_mib,
        max_instances=described.max_instances or (told and told.max_instances) or facts.max_instances,
        max_mixed=facts.max_mixed,
        mig_shape=mig_shape,
        places=told.places if told is not None else None,
    )
    return Known(offer, facts, told, shape)


def unlisted(offers: Sequence[Offer], nvml: NvmlCard | None, backend: Backend) -> list[Offer]:
    """Profiles that the driver supports and no list names just now: none of them can be made, and that is shown."""
    if nvml is None:
        return []
    prefix = "nvidia-" if backend is Backend.MDEV else ""
    listed = {offer.profile_id for offer in offers}
    return [Offer(f"{prefix}{item.id}", item.name) for item in nvml.profiles if f"{prefix}{item.id}" not in listed]


def mig_state(nvml: NvmlCard | None, known: Mapping[str, Known]) -> MigState | None:
    """The card's MIG as capacity needs it; ``None`` when it has none, or nobody tells."""
    if nvml is None or nvml.mig is None:
        return None
    from vgpumgr.vgpu.mig import MigState

    per_instance = tuple(
        (item.shape.mig_shape, item.shape.framebuffer_mib, item.told.max_per_gpu_instance)
        for item in known.values()
        if item.shape.mig_shape and item.shape.framebuffer_mib and item.told and item.told.max_per_gpu_instance
    )
    room = tuple((profile.shape, profile.remaining) for profile in nvml.mig_profiles)
    return MigState(nvml.mig, nvml.gpu_instances, nvml.mig_time_sliced, per_instance, room)
