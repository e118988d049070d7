"""What was granted and is not there any more: a GPU pulled out or off the bus, a vGPU gone with its driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vgpumgr.address import is_address
from vgpumgr.allocations.states import LIVE
from vgpumgr.errors import Reason
from vgpumgr.kernel.port import MDEV_DEVICES, MDEV_PARENTS, PCI_DEVICES, Kernel
from vgpumgr.model.allocation import AllocatedDevice, Allocation, DeviceKind


def with_warnings(kernel: Kernel, allocation: Allocation) -> Allocation:
    """The allocation with a warning for each function, and each vGPU, that it counts on and that is not there."""
    if allocation.state not in LIVE:
        return allocation
    found = missing_of(kernel, allocation)
    return replace(allocation, warnings=found) if found else allocation


def missing_of(kernel: Kernel, allocation: Allocation) -> tuple[Reason, ...]:
    """What an allocation counts on and is not there; each reason has one address."""
    return tuple(reason for device in allocation.devices for reason in _missing(kernel, device))


def _missing(kernel: Kernel, device: AllocatedDevice) -> Iterator[Reason]:
    for function in (device.gpu, *device.companions):
        # Parents of vGPUs that are no PCI functions have their own place.
        bus = PCI_DEVICES if is_address(function) else MDEV_PARENTS
        if not kernel.exists(f"{bus}/{function}"):
            yield Reason("gpu-missing", f"{function} is allocated and not on this host any more", (function,))
            return
    if device.handle is None or device.kind is DeviceKind.GPU:
        return
    folder = MDEV_DEVICES if device.kind is DeviceKind.MDEV else PCI_DEVICES
    if not kernel.exists(f"{folder}/{device.handle}"):
        message = f"the vGPU {device.handle} of {device.gpu} is allocated and not there any more"
        yield Reason("vgpu-missing", message, (device.handle,))
