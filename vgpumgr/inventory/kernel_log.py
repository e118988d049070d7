"""What the kernel log adds to an inventory: drivers that said they cannot enable VFs, or cannot have a BAR.

Lines come in any of the usual forms: as ``dmesg`` shows them, as a journal does, as ``/dev/kmsg`` gives them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise

from vgpumgr import address
from vgpumgr.kernel.port import KERNEL_LOG, Kernel, read_text
from vgpumgr.model.host import Gpu
from vgpumgr.model.pci import PciFunction

_RECORD = re.compile(r"^\d+,\d+,\d+,[^;]*;")
"""How a record of ``/dev/kmsg`` begins: priority, number, microseconds, flags."""
_NO_SRIOV = "driver does not support SR-IOV configuration via sysfs"
_NO_BAR = re.compile(r"\bBAR (\d)\b.*: can't reserve\b")


class KernelLogText:
    """The log of a host as far as it can be read, read when it is first asked for. Unreadable tells nothing."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    @cached_property
    def lines(self) -> Sequence[str]:
        """What was said, oldest first."""
        text = read_text(self._kernel, KERNEL_LOG) or ""
        return [_RECORD.sub("", line) for line in text.splitlines()]


def telling(line: str) -> bool:
    """Whether the inventory makes something of a line."""
    return line.rstrip().endswith(_NO_SRIOV) or _NO_BAR.search(line) is not None


def refuses_vfs(lines: Iterable[str], function: PciFunction) -> bool:
    """Whether the driver that the function has now said that it cannot enable VFs."""
    return any(line.rstrip().endswith(_NO_SRIOV) and _speaks(line, function) for line in lines)


def lost_bars(lines: Iterable[str], function: PciFunction) -> set[int]:
    """The BARs that the driver of a function could not have: "BAR 0: can't reserve [mem ...]"."""
    said = ((_NO_BAR.search(line), line) for line in lines)
    return {int(found[1]) for found, line in said if found is not None and _speaks(line, function)}


def with_driver_ready(gpu: Gpu, log: KernelLogText) -> Gpu:
    """The same with ``sriov.driver_ready`` false where the log says so; asked where VFs could be and none are."""
    sriov = gpu.sriov
    if sriov is None or not sriov.total_vfs or sriov.num_vfs or not refuses_vfs(log.lines, gpu.function):
        return gpu
    return gpu._replace(sriov=sriov._replace(driver_ready=False))


def _speaks(line: str, function: PciFunction) -> bool:
    """Whether a line is this function's present driver's; what another driver said before is of no account."""
    return (function.driver, function.address) in _speakers(line)


def _speakers(line: str) -> Iterable[tuple[str | None, str]]:
    """Drivers and addresses that stand side by side: ``[    4.0] i915 0000:00:02.0: driver does not ...``."""
    words = [word.rstrip(":") for word in line.split()]
    return ((driver, name.lower()) for driver, name in pairwise(words) if address.is_address(name.lower()))
