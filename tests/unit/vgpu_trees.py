"""Small host trees for the vGPU tests, written as the kernel shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vgpumgr.inventory import take_inventory
from vgpumgr.kernel.recorded import RecordedKernel, open_recording
from vgpumgr.model.host import Gpu, HostInventory
from vgpumgr.model.vgpu import Profile, VgpuState
from vgpumgr.vgpu.observe import observe_vgpus


@dataclass
class HostTree:
    """A sysfs tree under ``root``; functions all hang on the root bus."""

    root: Path
    _vfs: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("bus/pci/devices", "bus/pci/drivers", "class/iommu", "devices/virtual/iommu/dmar0"):
            (self.root / "sys" / name).mkdir(parents=True, exist_ok=True)
        (self.root / "sys/class/iommu/dmar0").symlink_to("../../devices/virtual/iommu/dmar0")

    def path(self, address: str) -> Path:
        return self.root / "sys/devices" / f"pci{address[:-8]}:{address[-7:-5]}" / address

    def write(self, address: str, name: str, text: str) -> None:
        file = self.path(address) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def link(self, path: Path, target: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def function(
        self,
        address: str,
        ids: str = "10de:2235",
        *,
        driver: str = "nvidia",
        class_id: str = "030200",
        group: int = 1,
        total_vfs: int | None = None,
        num_vfs: int = 0,
        physfn: str | None = None,
    ) -> None:
        vendor, device = ids.split(":")
        texts = {"vendor": f"0x{vendor}", "device": f"0x{device}", "class": f"0x{class_id}", "numa_node": "0"}
        if total_vfs is not None:
            texts |= {"sriov_totalvfs": str(total_vfs), "sriov_numvfs": str(num_vfs)}
        for name, text in texts.items():
            self.write(address, name, text + "\n")
        base = self.path(address)
        self.link(base / "driver", f"../../../bus/pci/drivers/{driver}")
        self.link(base / "iommu_group", f"../../../kernel/iommu_groups/{group}")
        self.link(self.root / f"sys/kernel/iommu_groups/{group}/devices/{address}", "gone")
        here = f"../../../devices/{base.parent.name}/{address}"
        self.link(self.root / f"sys/bus/pci/devices/{address}", here)
        if physfn is not None:
            self.link(base / "physfn", f"../{physfn}")
            index = self._vfs.setdefault(physfn, 0)
            self._vfs[physfn] += 1
            self.link(self.path(physfn) / f"virtfn{index}", f"../{address}")

    def card_with_vfs(self, physfn: str, vfs: Sequence[str], total: int = 32, ids: str = "10de:2235") -> None:
        self.function(physfn, ids, total_vfs=total, num_vfs=len(vfs), group=10)
        for number, vf in enumerate(vfs):
            self.function(vf, ids, physfn=physfn, group=11 + number)

    def mdev_type(
        self, parent: str, type_id: str, available: int, name: str | None = None, description: str | None = None
    ) -> None:
        base = f"mdev_supported_types/{type_id}"
        self.write(parent, f"{base}/available_instances", f"{available}\n")
        if name is not None:
            self.write(parent, f"{base}/name", name + "\n")
        if description is not None:
            self.write(parent, f"{base}/description", description + "\n")

    def mdev(self, uuid: str, parent: str, type_id: str, group: int = 200, vm_name: str = "") -> None:
        base = self.path(parent) / uuid
        self.link(base / "mdev_type", f"../mdev_supported_types/{type_id}")
        self.link(base / "iommu_group", f"../../../../kernel/iommu_groups/{group}")
        self.write(parent, f"{uuid}/nvidia/vm_name", vm_name + "\n")
        here = f"../../../devices/{base.parent.parent.name}/{parent}/{uuid}"
        self.link(self.root / f"sys/bus/mdev/devices/{uuid}", here)

    def typed_vf(self, address: str, creatable: str, current: str = "0") -> None:
        self.write(address, "nvidia/creatable_vgpu_types", creatable)
        self.write(address, "nvidia/current_vgpu_type", current + "\n")

    def kernel(self) -> RecordedKernel:
        return open_recording(str(self.root))

    def observe(self) -> HostInventory:
        kernel = self.kernel()
        return observe_vgpus(kernel, take_inventory(kernel))

    def state(self) -> VgpuState:
        return self.gpu().vgpu

    def gpu(self) -> Gpu:
        (gpu,) = self.observe().gpus
        return gpu


def creatable(state: VgpuState) -> Mapping[str, int]:
    """Profile id → how many more."""
    return {profile.id: profile.creatable for profile in state.profiles}


def profile(state: VgpuState, profile_id: str) -> Profile:
    return next(item for item in state.profiles if item.id == profile_id)


def limit(state: VgpuState, profile_id: str) -> str:
    found = profile(state, profile_id).limit
    assert found is not None
    return found.code
