"""A card as the backends see it: its offers and its vGPUs in one form, whatever interface they came through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from vgpumgr.errors import Reason
from vgpumgr.model.host import Gpu
from vgpumgr.model.pci import PciFunction
from vgpumgr.model.vgpu import Backend, Vgpu
from vgpumgr.vgpu.descriptions import Description
from vgpumgr.vgpu.files import NO_TYPE, Mdev, MdevTypes, VendorVf, merged_names

UNKNOWN_TYPE = "unknown"
"""The profile id of a vGPU whose type cannot be read."""

Functions = Mapping[str, PciFunction]
"""The host's PCI functions by address."""


class Offer(NamedTuple):
    """A profile the card's driver lists, and through whom it can be made now.

    ``parents`` are the functions that take one now (the card itself, or free VFs); ``available`` what its driver
    says in all: instances available, or the number of those VFs.
    """

    profile_id: str
    name: str
    description: Description = Description()
    parents: tuple[str, ...] = ()
    available: int = 0


class Card(NamedTuple):
    """One card: ``free_vfs`` are the VFs that can take a vGPU, ``None`` when vGPUs live on the card itself."""

    gpu: Gpu
    backend: Backend
    offers: tuple[Offer, ...]
    instances: tuple[Vgpu, ...]
    free_vfs: tuple[str, ...] | None = None

    @property
    def address(self) -> str:
        """The physical function."""
        return self.gpu.address


def mdev_card(gpu: Gpu, types: MdevTypes, live: Sequence[Mdev]) -> Card:
    """A card of mediated devices, on itself or one to each VF."""
    instances = tuple(
        Vgpu(
            id=mdev.uuid,
            profile_id=mdev.type_id or UNKNOWN_TYPE,
            profile=types.types[mdev.type_id].name if mdev.type_id in types.types else None,
            parent=mdev.parent,
            owner=mdev.vm_name,
            iommu_group=mdev.iommu_group,
        )
        for mdev in live
    )
    on_card = gpu.address in types.available
    taken = {mdev.parent for mdev in live}
    free = None if on_card else tuple(parent for parent in types.available if parent not in taken)
    return Card(gpu, Backend.MDEV, tuple(_mdev_offers(gpu, types, free)), instances, free)


def _mdev_offers(gpu: Gpu, types: MdevTypes, free: tuple[str, ...] | None) -> Iterable[Offer]:
    for type_id, files in types.types.items():
        if free is None:
            count = types.available[gpu.address].get(type_id) or 0
            parents: tuple[str, ...] = (gpu.address,) if count else ()
        else:
            parents = tuple(parent for parent in free if types.available[parent].get(type_id))
            count = len(parents)
        yield Offer(type_id, files.name, files.description, parents, count)


def vendor_card(gpu: Gpu, vfs: Sequence[VendorVf], functions: Functions) -> Card:
    """A card whose VFs are given a type and are the vGPUs themselves.

    A VF whose current type cannot be read may carry a vGPU: it is not free, and counts as one of unknown type.
    """
    names = merged_names(vfs)
    instances = tuple(
        Vgpu(
            id=vf.address,
            profile_id=vf.current or UNKNOWN_TYPE,
            profile=names.get(vf.current or UNKNOWN_TYPE),
            parent=vf.address,
            iommu_group=_group(functions, vf.address),
            gpu_instance=vf.gpu_instance,
        )
        for vf in vfs
        if vf.current != NO_TYPE
    )
    free = {vf.address: {type_id for type_id, _ in vf.creatable} for vf in vfs if vf.current == NO_TYPE}
    offers = []
    for type_id, name in names.items():
        parents = tuple(vf for vf, ids in free.items() if type_id in ids)
        offers.append(Offer(type_id, name, parents=parents, available=len(parents)))
    return Card(gpu, Backend.VENDOR_VFIO, tuple(offers), instances, tuple(free))


def plain_vf_profile_id(gpu: Gpu) -> str:
    """The id of the only profile of a card whose VFs are the slices (``vf-8086-56c0``)."""
    return f"vf-{gpu.function.vendor_id}-{gpu.function.device_id}"


def _group(functions: Functions, address: str) -> int | None:
    function = functions.get(address)
    return function.iommu_group if function is not None else None


def _idle(gpu: Gpu, vf: PciFunction | None) -> bool:
    """True for a VF nobody has: on no driver, or on a host driver that nobody is seen to use.

    One on VFIO was given to somebody: that no process holds it now does not make it free.
    """
    if vf is None or vf.vfio or any(holder.address == vf.address for holder in gpu.holders):
        return False
    return vf.driver is None or gpu.holders_known


def plain_vf_card(gpu: Gpu, functions: Functions) -> Card:
    """A card whose VFs are the slices: each VF that exists is one, free until somebody is given it."""
    sriov = gpu.sriov
    vfs = sriov.vfs if sriov is not None else ()
    profile_id, name = plain_vf_profile_id(gpu), f"{gpu.name} VF"
    owners = {holder.address: holder.name for holder in gpu.holders if holder.kind == "vm"}
    instances = tuple(Vgpu(vf, profile_id, name, vf, owners.get(vf), _group(functions, vf)) for vf in vfs)
    free = tuple(vf for vf in vfs if _idle(gpu, functions.get(vf)))
    if vfs:
        offer = Offer(profile_id, name, parents=free, available=len(free))
    else:
        offer = Offer(profile_id, name, available=_enableable(gpu))
    return Card(gpu, Backend.SRIOV, (offer,), instances, free)


_NEVER_ENABLE = frozenset({"amdgpu", "radeon", "nouveau"})
"""Host drivers that have no way to enable VFs (AMD's own ``gim`` makes them when it loads)."""


def cannot_enable(gpu: Gpu) -> Reason | None:
    """Why no virtual functions can be enabled on a card; ``None`` when nothing speaks against it."""
    sriov, name, driver = gpu.sriov, gpu.address, gpu.function.driver
    if sriov is None or sriov.total_vfs == 0:
        return Reason("not-capable", f"{name} has no virtual functions", (name,))
    if driver is None or gpu.function.vfio:
        message = f"{name} is on {driver or 'no driver'}: only its host driver enables virtual functions"
        return Reason("host-driver-absent", message, (name,))
    if driver == "gim":
        message = f"the number of virtual functions of {name} is chosen when its driver gim is loaded"
        return Reason("vfs-by-driver", message, (name,))
    # NVIDIA's driver refuses the plain write, and the log says so ever after: its own tool enables them.
    if (sriov.driver_ready is False and driver != "nvidia") or driver in _NEVER_ENABLE:
        return Reason("driver-cannot-enable", f"the driver {driver} of {name} cannot enable VFs", (name,))
    return None


def _enableable(gpu: Gpu) -> int:
    """How many VFs can be enabled on a card that has none yet."""
    if gpu.sriov is None or gpu.sriov.num_vfs or cannot_enable(gpu) is not None:
        return 0
    return gpu.sriov.total_vfs
