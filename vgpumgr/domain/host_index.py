"""An inventory, arranged for questions about single devices."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from vgpumgr.domain.source import read_uuid
from vgpumgr.model.host import Gpu, HostInventory, IommuGroup
from vgpumgr.model.pci import PciFunction
from vgpumgr.model.vgpu import Backend, Vgpu


@dataclass
class HostIndex:
    """Functions, groups and vGPUs by what names them."""

    iommu_active: bool
    functions: dict[str, PciFunction]
    groups: dict[int, IommuGroup]
    gpus: dict[str, Gpu]
    vgpus: dict[str, Vgpu] = field(default_factory=dict)
    """vGPUs in being, by UUID or by the address of their VF."""
    mdevs: set[str] = field(default_factory=set)
    """All mediated devices, a GPU's or another device's."""
    vendor_vfs: set[str] = field(default_factory=set)
    """VFs of cards whose driver makes vGPUs on them, typed or not."""
    vfs: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """VFs by their physical function."""
    companions: dict[str, Gpu] = field(default_factory=dict)
    """The GPU that a companion belongs to."""

    @classmethod
    def of(cls, inventory: HostInventory) -> HostIndex:
        """Arrange an inventory."""
        index = cls(
            inventory.iommu.active,
            {function.address: function for function in inventory.functions},
            {group.id: group for group in inventory.groups},
            {gpu.address: gpu for gpu in inventory.gpus},
        )
        for group in inventory.groups:
            index.mdevs |= {name.lower() for name in group.other_members if read_uuid(name)}
        for function in inventory.functions:
            if function.physfn is not None:
                index.vfs[function.physfn].append(function.address)
        for gpu in inventory.gpus:
            index._add(gpu)
        return index

    def _add(self, gpu: Gpu) -> None:
        self.companions |= {companion.address: gpu for companion in gpu.companions}
        for vgpu in gpu.vgpu.instances:
            self.vgpus[vgpu.id.lower()] = vgpu
            if read_uuid(vgpu.id):
                self.mdevs.add(vgpu.id.lower())
        if gpu.vgpu.backend is Backend.VENDOR_VFIO and gpu.sriov is not None:
            self.vendor_vfs |= set(gpu.sriov.vfs)

    def group_of(self, function: PciFunction) -> IommuGroup | None:
        """The function's IOMMU group."""
        return None if function.iommu_group is None else self.groups.get(function.iommu_group)

    def carries_vgpu(self, address: str) -> bool:
        """True for a VF with a vGPU type, which must stay on its vendor's driver."""
        return address in self.vendor_vfs and address in self.vgpus

    def mdevs_on_vf(self, function: PciFunction) -> tuple[str, ...]:
        """The mediated devices that live on a VF."""
        if function.physfn is None:
            return ()
        return tuple(key for key, vgpu in self.vgpus.items() if vgpu.parent == function.address and read_uuid(key))

    def on_vendor_driver(self, function: PciFunction) -> bool:
        """True for a VF of a card that makes vGPUs on its VFs, while it is on the same driver as its card."""
        if function.address not in self.vendor_vfs or function.physfn not in self.functions:
            return False
        return function.driver is not None and function.driver == self.functions[function.physfn].driver
