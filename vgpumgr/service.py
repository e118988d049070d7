"""The use-cases: the one door through which REST and the command line reach everything below.

A :class:`Service` is one host's. Reading needs only a kernel; changing a host needs a store (the journal)
as well; virtual machines need libvirt. Heavy parts are imported where they are used, so that a command
that only reads starts fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

from vgpumgr.kernel.port import Kernel
from vgpumgr.model.allocation import Allocation, AllocationRequest, Placement
from vgpumgr.model.host import Gpu, HostInventory, IommuGroup
from vgpumgr.model.operation import Operation

if TYPE_CHECKING:
    from vgpumgr.config import Config
    from vgpumgr.hypervisor.port import DomainInfo, Hypervisor
    from vgpumgr.model.doctor import DoctorReport
    from vgpumgr.model.domain import CheckResult, GuestShape
    from vgpumgr.model.page import Page
    from vgpumgr.model.vgpu import ProfileOffer
    from vgpumgr.plans.plan import Plan
    from vgpumgr.store.store import Store


class Service:
    """All use-cases of one host."""

    def __init__(
        self,
        kernel: Kernel,
        config: Config | None = None,
        *,
        store: Store | None = None,
        hypervisor: Hypervisor | None = None,
    ) -> None: ...

    # -- see ------------------------------------------------------------------------------------------
    def inventory(self) -> HostInventory:
        """The whole host: functions, groups, GPUs with vGPUs, claims of ours and owners from libvirt."""

    def gpu(self, address: str) -> Gpu:
        """One GPU by address, any spelling; a companion or VF names its GPU. NotFoundError ``gpu-unknown``."""

    def group(self, group_id: int) -> IommuGroup:
        """One IOMMU group. NotFoundError ``group-unknown``."""

    def doctor(self) -> DoctorReport:
        """Per GPU, what stands between it and a VM, and the remedy."""

    def profiles(self, gpu: str | None = None) -> Sequence[ProfileOffer]:
        """Every profile on this host (or on one GPU) with how many more of it fit, in all and per GPU."""

    def candidates(self, request: AllocationRequest) -> Placement:
        """Ways to satisfy a request, best first, and why other GPUs do not."""

    def check_domain(self, xml: bytes) -> CheckResult:
        """Preflight of any domain XML against this host."""

    def snapshot(self, out: IO[bytes]) -> None:
        """Write a tar that ``--sysfs-root`` reads again; serial numbers and MAC addresses left out."""

    # -- bind -----------------------------------------------------------------------------------------
    def plan_bind(self, address: str, *, driver: str = "auto", force: bool = False) -> Plan:
        """The plan that gives a GPU and its companions to a VFIO driver, or the refusal."""

    def plan_release(self, address: str, *, force: bool = False) -> Plan:
        """The plan that gives a GPU back to its host driver, or the refusal."""

    def bind(self, address: str, *, driver: str = "auto", force: bool = False) -> Operation:
        """Start carrying out :meth:`plan_bind`; RefusedError when refused."""

    def release(self, address: str, *, force: bool = False) -> Operation:
        """Start carrying out :meth:`plan_release`."""

    def restore_bindings(self) -> Sequence[Operation]:
        """Bind again what was bound before the reboot (``vgpumgr-bind.service``); waits for the end."""

    # -- allocate -------------------------------------------------------------------------------------
    def plan_allocation(self, request: AllocationRequest) -> Plan:
        """What :meth:`allocate` would do to the host (dry run), or the refusal with every GPU's reasons."""

    def allocate(self, request: AllocationRequest) -> Allocation:
        """Claim, then start preparing. RefusedError ``no-candidate`` with reasons when nothing fits.

        The allocation's ``operation_id`` names the operation that prepares it.
        """

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

    def allocation(self, allocation_id: str) -> Allocation:
        """One allocation. NotFoundError ``allocation-unknown``."""

    def release_allocation(self, allocation_id: str, *, generation: int | None = None) -> Allocation:
        """Start releasing (idempotent): vGPUs deleted, GPUs given back. RefusedError ``vm-running``."""

    def allocation_xml(
        self, allocation_id: str, *, template: str = "linux-compute", shape: GuestShape | None = None
    ) -> str:
        """The libvirt domain XML of an allocation that is ready."""

    # -- virtual machines -----------------------------------------------------------------------------
    def templates(self) -> Sequence[str]:
        """Names of the domain templates."""

    def vms(self) -> Sequence[DomainInfo]:
        """Every libvirt domain of the host, ours and foreign."""

    def vm(self, name: str) -> DomainInfo:
        """One domain. NotFoundError ``vm-unknown``."""

    def define_vm(
        self, allocation_id: str, *, template: str = "linux-compute", shape: GuestShape | None = None
    ) -> DomainInfo:
        """Define the allocation's VM in libvirt, after preflight. RefusedError carries the problems."""

    def start_vm(self, name: str) -> DomainInfo:
        """Preflight, then start. The allocation becomes ``attached``."""

    def stop_vm(self, name: str, *, force: bool = False) -> DomainInfo:
        """Ask the guest to shut down; ``force`` pulls the plug. The allocation becomes ``ready`` again."""

    def undefine_vm(self, name: str) -> None:
        """Remove the (stopped) domain's definition; ours only."""

    # -- operations -----------------------------------------------------------------------------------
    def operations(
        self, *, state: str | None = None, subject: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[Operation]:
        """Operations, newest first."""

    def operation(self, operation_id: str) -> Operation:
        """One operation with its steps. NotFoundError ``operation-unknown``."""

    def wait(self, operation_id: str, seconds: float | None) -> Operation:
        """The operation once it is final, or as it is after ``seconds`` (``None``: however long it takes)."""

    # -- life -----------------------------------------------------------------------------------------
    def start(self) -> None:
        """Reconcile: finish or take back what a crash cut short, restore bindings; readiness comes after."""

    def ready(self) -> tuple[bool, Sequence[str]]:
        """Whether the service may be used, and what it waits for."""

    def close(self) -> None:
        """Let running work end, close the store and libvirt."""
