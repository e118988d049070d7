"""Simulated hosts for the vGPU tests, and what the tests do on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from tests.databases import put_empty_database
from vgpumgr.assembly import open_service
from vgpumgr.config import Config
from vgpumgr.inventory import take_inventory
from vgpumgr.kernel.simulated import SimulatedKernel
from vgpumgr.kernel.simulated.build import build
from vgpumgr.model.allocation import AllocatedDevice
from vgpumgr.model.host import Gpu, HostInventory
from vgpumgr.model.vgpu import VgpuState
from vgpumgr.plans.executor import execute
from vgpumgr.plans.journal import MemoryJournal
from vgpumgr.plans.plan import Plan
from vgpumgr.plans.step import StepContext
from vgpumgr.service import Service
from vgpumgr.vgpu.changes import VgpuPlan, made, plan_create, plan_delete
from vgpumgr.vgpu.modes import Modes, plan_modes
from vgpumgr.vgpu.nvml_port import NvmlPort
from vgpumgr.vgpu.observe import observe_vgpus
from vgpumgr.vgpu.port import Order, Room
from vgpumgr.vgpu.vf_plans import plan_slice

CARD = "0000:3b:00.0"
A40 = {
    "prefix": "NVIDIA A40",
    "B": {"first": 555, "gib": [1, 2]},
    "Q": {"first": 557, "gib": [1, 2, 3, 4, 6, 8, 12, 16, 24, 48]},
    "C": {"first": 581, "gib": [4, 6, 8, 12, 16, 24, 48]},
}
T4 = {"prefix": "GRID T4", "Q": {"first": 230, "gib": [1, 2, 4, 8, 16]}, "C": {"first": 319, "gib": [4, 8, 16]}}
GVT = [
    {
        "id": "i915-GVTg_V5_4",
        "size_mib": 128,
        "most": 2,
        "description": "low_gm_size: 128MB\nresolution: 1920x1200",
    },
    {"id": "i915-GVTg_V5_8", "size_mib": 64, "most": 4, "description": "low_gm_size: 64MB\nresolution: 1024x768"},
]


def nvidia(scheme: str, types: Any = None, framebuffer_mib: int = 49152, **vgpu: Any) -> dict[str, Any]:
    """One NVIDIA card; its VFs, if it has any, are not enabled yet."""
    entry: dict[str, Any] = {"address": CARD, "id": "10de:2235", "class": "030200", "driver": "nvidia"}
    if scheme != "mdev":
        entry["sriov"] = {"total": 32, "vf_driver": "nvidia"}
    card = {"scheme": scheme, "framebuffer_mib": framebuffer_mib, "types": types or A40}
    return entry | {"vgpu": card | vgpu}


H100 = {
    "prefix": "NVIDIA H100XM",
    "C": {"first": 2001, "gib": [4, 5, 8, 10, 16, 20, 40, 80]},
    "MIG": {"first": 2101, "of": ["1-10C", "1-20C", "2-20C", "3-40C", "4-40C", "7-80C"]},
}
BLACKWELL = {
    "prefix": "NVIDIA RTX Pro 6000 Blackwell DC",
    "Q": {"first": 1519, "gib": [3, 6, 12, 24, 48, 96]},
    "MIG": {"first": 1561, "of": ["1-12Q", "1-24Q", "2-24Q", "2-48Q", "4-96Q"]},
}


def h100(scheme: str = "vendor-vfio") -> dict[str, Any]:
    """A card with MIG, one vGPU to a GPU instance, and with mixed sizes."""
    return nvidia(scheme, H100, 81920, mixed=True, mig={"slices": 7}, ecc=True) | {"id": "10de:2330"}


def blackwell() -> dict[str, Any]:
    """A card whose GPU instances are shared by several vGPUs of one size."""
    card = nvidia("vendor-vfio", BLACKWELL, 98304, mig={"slices": 4, "time_sliced": True})
    return card | {"id": "10de:2bb5"}


def t4() -> dict[str, Any]:
    return nvidia("mdev", T4, 16384) | {"id": "10de:1eb8"}


def gvt() -> dict[str, Any]:
    card = {"scheme": "gvt", "driver": "i915", "framebuffer_mib": 256, "types": GVT}
    return {"address": CARD, "id": "8086:591b", "class": "030000", "driver": "i915", "vgpu": card}


def flex(**sriov: Any) -> dict[str, Any]:
    shape = {"total": 31, "offset": 1, "vf_class": "038000", "vf_driver": "i915"} | sriov
    return {"address": CARD, "id": "8086:56c0", "class": "038000", "driver": "i915", "sriov": shape}


def host(*functions: dict[str, Any]) -> SimulatedKernel:
    return build("test", {"modules": {"vfio_pci": ["vfio-pci"]}, "functions": list(functions)})


def service_of(folder: Path, *functions: dict[str, Any], **settings: Any) -> Service:
    """The whole service of a described host, started."""
    put_empty_database(folder)
    file = folder / "host.yaml"
    file.write_text(yaml.safe_dump({"modules": {"vfio_pci": ["vfio-pci"]}, "functions": list(functions)}))
    config = Config(state_dir=folder, runtime_dir=folder, simulate=str(file), **settings)
    service = open_service(config, libvirt=False)
    service.start()
    return service


def simulated(service: Service) -> SimulatedKernel:
    """The kernel under a service."""
    assert isinstance(service.kernel, SimulatedKernel)
    return service.kernel


def sliced(*functions: dict[str, Any]) -> SimulatedKernel:
    """A host whose card has its VFs enabled."""
    kernel = host(*functions)
    run(kernel, plan_slice(kernel, look(kernel)[1]))
    return kernel


def look(kernel: SimulatedKernel, nvml: NvmlPort | None = None) -> tuple[HostInventory, Gpu]:
    inventory = observe_vgpus(kernel, take_inventory(kernel), nvml=nvml)
    return inventory, next(gpu for gpu in inventory.gpus if gpu.address == CARD)


def state(kernel: SimulatedKernel, nvml: NvmlPort | None = None) -> VgpuState:
    return look(kernel, nvml)[1].vgpu


def fits(kernel: SimulatedKernel, nvml: NvmlPort | None = None) -> Mapping[str, int]:
    """Profile name, without the vendor, → how many more."""
    return {profile.name.split(" ")[-1]: profile.creatable for profile in state(kernel, nvml).profiles}


def uuids() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"00000000-0000-4000-8000-{next(numbers):012x}"


def order(kernel: SimulatedKernel, *orders: Order, room: Room | None = None, **options: Any) -> VgpuPlan:
    inventory, gpu = look(kernel, options.get("nvml"))
    return plan_create(kernel, inventory, gpu, orders, room=room, **options)


def create(
    kernel: SimulatedKernel, profile: str, number: int = 1, params: str = "", nvml: NvmlPort | None = None
) -> Sequence[AllocatedDevice]:
    planned = order(kernel, Order(profile, number, params), nvml=nvml)
    run(kernel, planned.plan)
    return made(kernel, planned)[0]


def delete(kernel: SimulatedKernel, *ids: str) -> Plan:
    inventory, gpu = look(kernel)
    plan = plan_delete(kernel, inventory, gpu, ids, ours=set(ids))
    run(kernel, plan)
    return plan


def set_modes(kernel: SimulatedKernel, nvml: NvmlPort, wanted: Modes) -> Plan:
    plan = plan_modes(nvml, look(kernel, nvml)[1], wanted)
    run(kernel, plan, {NvmlPort: nvml})
    return plan


def run(kernel: SimulatedKernel, plan: Plan, ports: Mapping[type, object] | None = None) -> MemoryJournal:
    journal = MemoryJournal()
    execute("op", plan, StepContext(kernel, ports or {}), journal)
    return journal
