"""What the kernel log adds to an inventory: drivers that said they cannot enable virtual functions."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from vgpumgr import address
from vgpumgr.kernel.port import Kernel, read_text
from vgpumgr.model.host import Gpu, HostInventory

_REFUSAL = "driver does not support SR-IOV configuration via sysfs"


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
    refused = {said for line in lines if line.rstrip().endswith(_REFUSAL) for said in _speakers(line)}
    gpus = tuple(_refused(gpu) if (gpu.function.driver, gpu.address) in refused else gpu for gpu in inventory.gpus)
    return inventory._replace(gpus=gpus)


def _speakers(line: str) -> Iterable[tuple[str, str]]:
    """The driver and the address at the head of the line. What another driver said before is of no account."""
    # ``6,123,456,-;i915 0000:00:02.0: ...`` is how /dev/kmsg begins a line.
    words = [word.rpartition(";")[2].rstrip(":") for word in line.split()]
    return ((driver, name) for driver, name in pairwise(words) if address.is_address(name))


def _refused(gpu: Gpu) -> Gpu:
    return gpu if gpu.sriov is None else gpu._replace(sriov=gpu.sriov._replace(driver_ready=False))
