"""Looking at a host: the use-cases that change nothing and need no more than a kernel.

What else is known of the host (promises of the store, owners from libvirt, NVIDIA's driver) comes in through a few
hooks that :class:`~vgpumgr.service.Service` fills. Heavy parts are imported where they are used, so that a command
that only reads starts fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING

from vgpumgr.address import canonical
from vgpumgr.allocations.look import NO_PROMISES, Promises, look, owners_unknown
from vgpumgr.errors import NotFoundError, Reason, UnavailableError
from vgpumgr.kernel.port import Kernel
from vgpumgr.model.host import Gpu, HostInventory, IommuGroup

if TYPE_CHECKING:
    from vgpumgr.model.allocation import AllocationRequest, Placement
    from vgpumgr.model.doctor import Diagnosis
    from vgpumgr.model.domain import CheckResult
    from vgpumgr.model.vgpu import ProfileOffer
    from vgpumgr.vgpu.nvml_port import NvmlPort


class Reading:
    """The use-cases of one host that only read."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def inventory(self, but_for: str | None = None) -> HostInventory:
        """The whole host: functions, groups, GPUs with vGPUs, claims of ours and owners from libvirt.

        ``but_for``: an allocation that asks for itself: what is promised to it is no obstacle.
        """
        try:
            owners = self._owners()
        except UnavailableError as error:
            return owners_unknown(look(self.kernel, self._promises(but_for), nvml=self._nvml), error.message)
        return look(self.kernel, self._promises(but_for), owners, self._nvml)

    def _promises(self, but_for: str | None) -> Promises:
        """What the store has promised to all allocations but one; nothing where no store is open."""
        return NO_PROMISES

    def _owners(self) -> Mapping[str, str] | None:
        """Which VM has which device; ``None`` where nobody asks libvirt. Raises UnavailableError."""
        return None

    def _libvirt_version(self) -> tuple[int, int, int] | None:
        """The libvirt that domains are for; ``None`` where nobody asks it."""
        return None

    @property
    def _nvml(self) -> NvmlPort | None:
        """NVIDIA's driver, where somebody asks it."""
        return None

    def gpu(self, address: str) -> Gpu:
        """One GPU by address, any spelling; a companion or VF names its GPU. NotFoundError ``gpu-unknown``."""
        return find_gpu(self.inventory(), address)

    def group(self, group_id: int) -> IommuGroup:
        """One IOMMU group. NotFoundError ``group-unknown``."""
        for group in self.inventory().groups:
            if group.id == group_id:
                return group
        raise NotFoundError(
            f"there is no IOMMU group {group_id}", hint="'vgpumgr group list' shows them", code="group-unknown"
        )

    def doctor(self) -> Diagnosis:
        """Per GPU, what stands between it and a VM, and the remedy."""
        from vgpumgr.inventory.doctor import diagnose

        return diagnose(self.kernel, self.inventory())

    def profiles(self, gpu: str | None = None) -> Sequence[ProfileOffer]:
        """Every profile on this host (or on one GPU) with how many more of it fit, in all and per GPU."""
        return self.offers(gpu)[0]

    def offers(self, gpu: str | None = None) -> tuple[Sequence[ProfileOffer], Sequence[Reason]]:
        """The same, and why GPUs that can be sliced list no profile now."""
        from vgpumgr.vgpu.offers import offers, silent

        inventory = self.inventory()
        gpus = [find_gpu(inventory, gpu)] if gpu else inventory.gpus
        return offers(gpus), silent(gpus)

    def candidates(self, request: AllocationRequest) -> Placement:
        """Ways to satisfy a request, best first, and why other GPUs do not. NotFoundError ``gpu-unknown``."""
        from vgpumgr.placement import place

        inventory = self.inventory()
        return place(inventory, naming_a_gpu(inventory, request))

    def check_domain(self, xml: bytes) -> CheckResult:
        """Preflight of any domain XML against this host. One of ours has a right to its allocation's devices."""
        from vgpumgr.domain.document import allocation_of, parse_domain
        from vgpumgr.domain.preflight import check
        from vgpumgr.domain.schema import schema_errors

        root = parse_domain(xml)
        try:
            owners, libvirt = self._owners(), self._libvirt_version()
        except UnavailableError:
            owners, libvirt = None, None
        return check(root, self.inventory(allocation_of(root)), owners, libvirt=libvirt, schema=schema_errors(root))

    def snapshot(self, out: IO[bytes]) -> None:
        """Write a tar that ``--sysfs-root`` reads again; serial numbers and MAC addresses left out."""
        from vgpumgr.inventory.snapshot import write_snapshot
        from vgpumgr.vgpu.observe import observe_vgpus

        write_snapshot(self.kernel, out, observers=(observe_vgpus,))


def find_gpu(inventory: HostInventory, address: str) -> Gpu:
    """The GPU that an address names: its own, a companion's or a VF's; a virtual one by its device's name.

    NotFoundError ``gpu-unknown``; AddressError for what is neither.
    """
    named = next((gpu for gpu in inventory.gpus if gpu.address == address), None)
    if named is not None:
        return named
    wanted = canonical(address)
    for gpu in inventory.gpus:
        vfs = gpu.sriov.vfs if gpu.sriov is not None else ()
        if wanted == gpu.address or wanted in vfs or wanted in (item.address for item in gpu.companions):
            return gpu
    known = any(function.address == wanted for function in inventory.functions)
    what = f"{wanted} is no GPU" if known else f"there is no PCI function {wanted} on this host"
    raise NotFoundError(what, hint="'vgpumgr gpu list' shows the GPUs", code="gpu-unknown")


def naming_a_gpu(inventory: HostInventory, request: AllocationRequest) -> AllocationRequest:
    """The request with the address that it pins as the GPU's own. NotFoundError ``gpu-unknown``."""
    if request.gpu is None:
        return request
    from dataclasses import replace

    return replace(request, gpu=find_gpu(inventory, request.gpu).address)
