"""Plans that make vGPUs and that make them go: refused before any write with the true reason, or steps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from vgpumgr.errors import Reason
from vgpumgr.inventory.reader import Reader
from vgpumgr.kernel.port import Kernel
from vgpumgr.model.allocation import AllocatedDevice
from vgpumgr.model.host import Gpu, HostInventory
from vgpumgr.model.vgpu import Backend, Vgpu, VgpuState
from vgpumgr.plans.plan import Plan, Refusal
from vgpumgr.plans.step import Step
from vgpumgr.vgpu.backends import backend_of
from vgpumgr.vgpu.cards import Card
from vgpumgr.vgpu.catalogue import name_of_type
from vgpumgr.vgpu.files import read_mdevs
from vgpumgr.vgpu.guards import not_to_be_cut
from vgpumgr.vgpu.mdev_steps import CreateMdev
from vgpumgr.vgpu.names import parse_name, same_profile
from vgpumgr.vgpu.not_ours import not_ours
from vgpumgr.vgpu.nvml_port import NvmlPort
from vgpumgr.vgpu.observe import NVIDIA, missing, read_card
from vgpumgr.vgpu.params import no_params
from vgpumgr.vgpu.port import Making, Order, Room
from vgpumgr.vgpu.profiles import state_of
from vgpumgr.vgpu.spares import skipped
from vgpumgr.vgpu.vendor_steps import SetVgpuType


@dataclass(frozen=True, slots=True)
class VgpuPlan:
    """A plan, and the vGPUs it makes. Where a bad VF was skipped, :func:`made` tells what they became."""

    plan: Plan
    devices: tuple[AllocatedDevice, ...] = ()


def plan_create(
    kernel: Kernel,
    inventory: HostInventory,
    gpu: Gpu,
    orders: Sequence[Order],
    *,
    room: Room | None = None,
    pending: Mapping[str, int] | None = None,
    nvml: NvmlPort | None = None,
    remembered: Mapping[str, str] | None = None,
) -> VgpuPlan:
    """The plan that makes every vGPU ordered on one card, or the refusal. All or nothing.

    The card is read anew. ``pending`` (profile id → count) is what others were promised on it, and so is what is
    ``remembered`` (vGPU id → profile id) and not there; each order counts as promised for the next, so that a
    conflict between them is found here and not halfway.
    """
    spoken_for = not_to_be_cut(gpu)
    if spoken_for is not None:
        return VgpuPlan(Plan("vgpu-create", gpu.address, refusal=spoken_for))
    card = _look(kernel, inventory, gpu)
    if card is None:
        return VgpuPlan(Plan("vgpu-create", gpu.address, refusal=_not_sliceable(gpu)))
    room = room or Room()
    promised = [profile_id for profile_id, count in (pending or {}).items() for _ in range(count)]
    promised += missing(remembered or {}, card)
    told = nvml.card(gpu.address) if nvml is not None and gpu.function.vendor_id == NVIDIA else None
    makings: list[Making] = []
    for index, order in enumerate(orders):
        room.later = sum(other.count for other in orders[index + 1 :])
        state = state_of(card, promised, told)
        refusal = _order_refusal(inventory, card, state, order) or _params_refusal(card, order)
        if refusal is not None:
            return VgpuPlan(Plan("vgpu-create", gpu.address, refusal=refusal))
        profile = next(item for item in state.profiles if same_profile(order.profile, item.id, item.name))
        offer = next(item for item in card.offers if item.profile_id == profile.id)
        made_here = backend_of(card.backend).create(kernel, card, offer, order, room)
        if len(made_here) < order.count:
            return VgpuPlan(Plan("vgpu-create", gpu.address, refusal=_claimed(card, order)))
        makings += made_here
        promised += [profile.id] * order.count
    steps: tuple[Step, ...] = tuple(step for making in makings for step in making.steps)
    return VgpuPlan(Plan("vgpu-create", gpu.address, steps), tuple(making.device for making in makings))


def plan_delete(
    kernel: Kernel, inventory: HostInventory, gpu: Gpu, ids: Sequence[str], *, ours: Collection[str]
) -> Plan:
    """The plan that deletes vGPUs of one card by id. What is gone already needs nothing; what is not in ``ours``
    is never touched.
    """
    card = _look(kernel, inventory, gpu)
    having = {vgpu.id: vgpu.owner for vgpu in gpu.vgpu.instances}
    live = card.instances if card is not None else ()
    known = {vgpu.id: vgpu._replace(owner=vgpu.owner or having.get(vgpu.id)) for vgpu in live}
    steps: list[Step] = []
    for wanted in ids:
        vgpu = known.get(wanted)
        if vgpu is None or card is None:
            continue
        refusal = _in_use(vgpu) if vgpu.id in ours else not_ours(inventory, gpu, vgpu)
        if refusal is not None:
            return Plan("vgpu-delete", gpu.address, refusal=refusal)
        steps += backend_of(card.backend).delete(kernel, card, vgpu)
    return Plan("vgpu-delete", gpu.address, tuple(steps))


def made(kernel: Kernel, created: VgpuPlan) -> tuple[tuple[AllocatedDevice, ...], tuple[Reason, ...]]:
    """What a carried-out plan made, read back, and the VFs that were skipped because they refused."""
    handles: dict[str, str] = {}
    refused: list[Reason] = []
    for step in created.plan.steps:
        if isinstance(step, CreateMdev | SetVgpuType):
            found = step.made(kernel)
            if found is None:
                continue
            if isinstance(step, SetVgpuType):
                handles[step.address] = found
            message = skipped(step.address, found, step.profile)
            if message is not None:
                refused.append(Reason("vf-skipped", message, (step.address,)))
    devices = tuple(_moved(device, handles) for device in created.devices)
    return devices, tuple(refused)


def _moved(device: AllocatedDevice, handles: Mapping[str, str]) -> AllocatedDevice:
    handle = handles.get(device.handle or "", device.handle)
    return AllocatedDevice(device.kind, device.gpu, handle, device.profile_id, device.profile, device.companions)


def _look(kernel: Kernel, inventory: HostInventory, gpu: Gpu) -> Card | None:
    reader = Reader(kernel)
    functions = {function.address: function for function in inventory.functions}
    return read_card(reader, gpu, read_mdevs(reader), functions) if gpu.offered else None


def _not_sliceable(gpu: Gpu) -> Refusal:
    reasons = gpu.vgpu.reasons or (
        Reason("not-capable", f"{gpu.address} cannot be sliced on this host", (gpu.address,)),
    )
    hint = f"'vgpumgr gpu slice {gpu.address}' enables them" if reasons[0].code == "vfs-off" else ""
    return Refusal(reasons[0].code, f"no vGPU can be made on {gpu.address}: {reasons[0].message}", reasons, hint)


def _order_refusal(inventory: HostInventory, card: Card, state: VgpuState, order: Order) -> Refusal | None:
    name = card.address
    if order.count < 1:
        reason = Reason("count-invalid", f"{order.count} vGPUs cannot be made", (name,))
        return Refusal(reason.code, reason.message, (reason,), "ask for one or more")
    profile = next((item for item in state.profiles if same_profile(order.profile, item.id, item.name)), None)
    if profile is None:
        return not_listed(name, state, order.profile) or _unknown_profile(inventory, card, order.profile)
    if order.count <= profile.creatable:
        return None
    limit = profile.limit or Reason(
        "max-instances", f"{name} takes at most {profile.max_instances} of {profile.name}", (name,)
    )
    return Refusal(
        "no-capacity",
        f"{profile.creatable} more of {profile.name} fit on {name}, {order.count} are asked for: {limit.message}",
        (limit,),
        "'vgpumgr profile list' shows what fits now",
    )


def not_listed(address: str, state: VgpuState, profile: str) -> Refusal | None:
    """For a profile of a board that no list of its VFs names: lists shrink to what fits beside what is there."""
    wanted = parse_name(name_of_type(profile) or profile)
    names = [parse_name(item.name) for item in state.profiles]
    boards = {name.model for name in names if name is not None}
    if state.backend is not Backend.VENDOR_VFIO or not state.instances:
        return None
    if wanted is None or wanted.series is None or wanted.model not in boards:
        return None
    live = len(state.instances)
    message = f"no virtual function of {address} offers {profile} beside the {live} vGPUs that are there"
    reason = Reason("not-offered", message, (address,))
    return Refusal("no-capacity", message, (reason,), "'vgpumgr profile list' shows what fits now")


def _params_refusal(card: Card, order: Order) -> Refusal | None:
    """Only NVIDIA's drivers take parameters for a vGPU."""
    if not order.params or (card.gpu.function.vendor_id == NVIDIA and card.backend is not Backend.SRIOV):
        return None
    reason = no_params(card.gpu)
    return Refusal(reason.code, reason.message, (reason,), "leave the parameters out")


def _claimed(card: Card, order: Order) -> Refusal:
    reason = Reason("vfs-taken", f"free virtual functions of {card.address} are claimed", (card.address,))
    return Refusal("no-capacity", f"{order.count} of {order.profile} do not fit: {reason.message}", (reason,))


def _unknown_profile(inventory: HostInventory, card: Card, wanted: str) -> Refusal:
    others = tuple(
        gpu.address
        for gpu in inventory.gpus
        if any(same_profile(wanted, item.id, item.name) for item in gpu.vgpu.profiles)
    )
    if others:
        message = f"{wanted} is a profile of {', '.join(others)}, not of {card.address}"
        reason = Reason("profile-other-card", message, others)
    else:
        reason = Reason("profile-unknown", f"{card.address} has no profile {wanted!r}", (card.address,))
    hint = f"the list of profiles shows those of {card.address}"
    return Refusal(reason.code, reason.message, (reason,), hint)


def _in_use(vgpu: Vgpu) -> Refusal | None:
    if vgpu.owner is None:
        return None
    reason = Reason("vgpu-in-use", f"the VM {vgpu.owner} has vGPU {vgpu.id}", (vgpu.id,))
    return Refusal(reason.code, reason.message, (reason,), "stop the VM, or release its allocation")
