"""Fills :class:`~vgpumgr.model.vgpu.VgpuState` for every GPU from what the kernel shows.

The backend is told by files, never by the model's name:

* ``mdev``: the card, or its VFs, list ``mdev_supported_types``;
* ``vendor-vfio``: its VFs show ``nvidia/creatable_vgpu_types``;
* ``sriov``: the card has virtual functions and a driver that needs no more than that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from vgpumgr.errors import Reason
from vgpumgr.inventory.reader import Reader
from vgpumgr.kernel.port import Kernel
from vgpumgr.model.host import Gpu, HostInventory
from vgpumgr.model.vgpu import Backend, CardModes, VgpuState
from vgpumgr.vgpu.card_modes import card_modes
from vgpumgr.vgpu.cards import Card, Functions, mdev_card, plain_vf_card, vendor_card
from vgpumgr.vgpu.files import Mdev, read_mdev_types, read_mdevs, read_vendor_vfs
from vgpumgr.vgpu.profiles import state_of

if TYPE_CHECKING:
    from vgpumgr.vgpu.nvml_port import NvmlCard, NvmlPort

NVIDIA = "10de"
"""NVIDIA's VFs are no slices by themselves: one of its two interfaces must give them a type."""


Pending = Mapping[str, Mapping[str, int]]
"""vGPUs promised to allocations and not made yet: GPU → profile id → count."""


Remembered = Mapping[str, Mapping[str, str]]
"""vGPUs of ours: GPU → vGPU id → profile id. Those that the host has lost are promised, until they are back."""


def observe_vgpus(
    kernel: Kernel,
    inventory: HostInventory,
    pending: Pending | None = None,
    nvml: NvmlPort | None = None,
    remembered: Remembered | None = None,
) -> HostInventory:
    """The same inventory with vGPUs: backend, profiles, how many more of each fit, and the vGPUs in being.

    Read-only, and never raises for odd files: they become warnings. ``Vgpu.owner`` is what the driver says
    (``vm_name``); libvirt may know better. What ``pending`` promises, and what is
    ``remembered`` and not there, is no longer counted as creatable.
    ``nvml`` adds what only NVIDIA's driver knows: modes, MIG, types that no list names.
    """
    reader = Reader(kernel)
    mdevs = read_mdevs(reader)
    functions = {function.address: function for function in inventory.functions}
    promised = {address: _each(counts) for address, counts in (pending or {}).items()}

    def observed(gpu: Gpu) -> Gpu:
        if not gpu.offered:
            return gpu
        card = read_card(reader, gpu, mdevs, functions)
        told = nvml.card(gpu.address) if nvml is not None and gpu.function.vendor_id == NVIDIA else None
        if card is None:
            state = _without_backend(reader, gpu)
        else:
            lost = missing((remembered or {}).get(gpu.address, {}), card)
            state = state_of(card, [*promised.get(gpu.address, ()), *lost], told)
        if nvml is not None and gpu.function.driver == "nvidia" and (told is not None or state.capable):
            state = state._replace(modes=read_modes(kernel, gpu.address, nvml.label, told))
        return gpu._replace(vgpu=state)

    gpus = tuple(observed(gpu) for gpu in inventory.gpus)
    return inventory._replace(gpus=gpus, warnings=(*inventory.warnings, *reader.notices))


def read_modes(kernel: Kernel, address: str, source: str, told: NvmlCard | None) -> CardModes | None:
    """A card's modes as NVML (``source``) and the driver's parameters tell; ``None`` when neither does."""
    from vgpumgr.vgpu.driver_scheduler import read_driver_scheduler

    found = card_modes(address, source, told, read_driver_scheduler(kernel, address))
    return found if told is not None or found.scheduler or found.scheduler_configured else None


def _each(counts: Mapping[str, int]) -> list[str]:
    return [profile_id for profile_id, count in counts.items() for _ in range(count)]


def missing(remembered: Mapping[str, str], card: Card) -> list[str]:
    """The profile ids of vGPUs of ours that are not on the card. A plain VF that is free is there for anybody."""
    free = card.free_vfs or () if card.backend is Backend.SRIOV else ()
    live = {instance.id for instance in card.instances}.difference(free)
    return [profile_id for vgpu, profile_id in remembered.items() if vgpu not in live]


def read_card(reader: Reader, gpu: Gpu, mdevs: Mapping[str, Sequence[Mdev]], functions: Functions) -> Card | None:
    """What there is to slice on a GPU, and how; ``None`` when nothing tells."""
    vfs = gpu.sriov.vfs if gpu.sriov is not None else ()
    parents = (gpu.address, *vfs)
    types = read_mdev_types(reader, parents)
    live = [mdev for parent in parents for mdev in mdevs.get(parent, ())]
    if types.available or live:
        return mdev_card(gpu, types, live)
    # A fragment of a recording may hold a VF without its card: then it stands for the card.
    vendor_vfs = read_vendor_vfs(reader, vfs or (gpu.address,))
    if vendor_vfs:
        return vendor_card(gpu, vendor_vfs, functions)
    if gpu.sriov is not None and gpu.sriov.total_vfs > 0 and gpu.function.vendor_id != NVIDIA:
        return plain_vf_card(gpu, functions)
    return None


def _without_backend(reader: Reader, gpu: Gpu) -> VgpuState:
    """Why nothing can be made now, for a card whose backend nothing tells."""
    name, sriov = gpu.address, gpu.sriov
    if sriov is None or sriov.total_vfs == 0:
        message = f"the driver of {name} shows neither vGPU types nor virtual functions"
        return VgpuState(reasons=(Reason("not-capable", message, (name,)),))
    if gpu.function.driver is None or gpu.function.vfio:
        driver = gpu.function.driver or "no driver"
        reason = Reason("host-driver-absent", f"{name} is on {driver}: only its host driver makes vGPUs", (name,))
    elif sriov.num_vfs == 0:
        shown = "has mdev" if reader.kernel.exists("/sys/bus/mdev") else "has no mdev bus"
        message = (
            f"no virtual function of {name} is enabled; whether it works by mdev or by vendor VFIO shows only then "
            f"(this kernel {shown})"
        )
        reason = Reason("vfs-off", message, (name,))
    else:
        message = f"the virtual functions of {name} show no vGPU types: its driver is not a vGPU host driver"
        reason = Reason("no-vgpu-interface", message, sriov.vfs or (name,))
    return VgpuState(capable=True, reasons=(reason,))
