"""Virtual machines of allocations: composed, checked, defined, started, stopped. Foreign ones are left alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from uuid import NAMESPACE_URL, uuid5

from vgpumgr.allocations.desk import Desk
from vgpumgr.allocations.manager import Manager
from vgpumgr.domain.composer import compose, functions_of
from vgpumgr.domain.document import NAMESPACE, parse_domain
from vgpumgr.domain.preflight import check
from vgpumgr.domain.templates import Templates
from vgpumgr.errors import ConflictError, FailedError, Reason, RefusedError, VgpumgrError
from vgpumgr.hypervisor.port import Hypervisor
from vgpumgr.hypervisor.steps import DefineDomain, StartDomain, StopDomain, UndefineDomain, find_domain
from vgpumgr.model.allocation import AllocatedDevice, Allocation, AllocationState, DeviceKind
from vgpumgr.model.domain import CheckResult, DomainInfo, DomainRequest, GuestDevice, GuestShape, count_cpus
from vgpumgr.model.host import HostInventory
from vgpumgr.model.operation import Operation
from vgpumgr.plans.plan import Plan, Refusal
from vgpumgr.plans.runner import Outcome

_DEFINABLE = (AllocationState.READY, AllocationState.ATTACHED)
_WIDE_BAR = 1 << 28


class Machines:
    """VMs of one host."""

    def __init__(
        self,
        desk: Desk,
        manager: Manager,
        hypervisor: Hypervisor,
        templates: Templates,
        look: Callable[[str | None], HostInventory],
    ) -> None:
        self._desk = desk
        self._manager = manager
        self._hypervisor = hypervisor
        self.templates = templates
        self._look = look

    def xml(self, allocation: Allocation, template: str, shape: GuestShape) -> str:
        """The domain XML of an allocation that is ready. ConflictError ``allocation-not-ready`` before that."""
        if allocation.state not in _DEFINABLE:
            raise ConflictError(
                f"allocation {allocation.id} is {allocation.state}, not ready",
                hint=_way_on(allocation),
                code="allocation-not-ready",
            )
        inventory = self._look(allocation.id)
        devices = tuple(_guest_device(device, inventory) for device in allocation.devices)
        request = DomainRequest(
            name=allocation.vm,
            uuid=_domain_uuid(allocation),
            allocation=allocation.id,
            shape=shape,
            devices=devices,
            node_cpus=self._node_cpus(devices, shape),
        )
        return compose(self.templates.load(template), request)

    def _node_cpus(self, devices: tuple[GuestDevice, ...], shape: GuestShape) -> str | None:
        """The processors beside the GPUs, when all GPUs are on one node and it has enough of them."""
        nodes = {device.numa_node for device in devices}
        node = nodes.pop() if len(nodes) == 1 else None
        cpus = self._hypervisor.capabilities().node_cpus.get(node) if node is not None else None
        return cpus if cpus is not None and count_cpus(cpus) >= shape.vcpus else None

    def plan_define(self, allocation: Allocation, template: str, shape: GuestShape) -> Plan:
        """Define the allocation's VM, or the refusal with everything that would stop it."""
        xml = self.xml(allocation, template, shape)
        existing = find_domain(self._hypervisor, allocation.vm)
        if existing is not None and existing.allocation != allocation.id:
            message = f"libvirt has a domain {allocation.vm!r} that is not of this allocation"
            return _refused("define", allocation.vm, "vm-foreign", message, "choose another name for the VM")
        result = self._check(xml, allocation)
        if result.fatal:
            return _refused_by("define", allocation.vm, result)
        prior = self._hypervisor.xml(allocation.vm) if existing is not None else ""
        return Plan("define", allocation.vm, (DefineDomain(allocation.vm, allocation.id, xml, prior),))

    def _check(self, xml: str, allocation: Allocation) -> CheckResult:
        return check(parse_domain(xml.encode()), self._look(allocation.id), self._hypervisor.owners())

    def define(self, allocation: Allocation, template: str, shape: GuestShape) -> Operation:
        """Start carrying :meth:`plan_define` out. RefusedError with the problems."""
        self.plan_define(allocation, template, shape).require()
        return self._desk.submit("define", allocation.vm, lambda: self.plan_define(allocation, template, shape))

    def plan_start(self, name: str) -> Plan:
        """Start a VM of ours, or the refusal with everything that would stop it."""
        domain = self._hypervisor.domain(name)
        if domain.allocation is None:
            return _foreign("start", name)
        if domain.state.holds_devices:
            return Plan("start", name)
        allocation = self._desk.store.allocations.get(domain.allocation)
        if allocation.state not in _DEFINABLE:
            message = f"allocation {allocation.id} of {name} is {allocation.state}"
            return _refused("start", name, "allocation-not-ready", message, "allocate anew")
        result = self._check(self._hypervisor.xml(name), allocation)
        if result.fatal:
            return _refused_by("start", name, result)
        return Plan("start", name, (StartDomain(name),))

    def start(self, name: str) -> Operation:
        """Start carrying :meth:`plan_start` out; the allocation is ``attached`` once the VM runs."""
        self.plan_start(name).require()
        return self._desk.submit("start", name, lambda: self.plan_start(name), partial(self._started, name))

    def _started(self, name: str, outcome: Outcome) -> None:
        domain = self._hypervisor.domain(name) if outcome is None else None
        if domain is not None and domain.allocation is not None:
            self._manager.attached(domain.allocation, domain.uuid)

    def plan_stop(self, name: str, *, force: bool) -> Plan:
        """Ask the guest to shut down, or pull the plug. One that is off needs nothing; a foreign one is refused."""
        domain = self._hypervisor.domain(name)
        if domain.allocation is None:
            return _foreign("stop", name)
        steps = (StopDomain(name, force),) if domain.state.holds_devices else ()
        return Plan("stop", name, steps)

    def stop(self, name: str, *, force: bool) -> Operation:
        """Start carrying :meth:`plan_stop` out. The allocation is ``ready`` again once the VM is off."""
        self.plan_stop(name, force=force).require()
        return self._desk.submit(
            "stop", name, lambda: self.plan_stop(name, force=force), partial(self._stopped, name)
        )

    def _stopped(self, name: str, outcome: Outcome) -> None:
        if outcome is None:
            self.settled(self._hypervisor.domain(name))

    def settled(self, domain: DomainInfo) -> DomainInfo:
        """Note what a look at a domain of ours tells of its allocation: a guest may go off by itself."""
        if domain.allocation is not None and not domain.state.holds_devices:
            self._manager.detached(domain.allocation)
        return domain

    def reconcile(self) -> None:
        """Bring allocations in line with what libvirt shows: VMs start and stop while nobody looks."""
        domains = {domain.allocation: domain for domain in self._hypervisor.domains()}
        for allocation in self._manager.live(_DEFINABLE):
            domain = domains.get(allocation.id)
            if domain is not None and domain.state.holds_devices:
                self._manager.attached(allocation.id, domain.uuid)
            else:
                self._manager.detached(allocation.id)

    def plan_undefine(self, name: str) -> Plan:
        """Remove the definition of a VM of ours that is off, or the refusal."""
        domain = self._hypervisor.domain(name)
        if domain.allocation is None:
            return _foreign("undefine", name)
        if domain.state.holds_devices:
            return _refused("undefine", name, "vm-running", f"the VM {name} is running", f"vgpumgr vm stop {name}")
        return Plan("undefine", name, (UndefineDomain(name, self._hypervisor.xml(name)),))

    def undefine(self, name: str) -> Operation:
        """Start carrying :meth:`plan_undefine` out."""
        self.plan_undefine(name).require()
        return self._desk.submit("undefine", name, lambda: self.plan_undefine(name))

    def refuse_running(self, allocation: Allocation) -> None:
        """Raise RefusedError ``vm-running`` while a domain holds a device of the allocation."""
        owners = self._hypervisor.owners()
        for device in allocation.devices:
            for key in (device.handle, *device.companions):
                if key is not None and key in owners:
                    raise RefusedError(
                        f"the VM {owners[key]} has {key} of allocation {allocation.id}",
                        hint=f"stop it first: vgpumgr vm stop {owners[key]}",
                        reasons=[Reason("vm-running", f"{owners[key]} is running", (key,))],
                        code="vm-running",
                    )

    def forget(self, allocation: Allocation) -> None:
        """Remove the definition that was made for an allocation, if there is one."""
        domain = find_domain(self._hypervisor, allocation.vm)
        if domain is not None and domain.allocation == allocation.id:
            self._hypervisor.undefine(allocation.vm)


def raise_failure(operation: Operation) -> None:
    """Raise what a finished operation failed with."""
    if operation.state == "succeeded":
        return
    body = operation.error or {}
    error: VgpumgrError = FailedError(
        str(body.get("message", f"operation {operation.id} is {operation.state}")),
        hint=str(body.get("hint", "")),
        reasons=[
            Reason(str(item["code"]), str(item["message"]), tuple(item["addresses"]))
            for item in body.get("reasons", [])
        ],
        code=str(body.get("code", "failed")),
    )
    raise error


def _way_on(allocation: Allocation) -> str:
    """What to do about an allocation that is not ready: only one that is being prepared comes to be."""
    operation = f"vgpumgr op show {allocation.operation_id}"
    if allocation.state in (AllocationState.REQUESTED, AllocationState.RESERVED, AllocationState.PREPARING):
        return f"wait for its operation: {operation}"
    if allocation.state is AllocationState.FAILED:
        return f"'{operation}' says why; allocate anew"
    return "allocate anew"


def _domain_uuid(allocation: Allocation) -> str:
    """Always the same for one allocation, so that defining twice changes one domain."""
    return allocation.domain_uuid or str(uuid5(NAMESPACE_URL, f"{NAMESPACE}/{allocation.id}"))


def _guest_device(device: AllocatedDevice, inventory: HostInventory) -> GuestDevice:
    gpu = next((item for item in inventory.gpus if item.address == device.gpu), None)
    node = gpu.function.numa_node if gpu is not None else None
    if device.kind is DeviceKind.MDEV:
        return GuestDevice(mdev=device.handle, display=True, numa_node=node)
    if device.kind is DeviceKind.GPU:
        bars = sum(bar.size for bar in gpu.bars if bar.size >= _WIDE_BAR) if gpu is not None else 0
        return GuestDevice(functions_of(device.gpu, device.companions), numa_node=node, bar_bytes=bars)
    return GuestDevice((device.handle or "",), numa_node=node)


def _foreign(kind: str, name: str) -> Plan:
    message = f"the domain {name} is not one of vgpumgr's"
    return _refused(kind, name, "vm-foreign", message, "use virsh, or its own manager")


def _refused(kind: str, name: str, code: str, message: str, hint: str) -> Plan:
    return Plan(kind, name, refusal=Refusal(code, message, (Reason(code, message),), hint))


def _refused_by(kind: str, name: str, result: CheckResult) -> Plan:
    """A refusal with every problem that would stop the VM."""
    reasons = tuple(
        Reason(problem.code, problem.message, problem.addresses)
        for problem in result.problems
        if problem.severity == "error"
    )
    message = f"the VM {name} could not start: {reasons[0].message}"
    return Plan(kind, name, refusal=Refusal("preflight-failed", message, reasons, "mend these, then try again"))
