"""The use-cases: the one door through which REST and the command line reach everything below.

A :class:`Service` is one host's. Reading needs only a kernel; changing a host needs a :class:`Desk` (the
store, the journal and the worker behind them); virtual machines need libvirt. Heavy parts are imported
where they are used, so that a command that only reads starts fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vgpumgr.address import canonical
from vgpumgr.errors import ConflictError, UnavailableError
from vgpumgr.parts import Parts
from vgpumgr.reading import find_gpu, naming_a_gpu

if TYPE_CHECKING:
    from vgpumgr.allocations.watcher import Watcher
    from vgpumgr.model.allocation import Allocation, AllocationRequest, Placement
    from vgpumgr.model.domain import DomainInfo, GuestShape
    from vgpumgr.model.operation import Operation
    from vgpumgr.model.page import Page
    from vgpumgr.plans.plan import Plan
    from vgpumgr.store.events import Events
    from vgpumgr.store.idempotency import IdempotencyKeys

DEFAULT_TEMPLATE = "linux-compute"
KEYS_KEPT_DAYS = 7
"""Idempotency keys older than this are forgotten when the service starts."""


class Service(Parts):
    """All use-cases of one host: those of :class:`~vgpumgr.reading.Reading`, and those that change something."""

    _watcher: Watcher | None = None
    _waiting_for: Sequence[str] = ("the service to start",)

    # -- bind -----------------------------------------------------------------------------------------
    def plan_bind(
        self, address: str, *, driver: str = "auto", force: bool = False, also: Sequence[str] = ()
    ) -> Plan:
        """The plan that gives a GPU and its companions to a VFIO driver, or the refusal."""
        inventory = self.inventory()
        gpu, others = find_gpu(inventory, address), [canonical(name) for name in also]
        if self._desk is None:
            from vgpumgr.binding import plan_bind

            return plan_bind(self.kernel, inventory, gpu, driver=driver, force=force, also=others)
        from vgpumgr.allocations.bindings import plan_lasting_bind

        return plan_lasting_bind(
            self.kernel, inventory, gpu, self._desk.store, driver=driver, force=force, also=others
        )

    def plan_release(self, address: str, *, force: bool = False) -> Plan:
        """The plan that gives a GPU back to its host driver, or the refusal."""
        inventory = self.inventory()
        gpu = find_gpu(inventory, address)
        if self._desk is None:
            from vgpumgr.binding import plan_release

            return plan_release(self.kernel, inventory, gpu, force=force)
        from vgpumgr.allocations.bindings import plan_lasting_release

        return plan_lasting_release(self.kernel, inventory, gpu, self._desk.store, force=force)

    def bind(
        self, address: str, *, driver: str = "auto", force: bool = False, also: Sequence[str] = ()
    ) -> Operation:
        """Start carrying out :meth:`plan_bind`; RefusedError when refused."""
        gpu = self.gpu(address).address
        self.plan_bind(gpu, driver=driver, force=force, also=also).require()
        return self._at_desk.submit("bind", gpu, lambda: self.plan_bind(gpu, driver=driver, force=force, also=also))

    def release(self, address: str, *, force: bool = False) -> Operation:
        """Start carrying out :meth:`plan_release`; RefusedError when refused."""
        gpu = self.gpu(address).address
        self.plan_release(gpu, force=force).require()
        return self._at_desk.submit("release", gpu, lambda: self.plan_release(gpu, force=force))

    def restore_bindings(self) -> Sequence[Operation]:
        """Bind again what was bound before the reboot (``vgpumgr-bind.service``); waits for the end.

        A binding that cannot be restored is an operation that failed; the others go on.
        """
        from vgpumgr.allocations.bindings import restore_bindings

        return restore_bindings(self._at_desk)

    def plan_restore_slices(self) -> Sequence[Plan]:
        """What a reboot or a driver reload took: a plan for each card and vGPU, in order; none when all is there.

        What waits for an earlier plan has no steps yet, and a warning that says so.
        """
        from vgpumgr.allocations.restore import missing_pieces

        return [piece.now for piece in missing_pieces(self._at_desk, self._look_to_restore)]

    def start_restore_slices(self) -> Sequence[Operation]:
        """Begin to cut cards and make our vGPUs again: MIG, then VFs, then vGPUs; one operation for each.

        What cannot be restored is an operation that fails; the others go on.
        """
        from vgpumgr.allocations.restore import start_restore

        return start_restore(self._at_desk, self._look_to_restore, self._manager.renew_handles)

    def restore_slices(self) -> Sequence[Operation]:
        """The same, and wait for the end."""
        return [self._at_desk.wait(operation.id, None) for operation in self.start_restore_slices()]

    # -- allocate -------------------------------------------------------------------------------------
    def plan_allocation(self, request: AllocationRequest) -> Plan:
        """What :meth:`allocate` would do to the host (dry run), or the refusal with every GPU's reasons."""
        request, placement = self._placed(request)
        if not placement.candidates:
            return no_candidate(request, placement)
        return self._manager.plan_candidate(request, placement.candidates[0])

    def allocate(self, request: AllocationRequest) -> Allocation:
        """Claim, then start preparing. RefusedError ``no-candidate`` with reasons when nothing fits.

        The allocation's ``operation_id`` names the operation that prepares it. When another request takes the
        best candidate in between, the next one is tried. NotFoundError ``gpu-unknown`` when the request names a
        GPU that is not there; UnavailableError when libvirt, which knows who has what, does not answer.
        """
        with self._at_desk.admission():
            request, placement = self._placed(request)
            for candidate in placement.candidates:
                try:
                    return self._manager.allocate(request, candidate)
                except ConflictError as error:
                    if error.code != "already-claimed":
                        raise
        no_candidate(request, placement).require()
        raise ConflictError(
            "every candidate was taken by another request meanwhile", hint="ask again", code="already-claimed"
        )

    def _placed(self, request: AllocationRequest) -> tuple[AllocationRequest, Placement]:
        """The request with its GPU's own address, and where it fits on the host as preparing will see it."""
        from vgpumgr.placement import place

        inventory = self._look_but_for(None)
        request = naming_a_gpu(inventory, request)
        return request, place(inventory, request)

    def allocations(
        self,
        *,
        state: str | None = None,
        vm: str | None = None,
        tenant: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Allocation]:
        """Allocations, newest first."""
        from vgpumgr.allocations.missing import with_warnings
        from vgpumgr.model.page import Page

        states = [state] if state is not None else []
        page = self._at_desk.store.allocations.list(states=states, vm=vm, tenant=tenant, limit=limit, cursor=cursor)
        items = tuple(with_warnings(self.kernel, item) for item in page.items)
        return Page(items, page.next_cursor)

    def allocation(self, allocation_id: str) -> Allocation:
        """One allocation, with warnings of what is gone of it. NotFoundError ``allocation-unknown``."""
        from vgpumgr.allocations.missing import with_warnings

        return with_warnings(self.kernel, self._at_desk.store.allocations.get(allocation_id))

    def release_allocation(self, allocation_id: str, *, generation: int | None = None) -> Allocation:
        """Start releasing (idempotent): vGPUs deleted, GPUs given back. RefusedError ``vm-running``."""
        allocation = self.allocation(allocation_id)
        if self._hypervisor is not None and allocation.state not in ("released", "releasing"):
            self._machines.refuse_running(allocation)
            self._machines.forget(allocation)
        return self._manager.release(allocation_id, generation)

    def plan_release_allocation(self, allocation_id: str) -> Plan:
        """What :meth:`release_allocation` would do to the host (dry run)."""
        allocation = self.allocation(allocation_id)
        if self._hypervisor is not None:
            self._machines.refuse_running(allocation)
        return self._manager.plan_release(allocation)

    def allocation_xml(
        self, allocation_id: str, *, template: str = DEFAULT_TEMPLATE, shape: GuestShape | None = None
    ) -> str:
        """The libvirt domain XML of an allocation that is ready. ConflictError ``allocation-not-ready``."""
        return self._machines.xml(self.allocation(allocation_id), template, shape or default_shape())

    # -- virtual machines -----------------------------------------------------------------------------
    def templates(self) -> Sequence[str]:
        """Names of the domain templates."""
        return self._machines.templates.names()

    def vms(self) -> Sequence[DomainInfo]:
        """Every libvirt domain of the host, ours and foreign."""
        return [self._machines.settled(domain) for domain in self._libvirt.domains()]

    def vm(self, name: str) -> DomainInfo:
        """One domain. NotFoundError ``vm-unknown``."""
        return self._machines.settled(self._libvirt.domain(name))

    def plan_define_vm(
        self, allocation_id: str, *, template: str = DEFAULT_TEMPLATE, shape: GuestShape | None = None
    ) -> Plan:
        """What :meth:`define_vm` would do, or the refusal with every problem."""
        return self._machines.plan_define(self.allocation(allocation_id), template, shape or default_shape())

    def define_vm(
        self, allocation_id: str, *, template: str = DEFAULT_TEMPLATE, shape: GuestShape | None = None
    ) -> Operation:
        """Start defining the allocation's VM in libvirt, after preflight. RefusedError carries the problems."""
        return self._machines.define(self.allocation(allocation_id), template, shape or default_shape())

    def plan_start_vm(self, name: str) -> Plan:
        """What :meth:`start_vm` would do, or the refusal with every problem."""
        return self._machines.plan_start(name)

    def start_vm(self, name: str) -> Operation:
        """Preflight, then begin to start it. The allocation is ``attached`` once it runs."""
        return self._machines.start(name)

    def plan_stop_vm(self, name: str, *, force: bool = False) -> Plan:
        """What :meth:`stop_vm` would do, or the refusal."""
        return self._machines.plan_stop(name, force=force)

    def stop_vm(self, name: str, *, force: bool = False) -> Operation:
        """Begin to ask the guest to shut down, or to pull the plug. Once off, the allocation is ``ready``."""
        return self._machines.stop(name, force=force)

    def plan_undefine_vm(self, name: str) -> Plan:
        """What :meth:`undefine_vm` would do, or the refusal."""
        return self._machines.plan_undefine(name)

    def undefine_vm(self, name: str) -> Operation:
        """Begin to remove the (stopped) domain's definition; ours only."""
        return self._machines.undefine(name)

    # -- operations -----------------------------------------------------------------------------------
    def operations(
        self, *, state: str | None = None, subject: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[Operation]:
        """Operations, newest first."""
        return self._at_desk.store.operations.list(state=state, subject=subject, limit=limit, cursor=cursor)

    def operation(self, operation_id: str) -> Operation:
        """One operation with its steps. NotFoundError ``operation-unknown``."""
        return self._at_desk.store.operations.get(operation_id)

    def wait(self, operation_id: str, seconds: float | None) -> Operation:
        """The operation once it is final, or as it is after ``seconds`` (``None``: however long it takes)."""
        return self._at_desk.wait(operation_id, seconds)

    # -- life -----------------------------------------------------------------------------------------
    @property
    def events(self) -> Events:
        """What happened on this host: to read, and to follow."""
        return self._at_desk.store.events

    @property
    def idempotency(self) -> IdempotencyKeys:
        """Answers to requests that carried an idempotency key."""
        return self._at_desk.store.idempotency

    def watch(self) -> Watcher:
        """Look at the host, and be ready to write down from now on what comes and goes (:meth:`Watcher.start`)."""
        from vgpumgr.allocations.watcher import Watcher

        self._watcher = Watcher(self.kernel, self._at_desk.store.events, self._manager.live)
        return self._watcher

    def start(self) -> None:
        """Reconcile: finish or take back what a crash cut short, restore bindings; readiness comes after."""
        desk = self._at_desk
        self._waiting_for = ["operations that were cut short"]
        self._manager.recover(desk.recover())
        self._waiting_for = ["bindings to be restored"]
        self.restore_bindings()
        self._waiting_for = ["cards to be cut and vGPUs to be made again"]
        self.restore_slices()
        self._waiting_for = ["libvirt to say which virtual machines run"]
        self._reconcile_machines()
        desk.store.idempotency.expire(before=_days_ago(KEYS_KEPT_DAYS))
        self._waiting_for = []

    def _reconcile_machines(self) -> None:
        """A libvirt that is not there must not keep the GPUs from being managed: it is asked again at each look."""
        if self._hypervisor is None:
            return
        try:
            self._machines.reconcile()
        except UnavailableError as error:
            import logging

            logging.getLogger(__name__).warning("virtual machines could not be looked at: %s", error)

    def ready(self) -> tuple[bool, Sequence[str]]:
        """Whether the service may be used, and what it waits for."""
        waiting_for = self._waiting_for if self._desk is not None else ()
        return not waiting_for, waiting_for

    def close(self) -> None:
        """Let running work end, close the store and libvirt."""
        if self._watcher is not None:
            self._watcher.stop()
        if self._desk is not None:
            self._desk.close()
        if self._hypervisor is not None:
            self._hypervisor.close()


def default_shape() -> GuestShape:
    """The guest of a request that says nothing about it."""
    from vgpumgr.model.domain import GuestShape

    return GuestShape()


def no_candidate(request: AllocationRequest, placement: Placement) -> Plan:
    """The refusal that says of every GPU that was asked for why it will not do; empty of steps."""
    from vgpumgr.plans.plan import Plan, Refusal

    wanted = f"{request.count} × {request.profile or 'GPU'}" + (f" on {request.gpu}" if request.gpu else "")
    asked = [refusal for refusal in placement.refusals if request.gpu in (None, refusal.gpu)]
    reasons = tuple(reason for refusal in asked for reason in refusal.reasons)
    message = f"nothing on this host can give {request.vm} {wanted}"
    hint = "the reasons say what stands in the way of each GPU; 'vgpumgr host doctor' says what to do about it"
    return Plan("allocation-prepare", request.vm, refusal=Refusal("no-candidate", message, reasons, hint))


def _days_ago(days: int) -> str:
    """A time as the store writes it."""
    from datetime import UTC, datetime, timedelta

    return (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
