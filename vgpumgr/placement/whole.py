"""Whole GPUs: who is free, and which set of them serves a VM best."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from vgpumgr.address import sort_key
from vgpumgr.errors import Reason
from vgpumgr.model.allocation import (
    AllocatedDevice,
    AllocationRequest,
    Candidate,
    DeviceKind,
    GpuRefusal,
    Placement,
)
from vgpumgr.model.host import Gpu, HealthStatus, PassthroughState
from vgpumgr.model.reasons import INFORMATIVE

_STATE_SCORE = {PassthroughState.READY: 100, PassthroughState.PARKED: 80, PassthroughState.HOST: 50}
_STATE_NOTE = {
    PassthroughState.READY: "on a VFIO driver and free",
    PassthroughState.PARKED: "off its host driver already",
    PassthroughState.HOST: "to be taken from its host driver",
}
_TOGETHER = 20
"""What it is worth that several GPUs sit behind one switch; half of it for one NUMA node."""


def place_whole(gpus: Sequence[Gpu], request: AllocationRequest) -> Placement:
    """Candidates of ``request.count`` whole GPUs each."""
    refusals = [GpuRefusal(gpu.address, gpu.name, reasons) for gpu in gpus if (reasons := _not_free(gpu))]
    refused = {refusal.gpu for refusal in refusals}
    free = [gpu for gpu in gpus if gpu.address not in refused]
    sets = [*_sets(free, request.count), *_sets_with_mates(gpus, free, request.count)]
    if not sets:
        return Placement((), (*refusals, *(_too_few(gpu, len(free), request.count) for gpu in free)))
    found = {tuple(gpu.address for gpu in chosen): chosen for chosen in sets}
    taken = {gpu.address for chosen in sets for gpu in chosen}
    refusals = [refusal for refusal in refusals if refusal.gpu not in taken]
    candidates = [_candidate(chosen) for chosen in found.values()]
    candidates.sort(key=lambda item: (-item.score, [sort_key(device.gpu) for device in item.devices]))
    return Placement(tuple(candidates), tuple(refusals))


def _not_free(gpu: Gpu) -> tuple[Reason, ...]:
    if gpu.passthrough.assignable and gpu.passthrough.state in _STATE_SCORE:
        return ()
    if gpu.passthrough.reasons:
        return gpu.passthrough.reasons
    return (Reason("not-free", f"{gpu.address} is {gpu.passthrough.state}", (gpu.address,)),)


def _too_few(gpu: Gpu, free: int, wanted: int) -> GpuRefusal:
    number = f"{free} is" if free == 1 else f"{free} are"
    reason = Reason("too-few", f"{wanted} GPUs were asked for, and {number} free", (gpu.address,))
    return GpuRefusal(gpu.address, gpu.name, (reason,))


def _sets(free: Sequence[Gpu], count: int) -> Iterator[tuple[Gpu, ...]]:
    """One GPU: each of them. Several: the best of each switch, of each NUMA node, and of all."""
    if len(free) < count:
        return
    if count == 1:
        yield from ((gpu,) for gpu in free)
        return
    for near in (_by(free, _switch), _by(free, _node)):
        yield from (_best(group, count) for group in near if len(group) >= count)
    yield _best(free, count)


def _sets_with_mates(gpus: Sequence[Gpu], free: Sequence[Gpu], count: int) -> Iterator[tuple[Gpu, ...]]:
    """Sets with GPUs of one IOMMU group that only each other's host drivers keep from a VM: one can have both."""
    for mates in _by(gpus, _group):
        named = {name for gpu in mates for name in _in_host_use(gpu)}
        needed = [gpu for gpu in mates if named & _functions(gpu)]
        leaving = {name for gpu in needed for name in _functions(gpu)}
        if 0 < len(needed) <= count and all(_kept_only_by(gpu, leaving) for gpu in needed):
            others = [gpu for gpu in mates if gpu not in needed and _kept_only_by(gpu, leaving)]
            others += [gpu for gpu in free if gpu not in mates]
            if len(needed) + len(others) >= count:
                yield _in_bus_order((*needed, *_best(others, count - len(needed))))


def _in_host_use(gpu: Gpu) -> Iterator[str]:
    """Members of its group on host drivers that keep a GPU from a VM."""
    for reason in gpu.passthrough.reasons:
        if reason.code == "group-shared":
            yield from reason.addresses


def _functions(gpu: Gpu) -> set[str]:
    return {gpu.address, *(companion.address for companion in gpu.companions)}


def _kept_only_by(gpu: Gpu, leaving: set[str]) -> bool:
    """Whether nothing keeps a GPU from a VM but functions that go to that VM as well."""
    reasons = (reason for reason in gpu.passthrough.reasons if reason.code not in INFORMATIVE)
    shared = all(reason.code == "group-shared" and leaving >= set(reason.addresses) for reason in reasons)
    return shared and gpu.passthrough.state in _STATE_SCORE


def _switch(gpu: Gpu) -> str | None:
    return gpu.topology.switches[0] if gpu.topology.switches else None


def _group(gpu: Gpu) -> str | None:
    return None if gpu.function.iommu_group is None else str(gpu.function.iommu_group)


def _node(gpu: Gpu) -> str | None:
    return None if gpu.function.numa_node is None else str(gpu.function.numa_node)


def _by(gpus: Sequence[Gpu], key: Callable[[Gpu], str | None]) -> list[list[Gpu]]:
    groups: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        name = key(gpu)
        if name is not None:
            groups.setdefault(name, []).append(gpu)
    return list(groups.values())


def _best(gpus: Sequence[Gpu], count: int) -> tuple[Gpu, ...]:
    ranked = sorted(gpus, key=lambda gpu: (-_score(gpu), sort_key(gpu.address)))
    return _in_bus_order(ranked[:count])


def _in_bus_order(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    return tuple(sorted(gpus, key=lambda gpu: sort_key(gpu.address)))


def _score(gpu: Gpu) -> int:
    degraded = gpu.health.status is HealthStatus.DEGRADED
    return _STATE_SCORE[gpu.passthrough.state] - (40 if degraded else 0)


def _candidate(chosen: Sequence[Gpu]) -> Candidate:
    score = sum(_score(gpu) for gpu in chosen) // len(chosen)
    notes = [f"{gpu.address}: {_STATE_NOTE[gpu.passthrough.state]}" for gpu in chosen]
    if len(chosen) > 1:
        bonus, note = _togetherness(chosen)
        score += bonus
        notes.append(note)
    notes += [f"{gpu.address}: degraded" for gpu in chosen if gpu.health.status is HealthStatus.DEGRADED]
    groups = {gpu.function.iommu_group for gpu in chosen if gpu.function.iommu_group is not None}
    return Candidate(tuple(_device(gpu) for gpu in chosen), score, tuple(notes), tuple(sorted(groups)))


def _togetherness(chosen: Sequence[Gpu]) -> tuple[int, str]:
    switches, nodes = {_switch(gpu) for gpu in chosen}, {_node(gpu) for gpu in chosen}
    if len(switches) == 1 and None not in switches:
        return _TOGETHER, f"all behind switch {switches.pop()}"
    if len(nodes) == 1 and None not in nodes:
        return _TOGETHER // 2, f"all on NUMA node {nodes.pop()}"
    return 0, "spread over the host"


def _device(gpu: Gpu) -> AllocatedDevice:
    companions = tuple(companion.address for companion in gpu.companions)
    return AllocatedDevice(DeviceKind.GPU, gpu.address, gpu.address, companions=companions)
