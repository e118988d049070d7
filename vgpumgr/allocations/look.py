"""One whole look at a host: the kernel's facts, its vGPUs, what was promised, and which VM has what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from vgpumgr.inventory import take_inventory
from vgpumgr.inventory.passthrough import with_occupancy
from vgpumgr.kernel.port import Kernel
from vgpumgr.model.host import Gpu, Holder, HostInventory, Notice
from vgpumgr.model.vgpu import VgpuState

if TYPE_CHECKING:
    from vgpumgr.vgpu.nvml_port import NvmlPort


_NONE: Mapping[str, Any] = MappingProxyType({})


class Promises(NamedTuple):
    """What the store says: whole GPUs with a claim (address → allocation id), vGPUs promised that have no id yet
    (GPU → profile id → count), our vGPUs, made or being made (GPU → vGPU id → profile id), and GPUs in quarantine
    (address → why).
    """

    gpus: Mapping[str, str] = _NONE
    pending_vgpus: Mapping[str, Mapping[str, int]] = _NONE
    quarantined: Mapping[str, str] = _NONE
    vgpus: Mapping[str, Mapping[str, str]] = _NONE


NO_PROMISES = Promises()


def look(
    kernel: Kernel,
    promises: Promises = NO_PROMISES,
    owners: Mapping[str, str] | None = None,
    nvml: NvmlPort | None = None,
) -> HostInventory:
    """The inventory as users see it.

    ``owners`` maps PCI addresses and mdev UUIDs to the VMs that have them; ``None`` when nobody asked libvirt.
    ``nvml`` adds what NVIDIA's driver knows; ``None`` when nobody asked it.
    """
    inventory = take_inventory(kernel)
    missing = tuple(_missing(inventory, promises))
    if missing:
        inventory = inventory._replace(warnings=(*inventory.warnings, *missing))
    if not inventory.gpus:
        return inventory
    from vgpumgr.vgpu.observe import observe_vgpus

    inventory = observe_vgpus(kernel, inventory, promises.pending_vgpus, nvml, promises.vgpus)
    groups: dict[int | None, tuple[str, ...]] = {group.id: group.members for group in inventory.groups}
    gpus = tuple(
        _occupied(gpu, groups.get(gpu.function.iommu_group, ()), promises, owners or {}) for gpu in inventory.gpus
    )
    return inventory._replace(gpus=gpus)


def _missing(inventory: HostInventory, promises: Promises) -> Iterator[Notice]:
    """Whole GPUs that are promised and not there: pulled out, or fallen off the bus."""
    present = {gpu.address for gpu in inventory.gpus}
    for address, allocation in promises.gpus.items():
        if address not in present:
            yield Notice(
                "gpu-missing", f"{address} is allocated ({allocation}) and not on this host any more", address
            )


def owners_unknown(inventory: HostInventory, why: str) -> HostInventory:
    """The same inventory, saying that libvirt could not be asked who has what."""
    notice = Notice("owners-unknown", f"libvirt could not be asked which VM has which device: {why}", "libvirt")
    return inventory._replace(warnings=(*inventory.warnings, notice))


def _occupied(gpu: Gpu, mates: Iterable[str], promises: Promises, owners: Mapping[str, str]) -> Gpu:
    """An IOMMU group goes to one VM as a whole: who has a member (``mates``) has the group."""
    members = dict.fromkeys((gpu.address, *(companion.address for companion in gpu.companions), *mates))
    having = tuple(Holder("vm", owners[name], name) for name in members if name in owners)
    live = [item.id for item in gpu.vgpu.instances]
    lost = [vgpu for vgpu in promises.vgpus.get(gpu.address, _NONE) if vgpu not in live]
    occupied = with_occupancy(
        gpu,
        owners=having,
        live_vgpus=tuple(live),
        promised_vgpus=sum(promises.pending_vgpus.get(gpu.address, _NONE).values()) + len(lost),
        reserved_for=next((_promise(gpu, name, promises) for name in members if name in promises.gpus), None),
        failed=promises.quarantined.get(gpu.address),
    )
    return occupied._replace(vgpu=_owned(gpu.vgpu, owners))


def _promise(gpu: Gpu, member: str, promises: Promises) -> str:
    allocation = promises.gpus[member]
    return allocation if member == gpu.address else f"{allocation}, which has {member} of its IOMMU group"


def _owned(state: VgpuState, owners: Mapping[str, str]) -> VgpuState:
    """vGPUs with the VMs that have them."""
    instances = tuple(item._replace(owner=owners.get(item.id, item.owner)) for item in state.instances)
    return state._replace(instances=instances)
