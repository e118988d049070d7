"""The use-cases of slicing: cut cards, change their modes, make vGPUs by hand, list and delete them."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence, Set
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Protocol

from vgpumgr.address import is_address
from vgpumgr.allocations.setup_steps import remember_setup
from vgpumgr.allocations.slicing import CREATE, DELETE, Slicing, reservations
from vgpumgr.errors import NotFoundError, Reason, UnavailableError
from vgpumgr.kernel.port import Kernel
from vgpumgr.model.allocation import AllocatedDevice, DeviceKind
from vgpumgr.model.host import Gpu, HostInventory
from vgpumgr.model.operation import Operation
from vgpumgr.model.records import OPERATOR, VgpuRecord
from vgpumgr.model.vgpu import Backend, CardModes, Vgpu, VgpuView
from vgpumgr.plans.plan import Plan, Refusal
from vgpumgr.vgpu.changes import not_listed, plan_create, plan_delete
from vgpumgr.vgpu.mdev_steps import SetParams
from vgpumgr.vgpu.mode_steps import nvml_of
from vgpumgr.vgpu.modes import Modes, by_parameter, plan_modes
from vgpumgr.vgpu.names import same_profile
from vgpumgr.vgpu.nvml_port import NvmlPort
from vgpumgr.vgpu.observe import NVIDIA, read_modes
from vgpumgr.vgpu.params import KIND, LIMITER, parsed, plan_params, read_params
from vgpumgr.vgpu.port import Order
from vgpumgr.vgpu.vf_plans import plan_slice
from vgpumgr.vgpu.vf_shares import VfShare

if TYPE_CHECKING:
    from vgpumgr.allocations.desk import Desk

FindGpu = Callable[[HostInventory, str], Gpu]


class Look(Protocol):
    """The host as it is now, without what is promised to one allocation or operation."""

    def __call__(self, but_for: str | None = None) -> HostInventory:
        """Look."""
        ...


class Slices:
    """Slicing on one host. Without a desk (a command that only reads) lists and plans work, changes do not."""

    def __init__(self, kernel: Kernel, look: Look, find_gpu: FindGpu, desk: Desk | None = None) -> None:
        self._kernel = kernel
        self._look = look
        self._find_gpu = find_gpu
        self._desk = desk

    # -- see ------------------------------------------------------------------------------------------
    def vgpus(self, gpu: str | None = None) -> Sequence[VgpuView]:
        """Every vGPU of the host, ours and foreign, card by card; ours that are gone come last."""
        inventory = self._look()
        wanted = self._find_gpu(inventory, gpu).address if gpu else None
        records = self._records()
        known = {record.id: record for record in records or ()}
        strays = self._strays(inventory, known)
        views, live = [], set()
        given = {function.address for function in inventory.functions if function.vfio}
        for card in inventory.gpus:
            plain = card.vgpu.backend is Backend.SRIOV
            for vgpu in card.vgpu.instances:
                live.add(vgpu.id)
                record = known.get(vgpu.id)
                # A plain VF that is not on VFIO was given to nobody: it is neither ours nor foreign.
                nobodys = plain and record is None and vgpu.id not in given
                made = record is not None or vgpu.id in strays
                ours = made if records is not None and not nobodys else None
                view = VgpuView(vgpu, card.address, ours, record.allocation_id if record else None)
                views.append(_with_params(view, read_params(self._kernel, vgpu.id)) if _has_params(card) else view)
        views += [_gone(record) for record in records or () if record.id not in live]
        return [view for view in views if wanted in (None, view.gpu)]

    def _strays(self, inventory: HostInventory, known: Container[str]) -> Set[str]:
        """Mediated devices in no record with a UUID that a plan of ours gave out, and did not get to its end: they
        are being made, or came after all from a write that was given up at its deadline.
        """
        live = (vgpu.id for card in inventory.gpus for vgpu in card.vgpu.instances)
        nameless = [vgpu for vgpu in live if vgpu not in known and not is_address(vgpu)]
        if self._desk is None or not nameless:
            return frozenset()
        from vgpumgr.allocations.vgpu_steps import RememberVgpu

        return self._desk.store.operations.not_finished(nameless, RememberVgpu.kind)

    def vgpu(self, vgpu_id: str) -> VgpuView:
        """One vGPU by UUID or VF address. NotFoundError ``vgpu-unknown``."""
        found = next((view for view in self.vgpus() if view.vgpu.id == vgpu_id), None)
        if found is None:
            raise NotFoundError(
                f"there is no vGPU {vgpu_id}", hint="'vgpumgr vgpu list' shows them", code="vgpu-unknown"
            )
        return found

    def modes(self, address: str) -> CardModes:
        """The modes of one card, as far as NVIDIA's driver and its parameters tell them."""
        gpu, nvml = self._find_gpu(self._look(), address), self._nvml()
        told = nvml.card(gpu.address)
        return read_modes(self._kernel, gpu.address, nvml.label, told) or CardModes(gpu.address, nvml.label)

    # -- cut ------------------------------------------------------------------------------------------
    def plan_slice(self, address: str, vfs: int | None = None, share: VfShare | None = None) -> Plan:
        """The plan that leaves a card with that many VFs (``None``: all, 0: none), kept over reboots."""
        gpu = self._find_gpu(self._look(), address)
        claimed = {record.id for record in self._records() or ()}
        plan = plan_slice(self._kernel, gpu, vfs, share, claimed=claimed, nvml=self._nvml())
        total = gpu.sriov.total_vfs if gpu.sriov is not None else 0
        return self._remembered(plan, gpu, {"vfs": total if vfs is None else vfs})

    def slice(self, address: str, vfs: int | None = None, share: VfShare | None = None) -> Operation:
        """Start carrying out :meth:`plan_slice`. RefusedError when refused."""
        return self._submit("slice", address, lambda: self.plan_slice(address, vfs, share))

    def plan_modes(self, address: str, wanted: Modes) -> Plan:
        """The plan from a card's modes to the wanted ones, kept over reboots, or the refusal."""
        gpu = self._find_gpu(self._look(), address)
        nvml = self._nvml()
        changes = {key: value for key, value in asdict(wanted).items() if value is not None and key != "at_load"}
        if wanted.scheduler is not None:
            changes["scheduler"] = str(wanted.scheduler)
            if by_parameter(nvml.card(gpu.address), wanted):
                # The driver's parameters are its memory; what was set through NVML before must not come back.
                known = self._desk.store.setups.get(gpu.address) if self._desk is not None else None
                del changes["scheduler"]
                changes |= {"scheduler": None} if known is not None and known.scheduler is not None else {}
        return self._remembered(plan_modes(nvml, gpu, wanted, self._kernel), gpu, changes)

    def set_modes(self, address: str, wanted: Modes) -> Operation:
        """Start carrying out :meth:`plan_modes`. RefusedError when refused."""
        return self._submit("mode", address, lambda: self.plan_modes(address, wanted))

    def _remembered(self, plan: Plan, gpu: Gpu, changes: Mapping[str, Any]) -> Plan:
        """The plan with a step that keeps what was asked for; without a store, as it is."""
        if plan.refusal is not None or self._desk is None or not changes:
            return plan
        step = remember_setup(self._desk.store, gpu, changes)
        if not plan.steps and step.prior and all(step.prior[key] == value for key, value in changes.items()):
            return plan
        return replace(plan, steps=(*plan.steps, step))

    # -- make and unmake ------------------------------------------------------------------------------
    def plan_create(self, profile: str, count: int = 1, gpu: str | None = None, params: str = "") -> Plan:
        """The plan that makes vGPUs for the operator, on ``gpu`` or on the first card that takes them all."""
        return self._plan_create(profile, count, gpu, params)

    def _plan_create(
        self, profile: str, count: int, gpu: str | None, params: str, operation_id: str | None = None
    ) -> Plan:
        """The same; what ``operation_id`` reserved is no obstacle to itself."""
        inventory = self._look(operation_id)
        card = self._find_gpu(inventory, gpu) if gpu else _roomiest(inventory, profile, count)
        if card is None:
            return Plan(CREATE, profile, refusal=_no_card(inventory, profile))
        if self._desk is None:
            return plan_create(self._kernel, inventory, card, [Order(profile, count, params)]).plan
        known = next((item for item in card.vgpu.profiles if same_profile(profile, item.id, item.name)), None)
        wanted = known.id if known is not None else profile
        devices = [AllocatedDevice(DeviceKind.MDEV, card.address, None, wanted)] * count
        if not devices:
            return plan_create(self._kernel, inventory, card, [Order(profile, count, params)]).plan
        slicing = Slicing(self._desk)
        plan = slicing.plan_create(inventory, devices, OPERATOR, params, but_for=operation_id)
        return replace(plan, subject=card.address)

    def create(self, profile: str, count: int = 1, gpu: str | None = None, params: str = "") -> Operation:
        """Reserve, then start carrying out :meth:`plan_create`. RefusedError when refused."""
        desk = self._at_desk
        with desk.admission():
            plan = self.plan_create(profile, count, gpu, params)
            plan.require()
            card, operation_id = plan.subject, desk.new_id()
            return desk.submit(
                CREATE,
                card,
                lambda: self._plan_create(profile, count, card, params, operation_id),
                operation_id=operation_id,
                reserved=reservations(plan),
            )

    def plan_delete(self, vgpu_id: str) -> Plan:
        """The plan that deletes a vGPU of ours that no allocation has, or the refusal."""
        view = self.vgpu(vgpu_id)
        inventory = self._look()
        if view.allocation_id is not None:
            reason = Reason(
                "vgpu-allocated", f"vGPU {vgpu_id} belongs to allocation {view.allocation_id}", (vgpu_id,)
            )
            hint = f"vgpumgr alloc release {view.allocation_id}"
            return Plan(DELETE, vgpu_id, refusal=Refusal(reason.code, reason.message, (reason,), hint))
        if self._desk is None or not view.ours:
            card = self._find_gpu(inventory, view.gpu)
            return plan_delete(self._kernel, inventory, card, [vgpu_id], ours=())
        records = [record for record in self._desk.store.vgpus.all() if record.id == vgpu_id]
        if not records and view.live:
            card = self._find_gpu(inventory, view.gpu)
            return plan_delete(self._kernel, inventory, card, [vgpu_id], ours={vgpu_id})
        return Slicing(self._desk).plan_delete_records(inventory, records, vgpu_id)

    def delete(self, vgpu_id: str) -> Operation:
        """Start carrying out :meth:`plan_delete`. RefusedError when refused."""
        self.plan_delete(vgpu_id).require()
        return self._at_desk.submit(DELETE, vgpu_id, lambda: self.plan_delete(vgpu_id))

    def plan_params(self, vgpu_id: str, params: str | None = None, limiter: bool | None = None) -> Plan:
        """The plan that changes the plugin parameters of a vGPU of ours, kept over reboots, or the refusal."""
        view = self.vgpu(vgpu_id)
        inventory = self._look()
        gpu = next((item for item in inventory.gpus if item.address == view.gpu), None)
        if gpu is None or self._desk is None:
            raise NotFoundError(
                f"there is no vGPU {vgpu_id}", hint="'vgpumgr vgpu list' shows them", code="vgpu-unknown"
            )
        plan = plan_params(self._kernel, gpu, view, params, limiter)
        record = self._desk.store.vgpus.get(vgpu_id)
        if not plan.steps or record is None:
            return plan
        from vgpumgr.allocations.vgpu_steps import RememberParams

        wanted = next(step.params for step in reversed(plan.steps) if isinstance(step, SetParams))
        memory = RememberParams(vgpu_id, wanted, str(record.params.get("vgpu_params", "")))
        return replace(plan, steps=(*plan.steps, memory))

    def set_params(self, vgpu_id: str, params: str | None = None, limiter: bool | None = None) -> Operation:
        """Start carrying out :meth:`plan_params`. RefusedError when refused."""
        self.plan_params(vgpu_id, params, limiter).require()
        return self._at_desk.submit(KIND, vgpu_id, lambda: self.plan_params(vgpu_id, params, limiter))

    # -- parts ----------------------------------------------------------------------------------------
    def _submit(self, kind: str, address: str, plan: Callable[[], Plan]) -> Operation:
        gpu = self._find_gpu(self._look(), address).address
        plan().require()
        return self._at_desk.submit(kind, gpu, plan)

    def _records(self) -> Sequence[VgpuRecord] | None:
        return self._desk.store.vgpus.all() if self._desk is not None else None

    def _nvml(self) -> NvmlPort:
        if self._desk is not None:
            return nvml_of(self._desk.context)
        from vgpumgr.telemetry.nvml import open_nvml

        return open_nvml(self._kernel)

    @property
    def _at_desk(self) -> Desk:
        if self._desk is None:
            raise UnavailableError(
                "this needs the service's store, which is not open here",
                hint="systemctl start vgpumgr",
                code="service-unavailable",
            )
        return self._desk


def _gone(record: VgpuRecord) -> VgpuView:
    vgpu = Vgpu(record.id, record.profile_id, record.profile, record.parent)
    view = VgpuView(vgpu, record.gpu, True, record.allocation_id, live=False)
    params = record.params.get("vgpu_params")
    return _with_params(view, str(params)) if params is not None else view


def _has_params(gpu: Gpu) -> bool:
    return gpu.function.vendor_id == NVIDIA and gpu.vgpu.backend is not Backend.SRIOV


def _with_params(view: VgpuView, params: str | None) -> VgpuView:
    limiter = parsed(params or "").get(LIMITER)
    return view._replace(params=params, frame_rate_limiter={"0": False, "1": True}.get(limiter or ""))


def _roomiest(inventory: HostInventory, profile: str, count: int) -> Gpu | None:
    """The card that takes the whole order and is fullest already, so that empty cards stay whole."""
    able = [
        (item.creatable, gpu)
        for gpu in inventory.gpus
        for item in gpu.vgpu.profiles
        if same_profile(profile, item.id, item.name) and item.creatable >= max(count, 1)
    ]
    return min(able, key=lambda pair: pair[0])[1] if able else None


def _no_card(inventory: HostInventory, profile: str) -> Refusal:
    found = [
        (gpu, item)
        for gpu in inventory.gpus
        for item in gpu.vgpu.profiles
        if same_profile(profile, item.id, item.name)
    ]
    reasons = tuple(
        item.limit
        or Reason(
            "max-instances", f"{gpu.address} takes at most {item.max_instances} of {item.name}", (gpu.address,)
        )
        for gpu, item in found
    )
    unlisted = next(filter(None, (not_listed(gpu.address, gpu.vgpu, profile) for gpu in inventory.gpus)), None)
    if not found and unlisted is not None:
        return unlisted
    if not found:
        message = f"no card of this host has a profile {profile!r}"
        hint = "'vgpumgr profile list' shows them; a card may have to be cut first ('vgpumgr gpu slice')"
        return Refusal("profile-unknown", message, (Reason("profile-unknown", message),), hint)
    best = max(item.creatable for _, item in found)
    message = f"no card takes that many more of {profile}: at most {best} on one"
    return Refusal("no-capacity", message, reasons, "'vgpumgr profile list' shows what fits now")
