"""What there is on a host, and the news between two looks at it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeVar

from vgpumgr.inventory import take_inventory
from vgpumgr.kernel.port import MDEV_DEVICES, MDEV_PARENTS, PCI_DEVICES, Kernel, follow, link_name
from vgpumgr.model.event import EventType, Happening


class SeenGpu(NamedTuple):
    """A GPU, as far as its events tell of it."""

    name: str
    vendor_id: str | None
    device_id: str | None

    def same(self, other: SeenGpu) -> bool:
        """Whether it is the same kind of card; an id that could not be read tells of no other one."""
        pairs = ((self.vendor_id, other.vendor_id), (self.device_id, other.device_id))
        return all(None in pair or pair[0] == pair[1] for pair in pairs)


class SeenVgpu(NamedTuple):
    """A mediated device: where it is, and what it is."""

    parent: str
    profile_id: str | None

    def same(self, other: SeenVgpu) -> bool:
        """Whether it is the same vGPU: one that was made anew may have another's UUID."""
        return self == other


class Presence(NamedTuple):
    """GPUs by address, and mediated devices by UUID."""

    gpus: Mapping[str, SeenGpu]
    vgpus: Mapping[str, SeenVgpu]


def see(kernel: Kernel, before: Presence | None) -> Presence:
    """What there is now. Raises OSError when it cannot be told.

    A GPU that was seen ``before`` is there as long as its device is, even when it can no longer be told for a GPU:
    a read that failed is no removal.
    """
    devices = {*_names(kernel, PCI_DEVICES), *_names(kernel, MDEV_PARENTS)}
    gpus = {
        gpu.address: SeenGpu(gpu.name, gpu.function.vendor_id, gpu.function.device_id)
        for gpu in take_inventory(kernel).gpus
    }
    kept = {address: gpu for address, gpu in (before.gpus if before else {}).items() if address in devices}
    return Presence({**kept, **gpus}, dict(_vgpus(kernel)))


def _names(kernel: Kernel, folder: str) -> list[str]:
    """Of a kind of device that no driver has brought, there is none; any other failure is no answer."""
    try:
        return kernel.list(folder)
    except FileNotFoundError:
        return []


def _vgpus(kernel: Kernel) -> Iterator[tuple[str, SeenVgpu]]:
    for name in _names(kernel, MDEV_DEVICES):
        *_, parent, _itself = ("", "", *follow(kernel, f"{MDEV_DEVICES}/{name}"))
        if parent:  # else it went while it was looked at
            yield name, SeenVgpu(parent, link_name(kernel, f"{MDEV_DEVICES}/{name}/mdev_type"))


def news(before: Presence, after: Presence) -> list[Happening]:
    """What went, then what came; something else in the same place is both. vGPUs go before their cards."""
    return [
        *(_vgpu(EventType.VGPU_REMOVED, *gone) for gone in _only_in(before.vgpus, after.vgpus)),
        *(_gpu(EventType.GPU_REMOVED, *gone) for gone in _only_in(before.gpus, after.gpus)),
        *(_gpu(EventType.GPU_ADDED, *come) for come in _only_in(after.gpus, before.gpus)),
        *(_vgpu(EventType.VGPU_ADDED, *come) for come in _only_in(after.vgpus, before.vgpus)),
    ]


T = TypeVar("T", SeenGpu, SeenVgpu)


def _only_in(some: Mapping[str, T], others: Mapping[str, T]) -> Iterator[tuple[str, T]]:
    return ((name, item) for name, item in some.items() if name not in others or not item.same(others[name]))


def _gpu(kind: EventType, address: str, gpu: SeenGpu) -> Happening:
    data = {"name": gpu.name, "vendor_id": gpu.vendor_id, "device_id": gpu.device_id}
    return Happening(kind, address, f"{gpu.name} at {address} was {_what(kind)}", data)


def _vgpu(kind: EventType, name: str, vgpu: SeenVgpu) -> Happening:
    data = {"parent": vgpu.parent, "profile_id": vgpu.profile_id}
    return Happening(kind, name, f"the vGPU {name} on {vgpu.parent} was {_what(kind)}", data)


def _what(kind: EventType) -> str:
    return kind.rpartition(".")[2]
