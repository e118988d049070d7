"""Whether a whole GPU can go to a VM, who has it now, and every reason against it (see ``model/reasons.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vgpumgr.errors import Reason, counted
from vgpumgr.model.host import (
    Blocker,
    Companion,
    Gpu,
    GpuKind,
    Health,
    HealthStatus,
    Holder,
    IommuGroup,
    IommuState,
    Passthrough,
    PassthroughState,
    Sriov,
)
from vgpumgr.model.pci import PciFunction
from vgpumgr.model.reasons import INFORMATIVE

_STUB = "pci-stub"


class Situation(NamedTuple):
    """All that the verdict on one GPU rests on. ``holders`` are those of the GPU, its companions and its group."""

    function: PciFunction
    kind: GpuKind
    boot_display: bool
    companions: tuple[Companion, ...]
    iommu: IommuState
    group: IommuGroup | None
    health: Health
    sriov: Sriov | None
    holders: tuple[Holder, ...]
    holders_known: bool
    vfio_members: frozenset[str]
    """Members of the group (the GPU among them) that are on VFIO drivers."""


def judge(situation: Situation) -> Passthrough:
    """The verdict; ``assignable`` when vgpumgr can give the GPU to a VM without being overruled."""
    reasons = (
        *_kind(situation),
        *_health(situation),
        *_iommu(situation),
        *_console(situation),
        *_shared_group(situation),
        *_virtual_functions(situation),
        *_use(situation),
    )
    state = _state(situation, reasons)
    if state is PassthroughState.PARKED:
        reasons += (_parked(situation),)
    elif state is PassthroughState.UNKNOWN:
        reasons += (_owner_unknown(situation),)
    return Passthrough(_assignable(reasons), state, reasons)


def with_occupancy(
    gpu: Gpu,
    *,
    owners: Sequence[Holder] = (),
    live_vgpus: Sequence[str] = (),
    promised_vgpus: int = 0,
    reserved_for: str | None = None,
    failed: str | None = None,
) -> Gpu:
    """The same GPU with what only the rest of the house knows.

    ``owners``: VMs that have the GPU (holders of kind ``vm``); ``live_vgpus``: ids of vGPUs in being on the
    card; ``promised_vgpus``: how many more are to be made on it; ``reserved_for``: the allocation that has a
    claim on it; ``failed``: why it is quarantined.
    """
    old = gpu.passthrough
    reasons, state = list(old.reasons), old.state
    if live_vgpus:
        lives = counted(len(live_vgpus), "vGPU lives", "vGPUs live")
        message = f"{lives} on the card: {', '.join(live_vgpus)}"
        reasons.append(Reason("vgpu-live", message, tuple(live_vgpus)))
    if promised_vgpus:
        message = f"vGPUs are promised on {gpu.address} that are not there yet: {promised_vgpus}"
        reasons.append(Reason("vgpu-promised", message, (gpu.address,)))
    if reserved_for is not None:
        reasons.append(Reason("reserved", f"{gpu.address} is reserved for {reserved_for}", (gpu.address,)))
        state = PassthroughState.RESERVED
    if owners:
        whose = ", ".join(f"{owner.address} belongs to {owner.name}" for owner in owners)
        reasons.append(Reason("in-use", whose, tuple(owner.address for owner in owners)))
        state = PassthroughState.IN_USE
    if failed is not None:
        reasons.append(Reason("failed", f"{gpu.address} is quarantined: {failed}", (gpu.address,)))
    if failed is not None or old.state is PassthroughState.FAILED:
        state = PassthroughState.FAILED
    elif old.state is PassthroughState.IN_USE:
        state = PassthroughState.IN_USE
    if state is not PassthroughState.UNKNOWN:
        reasons = [reason for reason in reasons if reason.code != "owner-unknown"]
    verdict = Passthrough(_assignable(tuple(reasons)), state, tuple(reasons))
    return gpu._replace(passthrough=verdict, holders=(*gpu.holders, *owners))


def _assignable(reasons: tuple[Reason, ...]) -> bool:
    return all(reason.code in INFORMATIVE for reason in reasons)


def _kind(situation: Situation) -> list[Reason]:
    name = situation.function.address
    if situation.kind is GpuKind.BMC_VGA:
        return [Reason("kind-not-offered", f"{name} is a management display, the server's own console", (name,))]
    if situation.kind is GpuKind.NVSWITCH:
        return [Reason("kind-not-offered", f"{name} is a fabric switch that all GPUs share", (name,))]
    return []


def _health(situation: Situation) -> list[Reason]:
    if situation.health.status is not HealthStatus.FAILED:
        return []
    return [Reason("failed", reason.message, reason.addresses) for reason in situation.health.reasons]


def _iommu(situation: Situation) -> list[Reason]:
    name = situation.function.address
    if not situation.iommu.active:
        return [Reason("iommu-inactive", f"IOMMU not active: {name} cannot be isolated for a VM", (name,))]
    if situation.group is None:
        return [Reason("no-iommu-group", f"{name} is in no IOMMU group, though the IOMMU is active", (name,))]
    return []


def _console(situation: Situation) -> list[Reason]:
    name = situation.function.address
    reasons = []
    if situation.boot_display:
        reasons.append(Reason("boot-display", f"{name} is the boot display: the host's console is on it", (name,)))
    for holder in situation.holders:
        if holder.kind == "framebuffer":
            message = f"boot framebuffer ({holder.name}) owns part of {holder.detail} of {holder.address}"
            reasons.append(Reason("framebuffer-held", message, (holder.address,)))
    return reasons


def _shared_group(situation: Situation) -> list[Reason]:
    """Strangers in host use bar the way; the card's own functions on host drivers alone do not."""
    group = situation.group
    if group is None:
        return []
    own = {situation.function.address, *(companion.address for companion in situation.companions)}
    if all(blocker.address in own for blocker in group.blockers):
        return []
    others = [blocker for blocker in group.blockers if blocker.address != situation.function.address]
    shown = ", ".join(_describe(blocker, situation.holders) for blocker in others)
    count = "another endpoint" if len(others) == 1 else f"{len(others)} other endpoints"
    message = f"IOMMU group {group.id} holds {count} in host use: {shown}"
    return [Reason("group-shared", message, tuple(blocker.address for blocker in others))]


def _describe(blocker: Blocker, holders: Sequence[Holder]) -> str:
    used = [f"{holder.kind} {holder.name}" for holder in holders if holder.address == blocker.address]
    return f"{blocker.address} ({', '.join((blocker.driver or 'driver unknown', *used))})"


def _virtual_functions(situation: Situation) -> list[Reason]:
    sriov = situation.sriov
    count = max(sriov.num_vfs, len(sriov.vfs)) if sriov is not None else 0
    if sriov is None or count == 0:
        return []
    name = situation.function.address
    enabled = counted(count, f"virtual function of {name} is", f"virtual functions of {name} are")
    return [Reason("vfs-enabled", f"{enabled} enabled: it cannot go as a whole", sriov.vfs)]


def _use(situation: Situation) -> list[Reason]:
    own = {situation.function.address, *(companion.address for companion in situation.companions)}
    reasons = []
    for holder in situation.holders:
        if holder.kind == "framebuffer":
            continue
        if holder.address in situation.vfio_members:
            reasons.append(
                Reason("in-use", f"{_who(holder)} holds {holder.address} through VFIO", (holder.address,))
            )
        elif holder.address in own:
            reasons.append(Reason("in-use-by-host", f"{_who(holder)} uses {holder.address}", (holder.address,)))
    return reasons


def _who(holder: Holder) -> str:
    who = f"{holder.kind} {holder.name}"
    if holder.pid is not None:
        who += f" (pid {holder.pid})"
    return f"{who}, {holder.detail}," if holder.detail else who


def _state(situation: Situation, reasons: Sequence[Reason]) -> PassthroughState:
    if situation.health.status is HealthStatus.FAILED:
        return PassthroughState.FAILED
    function = situation.function
    if not function.vfio:
        if _may_be_held_unseen(situation):
            return PassthroughState.UNKNOWN
        off_host = function.driver is None or function.driver == _STUB
        return PassthroughState.PARKED if off_host else PassthroughState.HOST
    if any(reason.code == "in-use" for reason in reasons):
        return PassthroughState.IN_USE
    if situation.group is None or situation.group.blockers:
        # The kernel lets nobody claim such a group, so nobody can be using it.
        return PassthroughState.PARKED
    return PassthroughState.READY if situation.holders_known else PassthroughState.UNKNOWN


def _may_be_held_unseen(situation: Situation) -> bool:
    """A viable group goes to its owner as a whole: members on VFIO may make it a VM's, unbound GPUs and all."""
    viable = situation.group is not None and not situation.group.blockers
    return viable and bool(situation.vfio_members) and not situation.holders_known


def _parked(situation: Situation) -> Reason:
    name, group = situation.function.address, situation.group
    if not situation.function.vfio:
        return Reason("parked", f"{name} is bound to {situation.function.driver or 'no driver'}", (name,))
    if group is None:
        return Reason("parked", f"{name} is on {situation.function.driver} without an IOMMU group", (name,))
    blockers = ", ".join(f"{blocker.address} ({blocker.driver or 'driver unknown'})" for blocker in group.blockers)
    addresses = tuple(blocker.address for blocker in group.blockers)
    return Reason(
        "parked", f"IOMMU group {group.id} is not viable: {blockers} must leave the host driver", addresses
    )


def _owner_unknown(situation: Situation) -> Reason:
    name = situation.function.address
    where = f"on {situation.function.driver}" if situation.function.vfio else "in a group with functions on VFIO"
    message = f"{name} is {where}, and open files of other processes cannot be read here"
    return Reason("owner-unknown", message, (name,))
