"""Multi-Instance GPU: what a card in MIG mode takes. Pure functions over what NVML tells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vgpumgr.errors import Reason


class GpuInstance(NamedTuple):
    """A GPU instance: ``shape`` as ``1g.10gb``; ``start`` and ``size`` its place in memory slices."""

    id: int
    profile_id: int
    shape: str
    start: int
    size: int


class MigState(NamedTuple):
    """MIG of one card. ``time_sliced``: several vGPUs share a GPU instance (all of one size)."""

    enabled: bool
    instances: tuple[GpuInstance, ...] = ()
    time_sliced: bool = False
    per_instance: tuple[tuple[str, int, int], ...] = ()
    """(shape, framebuffer MiB, most vGPUs of that size in one GPU instance), for time-sliced MIG."""
    room: tuple[tuple[str, int], ...] = ()
    """(shape, how many more GPU instances of it could be made)."""


Held = tuple[str | None, int | None, int | None]
"""A MIG-backed vGPU: its shape, its size in MiB, its GPU instance where known."""


def mig_bound(
    address: str, mig: MigState, shape: str | None, size: int | None, held: Sequence[Held]
) -> tuple[int, Reason] | None:
    """How many more of a profile MIG lets live on the card; ``None`` when MIG has no say in it."""
    if shape is None:
        if not mig.enabled:
            return None
        return 0, Reason("mig-on", f"{address} is in MIG mode: only MIG-backed profiles fit", (address,))
    if not mig.enabled:
        return 0, Reason("mig-off", f"{address} is not in MIG mode, which {shape} profiles need", (address,))
    instances = [instance for instance in mig.instances if instance.shape == shape]
    if not instances:
        more = dict(mig.room).get(shape, 0)
        message = f"{address} has no GPU instance {shape}; {more or 'none'} could be made"
        return 0, Reason("mig-no-instance", message, (address,))
    if mig.time_sliced:
        left = _time_sliced_left(mig, instances, shape, size, held)
    else:
        left = len(instances) - sum(other == shape for other, _, _ in held)
    message = f"{address} has {len(instances)} GPU instances {shape}, with room for {max(left, 0)} more vGPUs"
    return left, Reason("mig-instances-taken", message, (address,))


def _time_sliced_left(
    mig: MigState, instances: Sequence[GpuInstance], shape: str, size: int | None, held: Sequence[Held]
) -> int:
    """Each GPU instance holds one size. A vGPU whose instance is unknown is taken to block a whole one."""
    most = {(key, mib): count for key, mib, count in mig.per_instance}.get((shape, size or 0), 1)
    left = 0
    for instance in instances:
        sizes = [mib for other, mib, where in held if other == shape and where == instance.id]
        if all(mib == size for mib in sizes):
            left += most - len(sizes)
    homeless = [mib for other, mib, where in held if other == shape and where is None]
    return left - sum(1 if mib == size else most for mib in homeless)
