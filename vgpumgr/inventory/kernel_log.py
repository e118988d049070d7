"""What the kernel log adds to an inventory: drivers that said they cannot enable virtual functions."""

from __future__ import annotations

from collections.abc import Iterable

from vgpumgr import address
from vgpumgr.kernel.port import Kernel, read_text
from vgpumgr.model.host import Gpu, HostInventory

_REFUSALS = (
    "driver does not support SR-IOV configuration via sysfs",
    "no driver bound to device; cannot configure SR-IOV",
)


KERNEL_LOG = "/dev/kmsg"


def with_own_log(kernel: Kernel, inventory: HostInventory) -> HostInventory:
    """The same with the kernel's own log, where a GPU could have VFs and has none. Unreadable tells nothing."""
    if not any(gpu.sriov is not None and gpu.sriov.total_vfs and not gpu.sriov.num_vfs for gpu in inventory.gpus):
        return inventory
    text = read_text(kernel, KERNEL_LOG)
    return with_kernel_log(inventory, text.splitlines()) if text else inventory


def with_kernel_log(inventory: HostInventory, lines: Iterable[str]) -> HostInventory:
    """The same inventory with ``sriov.driver_ready`` false where the log says that the driver cannot do it.

    ``lines`` are log lines in any of the usual forms: ``[    4.0] i915 0000:00:02.0: driver does not ...``.
    """
    refused = {name for line in lines if line.rstrip().endswith(_REFUSALS) for name in _addresses(line)}
    gpus = tuple(_refused(gpu) if gpu.address in refused else gpu for gpu in inventory.gpus)
    return inventory._replace(gpus=gpus)


def _addresses(line: str) -> Iterable[str]:
    words = (word.rstrip(":") for word in line.split())
    return (word for word in words if address.is_address(word))


def _refused(gpu: Gpu) -> Gpu:
    return gpu if gpu.sriov is None else gpu._replace(sriov=gpu.sriov._replace(driver_ready=False))
