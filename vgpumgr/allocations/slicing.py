"""vGPUs of allocations and of operators: made by the card's backend, remembered as theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from vgpumgr.allocations.bindings import fingerprint
from vgpumgr.allocations.setup_steps import remember_setup
from vgpumgr.allocations.vgpu_steps import ForgetVgpu, RememberVgpu
from vgpumgr.errors import Reason
from vgpumgr.model.allocation import AllocatedDevice
from vgpumgr.model.host import Gpu, HostInventory
from vgpumgr.model.records import Reservation, VgpuRecord
from vgpumgr.plans.plan import AfterCrash, Plan, Refusal, join
from vgpumgr.plans.step import Step
from vgpumgr.vgpu.changes import VgpuPlan, plan_create, plan_delete
from vgpumgr.vgpu.mdev_steps import CreateMdev
from vgpumgr.vgpu.mode_steps import nvml_of
from vgpumgr.vgpu.port import Order, Room
from vgpumgr.vgpu.sriov_steps import SetVfCount
from vgpumgr.vgpu.vendor_steps import SetVgpuType

if TYPE_CHECKING:
    from vgpumgr.allocations.desk import Desk

CREATE, DELETE = "vgpu-create", "vgpu-delete"


class Slicing:
    """Plans that make and unmake the vGPUs of one host."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._store = desk.store
        self._kernel = desk.context.kernel

    def plan_create(
        self,
        inventory: HostInventory,
        devices: Sequence[AllocatedDevice],
        owner: str,
        params: str = "",
        *,
        but_for: str | None = None,
    ) -> Plan:
        """The plan that makes these vGPUs and remembers each as ``owner``'s, or the refusal: all or nothing.

        What is promised to ``but_for`` (to the owner, unless said otherwise) is no obstacle.
        """
        promises = self._desk.promises(but_for or owner)
        plans = []
        for address, mine in groupby(devices, key=lambda device: device.gpu):
            gpu = next((item for item in inventory.gpus if item.address == address), None)
            if gpu is None:
                return Plan(CREATE, owner, refusal=_missing(address))
            planned = plan_create(
                self._kernel,
                inventory,
                gpu,
                _orders(list(mine), params),
                room=Room(),
                pending=promises.pending_vgpus.get(address),
                remembered=promises.vgpus.get(address),
                nvml=nvml_of(self._desk.context),
            )
            plans += [remembered(planned, gpu, owner, params), self._setup(planned.plan, gpu)]
        return join(CREATE, owner, *plans)

    def _setup(self, plan: Plan, gpu: Gpu) -> Plan:
        """Keeps into how many VFs a plan cuts a card on the way, so that it is cut so after the next boot."""
        counts = [step.count for step in plan.steps if isinstance(step, SetVfCount) and step.count]
        memory = [remember_setup(self._store, gpu, {"vfs": count}) for count in counts[-1:]]
        return Plan(CREATE, gpu.address, tuple(memory))

    def plan_delete(self, inventory: HostInventory, owner: str) -> Plan:
        """The plan that deletes every vGPU of ``owner`` and forgets it; empty when there is none."""
        records = [record for record in self._store.vgpus.all() if record.allocation_id == owner]
        return self.plan_delete_records(inventory, records, owner)

    def plan_delete_records(self, inventory: HostInventory, records: Sequence[VgpuRecord], subject: str) -> Plan:
        """The plan that deletes vGPUs of ours and forgets them. One that is gone already is only forgotten."""
        plans = []
        for record in records:
            gpu = next((item for item in inventory.gpus if item.address == record.gpu), None)
            forget = Plan(DELETE, record.id, (ForgetVgpu(record.id),))
            if gpu is None:
                plans.append(forget)
                continue
            deletion = plan_delete(self._kernel, inventory, gpu, [record.id], ours={record.id})
            plans += [deletion, forget]
        return join(DELETE, subject, *plans, after_crash=AfterCrash.FORWARD)


def _missing(address: str) -> Refusal:
    reason = Reason("gpu-missing", f"there is no GPU at {address} any more", (address,))
    return Refusal(reason.code, reason.message, (reason,), "look at 'vgpumgr gpu list' and ask again")


def _orders(devices: Sequence[AllocatedDevice], params: str) -> list[Order]:
    """One order for each profile, in the order they are first named."""
    counts: dict[str, int] = {}
    for device in devices:
        profile = device.profile_id or ""
        counts[profile] = counts.get(profile, 0) + 1
    return [Order(profile, count, params) for profile, count in counts.items()]


def remembered(planned: VgpuPlan, gpu: Gpu, owner: str, params: str) -> Plan:
    """The plan with a step after each vGPU that writes it into the store."""
    places: dict[str, tuple[str, ...]] = {}
    for step in planned.plan.steps:
        if isinstance(step, SetVgpuType):
            places[step.address] = (step.address, *step.spares)
        elif isinstance(step, CreateMdev):
            places[step.uuid] = (step.uuid,)
    memory: list[Step] = [
        RememberVgpu(
            places=places.get(device.handle or "", (device.handle or "",)),
            gpu=gpu.address,
            fingerprint=fingerprint(gpu),
            device_kind=str(device.kind),
            profile_id=device.profile_id or "",
            profile=device.profile or "",
            owner=owner,
            params=params,
        )
        for device in planned.devices
    ]
    plan = planned.plan
    return Plan(plan.kind, plan.subject, (*plan.steps, *memory), plan.refusal, plan.after_crash, plan.warnings)


def reservations(plan: Plan) -> Sequence[Reservation]:
    """What a plan is going to make, by card and profile."""
    made = Counter((step.gpu, step.profile_id) for step in plan.steps if isinstance(step, RememberVgpu))
    return [Reservation(gpu, profile_id, count) for (gpu, profile_id), count in made.items()]
