"""The life of an allocation: claim in the store first, then touch the host; release by id, never by guess."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from vgpumgr.allocations.bindings import plan_lasting_bind, plan_lasting_release
from vgpumgr.allocations.desk import Desk
from vgpumgr.allocations.states import sources
from vgpumgr.allocations.steps import ForgetBinding
from vgpumgr.errors import RefusedError, VgpumgrError
from vgpumgr.model.allocation import (
    AllocatedDevice,
    Allocation,
    AllocationRequest,
    AllocationState,
    Candidate,
    DeviceKind,
)
from vgpumgr.model.host import HostInventory, PassthroughState
from vgpumgr.model.operation import Operation
from vgpumgr.plans.checks import CheckGroup
from vgpumgr.plans.plan import AfterCrash, Plan, join
from vgpumgr.plans.runner import Outcome
from vgpumgr.store.allocations import Claim

State = AllocationState
PREPARE, RELEASE = "allocation-prepare", "allocation-release"


class Slicer(Protocol):
    """Who makes the vGPUs of an allocation, and unmakes them."""

    def plan_create(self, inventory: HostInventory, devices: Sequence[AllocatedDevice], owner: str) -> Plan:
        """The plan that makes these vGPUs and remembers each as the allocation's (``owner``), or the refusal."""
        ...

    def plan_delete(self, inventory: HostInventory, owner: str) -> Plan:
        """The plan that deletes every vGPU of the allocation and forgets it; empty when there is none."""
        ...


class Manager:
    """Allocations of one host.

    ``look`` gives the host as it is now, with what is promised to all allocations but the one that is named.
    """

    def __init__(self, desk: Desk, look: Callable[[str | None], HostInventory], slicer: Slicer) -> None:
        self._desk = desk
        self._look = look
        self._slicer = slicer
        self._store = desk.store

    # -- allocate -------------------------------------------------------------------------------------
    def allocate(self, request: AllocationRequest, candidate: Candidate) -> Allocation:
        """Claim a candidate's devices and start preparing them. ConflictError when another was faster."""
        now = self._store.now()
        allocation = Allocation(
            id=self._desk.new_id(),
            host_id=self._store.host_id,
            tenant=request.tenant,
            vm=request.vm,
            state=State.RESERVED,
            generation=1,
            request=request,
            devices=candidate.devices,
            created_at=now,
            updated_at=now,
            operation_id=self._desk.new_id(),
        )
        self._store.allocations.add(allocation, _claims(allocation, candidate.groups), PREPARE)
        try:
            return self._prepare(allocation)
        except VgpumgrError as error:
            self._take_back(allocation, error)
            raise

    def plan_candidate(self, request: AllocationRequest, candidate: Candidate) -> Plan:
        """What preparing a candidate would do to the host; nothing is claimed."""
        now = self._store.now()
        return self.plan_prepare(
            Allocation(
                id="dry-run",
                host_id=self._store.host_id,
                tenant=request.tenant,
                vm=request.vm,
                state=State.REQUESTED,
                generation=0,
                request=request,
                devices=candidate.devices,
                created_at=now,
                updated_at=now,
            )
        )

    def _prepare(self, allocation: Allocation) -> Allocation:
        preparing = self._store.allocations.change(allocation.id, State.PREPARING, sources(State.PREPARING))
        assert allocation.operation_id is not None
        self._desk.enqueue(
            allocation.operation_id,
            partial(self.plan_prepare, preparing),
            lambda outcome: self._prepared(allocation.id, outcome),
        )
        return preparing

    def _take_back(self, allocation: Allocation, error: VgpumgrError) -> None:
        """Let go of what was claimed for an allocation whose operation could not be queued."""
        assert allocation.operation_id is not None
        self._store.operations.fail(allocation.operation_id, error.to_json())
        self._failed(allocation.id, error)

    def plan_prepare(self, allocation: Allocation) -> Plan:
        """Bind whole GPUs; make vGPUs."""
        inventory = self._look(allocation.id)
        plans = self._plan_gpus(inventory, [item for item in allocation.devices if _whole(item)], allocation.id)
        slices = [device for device in allocation.devices if not _whole(device)]
        if slices:
            plans.append(self._slicer.plan_create(inventory, slices, allocation.id))
        return join(PREPARE, allocation.id, *plans)

    def _plan_gpus(self, inventory: HostInventory, devices: Sequence[AllocatedDevice], owner: str) -> list[Plan]:
        """A plan for each, and the proof that a group which several of them share is whole in the end."""
        kernel, store = self._desk.context.kernel, self._desk.store
        addresses = {device.gpu for device in devices}
        gpus = [gpu for gpu in inventory.gpus if gpu.address in addresses]
        leaving = {name for device in devices for name in (device.gpu, *device.companions)}
        plans = [plan_lasting_bind(kernel, inventory, gpu, store, leaving=leaving, owner=owner) for gpu in gpus]
        groups = Counter(gpu.function.iommu_group for gpu in gpus)
        checks = [
            CheckGroup(owner, group) for group, members in groups.items() if group is not None and members > 1
        ]
        return [*plans, Plan(PREPARE, owner, tuple(checks))]

    def _prepared(self, allocation_id: str, outcome: Outcome) -> None:
        allocation = self._store.allocations.get(allocation_id)
        if outcome is None:
            devices = self._with_handles(allocation)
            self._store.allocations.change(allocation_id, State.READY, sources(State.READY), devices=devices)
        else:
            self._failed(allocation_id, outcome)

    def _with_handles(self, allocation: Allocation) -> Sequence[AllocatedDevice]:
        """The devices with the vGPUs that were made for them."""
        made = [record for record in self._store.vgpus.all() if record.allocation_id == allocation.id]
        devices = []
        for device in allocation.devices:
            if _whole(device):
                devices.append(device)
                continue
            record = next(item for item in made if item.gpu == device.gpu)
            made.remove(record)
            devices.append(replace(device, kind=_KINDS[record.backend], handle=record.id))
        return devices

    def _failed(self, allocation_id: str, error: VgpumgrError) -> None:
        """Claims are kept only while something is left behind on the host."""
        left = any(reason.code == "left-behind" for reason in error.reasons)
        self._store.allocations.change(
            allocation_id, State.FAILED, sources(State.FAILED), error=error.to_json(), drop_claims=not left
        )

    def renew_handles(self) -> None:
        """After vGPUs were made again, perhaps by another interface: what libvirt shall be told of them."""
        for state in (State.READY, State.ATTACHED):
            for allocation in self._store.allocations.list(states=[state], limit=10_000).items:
                made = [item for item in self._store.vgpus.all() if item.allocation_id == allocation.id]
                if len(made) != sum(not _whole(device) for device in allocation.devices):
                    continue
                devices = tuple(self._with_handles(allocation))
                if devices != allocation.devices:
                    self._store.allocations.change(allocation.id, state, [state], devices=devices)

    # -- release --------------------------------------------------------------------------------------
    def release(self, allocation_id: str, generation: int | None = None) -> Allocation:
        """Start releasing. One that is released, or being released, is answered as it is."""
        allocation = self._store.allocations.get(allocation_id)
        if allocation.state in (State.RELEASED, State.RELEASING):
            return allocation
        releasing = self._store.allocations.change(
            allocation_id,
            State.RELEASING,
            sources(State.RELEASING),
            generation=generation,
            operation=(self._desk.new_id(), RELEASE),
        )
        assert releasing.operation_id is not None
        self._desk.enqueue(
            releasing.operation_id,
            partial(self.plan_release, releasing),
            lambda outcome: self._released(allocation_id, outcome),
        )
        return releasing

    def plan_release(self, allocation: Allocation) -> Plan:
        """Delete its vGPUs; give back GPUs that were bound for it. What an operator bound stays bound."""
        inventory = self._look(allocation.id)
        plans = [self._slicer.plan_delete(inventory, allocation.id)]
        for binding in self._store.bindings.all():
            if binding.owner == allocation.id:
                plans.append(self._plan_back(inventory, binding.address))
        return join(RELEASE, allocation.id, *plans, after_crash=AfterCrash.FORWARD)

    def _plan_back(self, inventory: HostInventory, address: str) -> Plan:
        """Give a bound GPU back; one that was pulled out meanwhile is only forgotten."""
        gpu = next((item for item in inventory.gpus if item.address == address), None)
        if gpu is None:
            return Plan(RELEASE, address, (ForgetBinding(address),))
        return plan_lasting_release(self._desk.context.kernel, inventory, gpu, self._store)

    def _released(self, allocation_id: str, outcome: Outcome) -> None:
        if outcome is not None:
            self._store.allocations.change(
                allocation_id, State.FAILED, sources(State.FAILED), error=outcome.to_json()
            )
            return
        allocation = self._store.allocations.change(allocation_id, State.RELEASED, sources(State.RELEASED))
        self._quarantine_broken(allocation)

    def _quarantine_broken(self, allocation: Allocation) -> None:
        """A GPU that fails its check after use is not offered again until an operator lifts that."""
        used = {device.gpu for device in allocation.devices}
        for gpu in self._look(None).gpus:
            if gpu.address in used and gpu.passthrough.state is PassthroughState.FAILED:
                reason = next((reason.message for reason in gpu.passthrough.reasons), "failed its check after use")
                self._store.quarantine.put(gpu.address, reason)

    # -- attach ---------------------------------------------------------------------------------------
    def attached(self, allocation_id: str, domain_uuid: str) -> Allocation:
        """The VM runs."""
        allocation = self._store.allocations.get(allocation_id)
        if allocation.state is State.ATTACHED:
            return allocation
        return self._store.allocations.change(
            allocation_id, State.ATTACHED, sources(State.ATTACHED), domain_uuid=domain_uuid
        )

    def detached(self, allocation_id: str) -> Allocation:
        """The VM is off."""
        allocation = self._store.allocations.get(allocation_id)
        if allocation.state is not State.ATTACHED:
            return allocation
        return self._store.allocations.change(allocation_id, State.READY, [State.ATTACHED])

    def live(self, states: Sequence[State]) -> Iterator[Allocation]:
        """Every allocation in one of these states, page by page."""
        cursor: str | None = None
        while True:
            page = self._store.allocations.list(states=states, cursor=cursor)
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    # -- after a crash --------------------------------------------------------------------------------
    def recover(self, operations: Sequence[Operation]) -> None:
        """Bring allocations in line with how their operations ended."""
        for operation in operations:
            if operation.allocation_id is None:
                continue
            allocation = self._store.allocations.get(operation.allocation_id)
            outcome = None if operation.state == "succeeded" else _as_error(operation)
            if allocation.state is State.RESERVED:
                self._failed(allocation.id, outcome or _as_error(operation))
            elif allocation.state is State.PREPARING:
                self._prepared(allocation.id, outcome)
            elif allocation.state is State.RELEASING:
                self._released(allocation.id, outcome)


_KINDS = {"mdev": DeviceKind.MDEV, "vendor-vfio": DeviceKind.TYPED_VF, "sriov": DeviceKind.VF}


def _whole(device: AllocatedDevice) -> bool:
    return device.kind is DeviceKind.GPU


def _claims(allocation: Allocation, groups: Sequence[int]) -> list[Claim]:
    """One per function of a whole GPU, one per IOMMU group, which no two VMs can share; one per vGPU to be made.

    A group's claim stands under the first GPU, as every claim stands under a GPU.
    """
    claims = [Claim(f"iommu-group/{group}", allocation.devices[0].gpu, allocation.id) for group in groups]
    for index, device in enumerate(allocation.devices):
        if _whole(device):
            resources = (device.gpu, *device.companions)
            claims += [Claim(resource, device.gpu, allocation.id) for resource in resources]
        else:
            claims.append(Claim(f"{allocation.id}/{index}", device.gpu, allocation.id, device.profile_id))
    return claims


def _as_error(operation: Operation) -> VgpumgrError:
    body = operation.error or {}
    return RefusedError(
        str(body.get("message", "the operation was interrupted")),
        hint=str(body.get("hint", "")),
        code=str(body.get("code", "interrupted")),
    )
