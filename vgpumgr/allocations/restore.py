"""After a reboot or a driver reload: cards are cut as they were, then our vGPUs are made again.

The order is MIG mode, virtual functions, GPU instances and other modes, vGPUs: each is lost when one before it
changes. vGPUs come back by profile and card, so they survive a kernel that brings another interface.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from vgpumgr.allocations.bindings import fingerprint
from vgpumgr.allocations.desk import Desk
from vgpumgr.allocations.slicing import remembered
from vgpumgr.allocations.vgpu_steps import ForgetVgpu, RememberVgpu
from vgpumgr.errors import Reason
from vgpumgr.model.host import Gpu, HostInventory
from vgpumgr.model.operation import Operation
from vgpumgr.model.records import OPERATOR, CardSetup, VgpuRecord
from vgpumgr.model.vgpu import Backend, Profile
from vgpumgr.plans.plan import Plan, Refusal
from vgpumgr.vgpu.changes import plan_create
from vgpumgr.vgpu.mode_steps import nvml_of
from vgpumgr.vgpu.modes import Modes, plan_modes
from vgpumgr.vgpu.names import type_number
from vgpumgr.vgpu.nvml_port import Scheduler
from vgpumgr.vgpu.port import Order, Room, random_uuid
from vgpumgr.vgpu.vf_plans import plan_slice

CARD, VGPU = "restore-card", "restore-vgpu"

Look = Callable[[], HostInventory]
Phase = Callable[[Desk, Gpu, CardSetup], Plan]


@dataclass(frozen=True, slots=True)
class Piece:
    """Something that is missing: ``now`` is what can be said of it at present, ``plan`` makes the plan on the host
    as it is when its turn comes.
    """

    now: Plan
    plan: Callable[[], Plan]


def missing_pieces(desk: Desk, look: Look) -> Sequence[Piece]:
    """What is recorded and not on the host, in the order in which it must come back; none: all is there.

    What waits for an earlier piece of the same card cannot be planned yet; ``now`` says so as a warning.
    """
    inventory = look()
    found: list[Piece] = []
    changing: set[str] = set()
    refused: set[tuple[str, str]] = set()
    for phase in (_plan_mig, _plan_vfs, _plan_modes):
        for setup in desk.store.setups.all():
            now = _on_card(desk, lambda: inventory, setup, phase)
            if setup.address in changing and phase is _plan_modes and _modes(setup) != Modes():
                now = _later(CARD, setup.address, f"the modes of {setup.address}")
            elif now.refusal is not None and (setup.address, now.refusal.code) in refused:
                continue
            if now.refusal is not None:
                refused.add((setup.address, now.refusal.code))
            if _says_something(now):
                found.append(Piece(now, partial(_card_again, desk, look, setup.address, phase)))
            if now.steps:
                changing.add(setup.address)
    for record in desk.store.vgpus.all():
        now = plan_restore_vgpu(desk, lambda: inventory, record)
        if record.gpu in changing and _says_something(now):
            now = _later(VGPU, record.id, f"{record.profile} on {record.gpu}")
        if _says_something(now):
            found.append(Piece(now, partial(_vgpu_again, desk, look, record.id)))
    return found


def start_restore(desk: Desk, look: Look, ended: Callable[[], None]) -> Sequence[Operation]:
    """Queue an operation for each missing piece; ``ended`` is called after each. What cannot come back is an
    operation that fails; the others go on.
    """
    return [
        desk.submit(piece.now.kind, piece.now.subject, piece.plan, lambda outcome: ended())
        for piece in missing_pieces(desk, look)
    ]


def _says_something(plan: Plan) -> bool:
    return bool(plan.steps or plan.warnings) or plan.refusal is not None


def _later(kind: str, subject: str, what: str) -> Plan:
    message = f"{what}: planned when the card is cut as it was"
    return Plan(kind, subject, warnings=(Reason("planned-later", message, (subject,)),))


def _card_again(desk: Desk, look: Look, address: str, phase: Phase) -> Plan:
    """The plan when its turn comes: what is wanted of the card may have changed since it was asked for."""
    setup = desk.store.setups.get(address)
    return _on_card(desk, look, setup, phase) if setup is not None else Plan(CARD, address)


def _vgpu_again(desk: Desk, look: Look, vgpu_id: str) -> Plan:
    """The plan when its turn comes: the vGPU may have been deleted, or be back under another id."""
    record = desk.store.vgpus.get(vgpu_id)
    return plan_restore_vgpu(desk, look, record) if record is not None else Plan(VGPU, vgpu_id)


def _on_card(desk: Desk, look: Look, setup: CardSetup, phase: Phase) -> Plan:
    found = _same_card(look(), setup.address, setup.fingerprint)
    if isinstance(found, Refusal):
        return Plan(CARD, setup.address, refusal=found)
    return replace(phase(desk, found, setup), kind=CARD)


def _same_card(inventory: HostInventory, address: str, wanted: str) -> Gpu | Refusal:
    """The card that was cut, if it is still there: cards may have been moved while the host was off."""
    gpu = next((item for item in inventory.gpus if item.address == address), None)
    if gpu is None:
        reason = Reason("gpu-missing", f"there is no GPU at {address} any more", (address,))
        return Refusal(reason.code, reason.message, (reason,), "was the card moved?")
    if fingerprint(gpu) != wanted:
        reason = Reason("gpu-changed", f"{address} is {fingerprint(gpu)} now, not the {wanted} it was", (address,))
        return Refusal(reason.code, reason.message, (reason,), "cards were moved: cut anew what shall be cut")
    return gpu


def _plan_mig(desk: Desk, gpu: Gpu, setup: CardSetup) -> Plan:
    if setup.mig is None or gpu.vgpu.instances:
        return Plan(CARD, gpu.address)
    return plan_modes(nvml_of(desk.context), gpu, Modes(mig=setup.mig))


def _plan_vfs(desk: Desk, gpu: Gpu, setup: CardSetup) -> Plan:
    now = gpu.sriov.num_vfs if gpu.sriov is not None else 0
    if setup.vfs is None or now >= setup.vfs > 0:
        return Plan(CARD, gpu.address)
    return plan_slice(desk.context.kernel, gpu, setup.vfs)


def _plan_modes(desk: Desk, gpu: Gpu, setup: CardSetup) -> Plan:
    wanted = _modes(setup)
    if gpu.vgpu.instances:
        wanted = replace(wanted, layout=None, mixed_size=None)
    if wanted == Modes():
        return Plan(CARD, gpu.address)
    return plan_modes(nvml_of(desk.context), gpu, wanted)


def _modes(setup: CardSetup) -> Modes:
    """The modes that come after the VFs. Error correction is not among them: the board remembers it itself."""
    scheduler = Scheduler(setup.scheduler) if setup.scheduler is not None else None
    return Modes(layout=setup.layout, mixed_size=setup.mixed_size, scheduler=scheduler)


def plan_restore_vgpu(desk: Desk, look: Look, record: VgpuRecord) -> Plan:
    """The plan that makes one of our vGPUs again; empty when it lives."""
    inventory = look()
    found = _same_card(inventory, record.gpu, record.fingerprint)
    if isinstance(found, Refusal):
        return Plan(VGPU, record.id, refusal=found)
    if _lives(inventory, found, record):
        return Plan(VGPU, record.id)
    profile = _profile_of(found, record)
    params = str(record.params.get("vgpu_params", ""))
    order = Order(profile.id if profile is not None else record.profile, 1, params)
    room = Room(new_uuid=lambda: record.id if _is_uuid(record.id) else random_uuid(), prefer=record.parent)
    kernel, nvml = desk.context.kernel, nvml_of(desk.context)
    planned = plan_create(kernel, inventory, found, [order], room=room, nvml=nvml)
    plan = remembered(planned, found, record.allocation_id or OPERATOR, params)
    places = {place for step in plan.steps if isinstance(step, RememberVgpu) for place in step.places}
    if plan.refusal is None and record.id not in places:
        plan = replace(plan, steps=(*plan.steps, ForgetVgpu(record.id)))
    return replace(plan, kind=VGPU, subject=record.id)


def _lives(inventory: HostInventory, gpu: Gpu, record: VgpuRecord) -> bool:
    """True when the vGPU is there as it was made. A plain VF must be on VFIO besides: there it was put."""
    there = any(
        vgpu.id == record.id and _same_type(vgpu.profile_id, record.profile_id) for vgpu in gpu.vgpu.instances
    )
    if not there or gpu.vgpu.backend is not Backend.SRIOV:
        return there
    return any(function.address == record.id and function.vfio for function in inventory.functions)


def _same_type(one: str, other: str) -> bool:
    """Type ids are one space in both of NVIDIA's interfaces: ``nvidia-558`` is ``558``."""
    return one == other or (type_number(one) is not None and type_number(one) == type_number(other))


def _profile_of(gpu: Gpu, record: VgpuRecord) -> Profile | None:
    """The record's profile as the card calls it now: by name first, which no interface changes."""
    by_name = (item for item in gpu.vgpu.profiles if item.name == record.profile)
    by_type = (item for item in gpu.vgpu.profiles if _same_type(item.id, record.profile_id))
    return next(by_name, None) or next(by_type, None)


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False
