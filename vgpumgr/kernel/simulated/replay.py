"""A recording brought to life: its functions, drivers and groups taken over into a reacting machine."""

from __future__ import annotations

import os
from pathlib import Path

from vgpumgr.address import is_address
from vgpumgr.kernel.port import PCI_DEVICES, PCI_DRIVERS, link_name, list_or_empty, read_text
from vgpumgr.kernel.recorded import RecordedDirectory, RecordedTree, open_recording, with_log
from vgpumgr.kernel.simulated import sriov
from vgpumgr.kernel.simulated.device import SimFunction, SriovShape
from vgpumgr.kernel.simulated.machine import Machine
from vgpumgr.kernel.simulated.standard import add_standard
from vgpumgr.kernel.tree import File, Link, Tree

_FILE_LIMIT = 1 << 20


def machine_from_recording(source: str) -> Machine:
    """A machine in the state that was recorded. A function's native driver is the one it was bound to."""
    recording = open_recording(source)
    tree = recording.tree if isinstance(recording, RecordedTree) else with_log(_tree_of(recording))
    machine = Machine(tree)
    for driver in list_or_empty(recording, PCI_DRIVERS):
        _add_driver(machine, driver)
    for name in list_or_empty(recording, PCI_DEVICES):
        if is_address(name):
            _add_function(machine, recording, name)
    for function in machine.functions.values():
        if function.physfn in machine.functions:
            machine.functions[function.physfn].vfs.append(function.address)
    for function in machine.functions.values():
        _make_live(machine, function)
    add_standard(machine, hostname="recorded", release="6.8.0")
    return machine


def _tree_of(recording: RecordedDirectory) -> Tree:
    """A directory recording read into memory."""
    tree = Tree()
    root = Path(recording.root)
    for folder, directories, files in os.walk(root):
        here = "/" + str(Path(folder).relative_to(root)).removeprefix(".")
        for name in [*directories, *files]:
            path = Path(folder, name)
            target = f"{here.rstrip('/')}/{name}"
            if path.is_symlink():
                tree.put(target, Link(os.readlink(path)))
            elif path.is_dir():
                tree.mkdir(target)
            elif path.is_file():
                tree.put(target, _file_of(path))
    return tree


def _file_of(path: Path) -> File:
    try:
        with path.open("rb") as stream:
            return File(stream.read(_FILE_LIMIT))
    except OSError as error:
        return File(error=error.errno or 5)


def _add_driver(machine: Machine, driver: str) -> None:
    from vgpumgr.kernel.simulated import pci

    pci.register_driver(machine, driver)


def _add_function(machine: Machine, recording: RecordedTree | RecordedDirectory, name: str) -> None:
    try:
        path = machine.tree.resolve(f"{PCI_DEVICES}/{name}")
    except OSError:
        return
    driver = link_name(recording, f"{path}/driver")
    group = link_name(recording, f"{path}/iommu_group")
    physfn = link_name(recording, f"{path}/physfn")
    function = SimFunction(name, path, (driver,) if driver else (), driver, physfn=physfn)
    function.group = int(group) if group and group.isdigit() else None
    override = read_text(recording, f"{path}/driver_override")
    function.override = override if override not in (None, "", "(null)") else None
    if driver and driver not in machine.drivers:
        _add_driver(machine, driver)
    total = read_text(recording, f"{path}/sriov_totalvfs")
    if total and total.isdigit():
        function.sriov = _shape(recording, path, int(total), driver)
    machine.functions[name] = function


def _shape(recording: RecordedTree | RecordedDirectory, path: str, total: int, driver: str | None) -> SriovShape:
    def number(name: str, default: int) -> int:
        text = read_text(recording, f"{path}/{name}") or ""
        return int(text) if text.isdigit() else default

    device = (read_text(recording, f"{path}/device") or "0x0000").removeprefix("0x")
    vf_device = read_text(recording, f"{path}/sriov_vf_device") or device
    return SriovShape(total, number("sriov_offset", 4), number("sriov_stride", 1), vf_device, vf_driver=driver)


def _make_live(machine: Machine, function: SimFunction) -> None:
    """Replace recorded texts that must follow what happens."""
    tree, path = machine.tree, function.path
    if all(tree.exists(f"{path}/{name}") for name in ("vendor", "device", "class")):
        class_id = tree.read(f"{path}/class").decode("ascii", "replace").strip().removeprefix("0x")
        sriov.publish_common(machine, function, class_id)
    sriov.publish(machine, function)
