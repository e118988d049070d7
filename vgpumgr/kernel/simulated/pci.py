"""The PCI driver core, as Linux' ``drivers/base`` and ``drivers/pci`` answer writes, errno included."""

from __future__ import annotations

import errno
import re
from typing import TYPE_CHECKING

from vgpumgr.kernel.port import IOMMU_GROUPS, PCI_DEVICES, PCI_DRIVERS
from vgpumgr.kernel.simulated.device import SimFunction
from vgpumgr.kernel.tree import Dir, File, fail

if TYPE_CHECKING:
    from vgpumgr.kernel.simulated.machine import Machine

VFIO_DRIVER = re.compile(r".*vfio[-_]pci")
UNSET = "(null)"
PAGE = 4096


def write_override(machine: Machine, function: SimFunction, text: str) -> None:
    """``driver_override``: a name, or an empty line to clear. A page or more is EINVAL."""
    if len(text) >= PAGE:
        fail(errno.EINVAL, function.path)
    function.override = text.rstrip("\n") or None


def write_bind(machine: Machine, driver: str, text: str) -> None:
    """``drivers/X/bind``: ENODEV unless the driver matches, EBUSY when bound, else the driver's own errno."""
    function = machine.functions.get(text.strip())
    if function is None or not matches(function, driver):
        fail(errno.ENODEV, f"{PCI_DRIVERS}/{driver}/bind")
    if function.driver is not None:
        fail(errno.EBUSY, f"{PCI_DRIVERS}/{driver}/bind")
    code = probe(machine, function, driver)
    if code:
        fail(code, f"{PCI_DRIVERS}/{driver}/bind")


def write_unbind(machine: Machine, driver: str, text: str) -> None:
    """``drivers/X/unbind``: ENODEV unless that driver has it."""
    function = machine.functions.get(text.strip())
    if function is None or function.driver != driver:
        fail(errno.ENODEV, f"{PCI_DRIVERS}/{driver}/unbind")
    detach(machine, function)


def write_probe(machine: Machine, text: str) -> None:
    """``drivers_probe``: ENODEV for an unknown name. Finding no driver, or one that fails, is success."""
    function = machine.functions.get(text.strip())
    if function is None:
        fail(errno.ENODEV, "/sys/bus/pci/drivers_probe")
    attach(machine, function)


def attach(machine: Machine, function: SimFunction) -> None:
    """Try every registered driver that matches, until one takes the function."""
    if function.driver is not None:
        return
    wanted = [function.override] if function.override else list(function.native)
    for driver in wanted:
        if driver in machine.drivers and matches(function, driver) and not probe(machine, function, driver):
            return


def matches(function: SimFunction, driver: str) -> bool:
    """An override admits one name only; without it, a driver's own id table decides."""
    if function.override:
        return function.override == driver
    return driver in function.native


def probe(machine: Machine, function: SimFunction, driver: str) -> int:
    """Let a driver try a function. Returns its errno, 0 when it took it."""
    if driver not in machine.drivers:
        return errno.ENODEV
    if VFIO_DRIVER.fullmatch(driver) and function.vfs:
        return errno.EBUSY  # "Cannot bind to PF with SR-IOV enabled"
    function.driver = driver
    machine.tree.link(f"{function.path}/driver", f"{PCI_DRIVERS}/{driver}")
    machine.tree.link(f"{PCI_DRIVERS}/{driver}/{function.address}", function.path)
    if VFIO_DRIVER.fullmatch(driver):
        _vfio_appears(machine, function)
    machine.on_bound(function)
    machine.emit("bind", "pci", function.address, {"DRIVER": driver})
    return 0


def detach(machine: Machine, function: SimFunction) -> None:
    """Take a function from its driver; what the driver had made of it goes too."""
    driver = function.driver
    if driver is None:
        return
    machine.on_unbinding(function)
    function.driver = None
    machine.tree.remove(f"{function.path}/driver")
    machine.tree.remove(f"{PCI_DRIVERS}/{driver}/{function.address}")
    machine.tree.remove(f"{function.path}/vfio-dev")
    _vfio_vanishes(machine, function)
    machine.emit("unbind", "pci", function.address, {})


def _vfio_appears(machine: Machine, function: SimFunction) -> None:
    number = machine.next_vfio()
    machine.tree.write_text(f"{function.path}/vfio-dev/vfio{number}/dev", f"511:{number}")
    if function.group is not None:
        machine.tree.put(f"/dev/vfio/{function.group}", File())


def _vfio_vanishes(machine: Machine, function: SimFunction) -> None:
    """The group's node stays while any member is on a VFIO driver."""
    if function.group is None:
        return
    mates = [item for item in machine.functions.values() if item.group == function.group]
    if not any(item.driver and VFIO_DRIVER.fullmatch(item.driver) for item in mates):
        machine.tree.remove(f"/dev/vfio/{function.group}")


def register_driver(machine: Machine, driver: str) -> None:
    """A driver's directory appears, with its files."""
    machine.drivers.add(driver)
    for name in ("bind", "unbind", "new_id", "remove_id"):
        machine.tree.put(f"{PCI_DRIVERS}/{driver}/{name}", File(error=errno.EACCES))


def remove_function(machine: Machine, function: SimFunction) -> None:
    """Surprise removal, or a write to ``remove``: the function and its VFs are gone from every directory."""
    for vf in list(function.vfs):
        remove_function(machine, machine.functions[vf])
    detach(machine, function)
    machine.tree.remove(function.path)
    machine.tree.remove(f"{PCI_DEVICES}/{function.address}")
    if function.group is not None:
        leave_group(machine, function.group, function.address)
    if function.physfn and function.physfn in machine.functions:
        machine.functions[function.physfn].vfs.remove(function.address)
    machine.functions.pop(function.address, None)
    machine.emit("remove", "pci", function.address, {})


def add_function(machine: Machine, function: SimFunction, folder: Dir) -> None:
    """A function that was removed is plugged in again: its directory as it was, but nobody's wish for a driver."""
    for name in [name for name in folder.entries if name.startswith("virtfn")]:
        del folder.entries[name]
    function.override = None
    machine.functions[function.address] = function
    machine.tree.put(function.path, folder)
    machine.tree.link(f"{PCI_DEVICES}/{function.address}", function.path)
    if function.group is not None:
        join_group(machine, function.group, function.address, function.path)
    machine.emit("add", "pci", function.address, {})
    attach(machine, function)


def last_group(machine: Machine) -> int:
    """The highest number of an IOMMU group, of functions and of mediated devices; ``-1`` for none."""
    used = [item.group for item in machine.functions.values() if item.group is not None]
    return max([int(entry) for entry in machine.tree.list(IOMMU_GROUPS)] + used, default=-1)


def join_group(machine: Machine, group: int, name: str, path: str) -> None:
    """A device becomes a member of an IOMMU group."""
    base = f"{IOMMU_GROUPS}/{group}"
    machine.tree.link(f"{base}/devices/{name}", path)
    machine.tree.link(f"{path}/iommu_group", base)
    machine.tree.write_text(f"{base}/type", "DMA-FQ")
    machine.tree.write_text(f"{base}/reserved_regions", "0x00000000fee00000 0x00000000feefffff msi")


def leave_group(machine: Machine, group: int, name: str) -> None:
    """A device leaves its group; an empty group goes with it."""
    machine.tree.remove(f"{IOMMU_GROUPS}/{group}/devices/{name}")
    devices = machine.tree.lookup(f"{IOMMU_GROUPS}/{group}/devices")
    if isinstance(devices, Dir) and not devices.entries:
        machine.tree.remove(f"{IOMMU_GROUPS}/{group}")
