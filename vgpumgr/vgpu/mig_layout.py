"""Where the GPU instances of a layout go on a card: which stay, which go, and where the missing ones are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vgpumgr.errors import Reason
from vgpumgr.plans.plan import Refusal
from vgpumgr.plans.step import Step
from vgpumgr.vgpu.mig import GpuInstance
from vgpumgr.vgpu.mode_steps import CreateGpuInstance, DestroyGpuInstance
from vgpumgr.vgpu.nvml_port import MigProfile, NvmlCard

_Places = list[tuple[MigProfile, int]]
"""GPU instance profiles, each with the slice it starts at."""


class LayoutSteps(NamedTuple):
    """Steps to a layout: first what goes, then, in MIG mode, what is made."""

    going: Sequence[Step] = ()
    coming: Sequence[Step] = ()


def layout_steps(card: NvmlCard, layout: Sequence[str]) -> LayoutSteps | Refusal:
    """From the GPU instances a card holds to those of the layout. Those of it stay where they are, unless only
    moving them makes room for the rest.
    """
    if not layout:
        return LayoutSteps(_destroy(card, card.gpu_instances))
    known = {profile.shape: profile for profile in card.mig_profiles}
    kept = _kept(card, layout)
    for staying in (kept, ()) if kept else ((),):
        missing = _without(layout, staying)
        refusal = _unknown_shape(card, known, missing)
        if refusal is not None:
            return refusal
        wanted = sorted((known[shape] for shape in missing), key=lambda item: (-item.size, len(item.starts)))
        places = _place(wanted, [(item.start, item.size) for item in staying])
        if places is not None:
            going = [item for item in card.gpu_instances if item not in staying]
            coming = [CreateGpuInstance(card.address, item.id, item.shape, start) for item, start in places]
            return LayoutSteps(_destroy(card, going), coming)
    message = f"{card.address} has no place for all of {', '.join(layout)}"
    reason = Reason("mig-no-place", message, (card.address,))
    return Refusal(reason.code, reason.message, (reason,), "ask for fewer or smaller GPU instances")


def _destroy(card: NvmlCard, instances: Sequence[GpuInstance]) -> list[Step]:
    return [
        DestroyGpuInstance(card.address, item.id, item.profile_id, item.shape, item.start) for item in instances
    ]


def _kept(card: NvmlCard, layout: Sequence[str]) -> Sequence[GpuInstance]:
    """The GPU instances that the layout asks for."""
    wanted = list(layout)
    kept = []
    for item in card.gpu_instances:
        if item.shape in wanted:
            wanted.remove(item.shape)
            kept.append(item)
    return kept


def _without(layout: Sequence[str], staying: Sequence[GpuInstance]) -> list[str]:
    missing = list(layout)
    for item in staying:
        missing.remove(item.shape)
    return missing


def _unknown_shape(card: NvmlCard, known: Mapping[str, MigProfile], missing: Sequence[str]) -> Refusal | None:
    if missing and not known:
        reason = Reason(
            "mig-off", f"the GPU instances that {card.address} can hold show in MIG mode only", (card.address,)
        )
        return Refusal(reason.code, reason.message, (reason,), "turn MIG mode on first, then ask for the layout")
    unknown = [shape for shape in missing if shape not in known]
    if not unknown:
        return None
    message = f"{card.address} has no GPU instance {unknown[0]} (it has {', '.join(known) or 'none'})"
    reason = Reason("mig-shape-unknown", message, (card.address,))
    return Refusal(reason.code, reason.message, (reason,))


def _place(wanted: Sequence[MigProfile], taken: Sequence[tuple[int, int]]) -> _Places | None:
    """A place for each, tried in order, going back where a first choice leaves none for a later one: a ``3g`` that
    begins at slice 0 leaves three slices, one that begins at 4 leaves four. ``None`` when there is no way.
    """
    if not wanted:
        return []
    first, *rest = wanted
    for start in first.starts:
        if any(start < at + size and at < start + first.size for at, size in taken):
            continue
        others = _place(rest, [*taken, (start, first.size)])
        if others is not None:
            return [(first, start), *others]
    return None
