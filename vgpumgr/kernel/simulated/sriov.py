"""SR-IOV of the simulation: ``sriov_numvfs`` as Linux' ``iov.c`` answers it."""

from __future__ import annotations

import errno
from functools import partial
from typing import TYPE_CHECKING

from vgpumgr.kernel.port import PCI_DEVICES
from vgpumgr.kernel.simulated import pci
from vgpumgr.kernel.simulated.device import SimFunction, vf_address
from vgpumgr.kernel.tree import File, fail

if TYPE_CHECKING:
    from vgpumgr.kernel.simulated.machine import Machine

VF_CONFIG = b"\xff\xff\xff\xff" + bytes(60)
"""A VF's own vendor and device registers read FFFFh; that is normal."""


def publish(machine: Machine, function: SimFunction) -> None:
    """Put the SR-IOV files of a physical function into the tree."""
    shape = function.sriov
    if shape is None:
        return
    machine.tree.write_text(f"{function.path}/sriov_totalvfs", str(shape.total))
    machine.tree.put(f"{function.path}/sriov_numvfs", File(lambda: b"%d\n" % len(function.vfs)))
    machine.tree.write_text(f"{function.path}/sriov_offset", str(shape.offset))
    machine.tree.write_text(f"{function.path}/sriov_stride", str(shape.stride))
    machine.tree.write_text(f"{function.path}/sriov_vf_device", shape.vf_device)
    machine.tree.write_text(f"{function.path}/sriov_drivers_autoprobe", "1")


def write_autoprobe(machine: Machine, function: SimFunction, text: str) -> None:
    """``sriov_drivers_autoprobe``: 0 or 1, else EINVAL."""
    if text.strip() not in ("0", "1"):
        fail(errno.EINVAL, function.path)
    machine.tree.write_text(f"{function.path}/sriov_drivers_autoprobe", text.strip())


def write_numvfs(machine: Machine, function: SimFunction, text: str) -> None:
    """``sriov_numvfs``: EINVAL for no number, ERANGE above the limit, no-op when equal, ENOENT without a driver
    that can, EBUSY from one non-zero number to another.
    """
    path = f"{function.path}/sriov_numvfs"
    shape = function.sriov
    if shape is None:
        fail(errno.ENOENT, path)
    try:
        wanted = int(text.strip(), 0)
    except ValueError:
        fail(errno.EINVAL, path)
    if not 0 <= wanted <= shape.total:
        fail(errno.ERANGE if wanted > 0 else errno.EINVAL, path)
    if wanted == len(function.vfs):
        return
    if function.driver is None or pci.VFIO_DRIVER.fullmatch(function.driver):
        fail(errno.ENOENT, path)
    if shape.refuses:
        where = f"{function.driver} {function.address}"
        machine.messages.append(f"{where}: driver does not support SR-IOV configuration via sysfs")
        fail(shape.refuses, path)
    if wanted and function.vfs:
        fail(errno.EBUSY, path)
    if wanted:
        enable(machine, function, wanted)
    else:
        disable(machine, function)


def disable(machine: Machine, function: SimFunction) -> None:
    """All VFs vanish."""
    for vf in list(function.vfs):
        pci.remove_function(machine, machine.functions[vf])
    for index in range(function.sriov.total if function.sriov else 0):
        machine.tree.remove(f"{function.path}/virtfn{index}")


def enable(machine: Machine, function: SimFunction, count: int) -> None:
    """``count`` VFs appear, each with its own group."""
    shape = function.sriov
    assert shape is not None
    autoprobe = machine.tree.read(f"{function.path}/sriov_drivers_autoprobe").strip() == b"1"
    group = pci.last_group(machine) if function.group is not None else -1
    for index in range(count):
        address = vf_address(function.address, shape, index)
        path = f"{function.path.rpartition('/')[0]}/{address}"
        native = (shape.vf_driver,) if shape.vf_driver else ()
        number = None if function.group is None else group + 1 + index
        vf = SimFunction(address, path, native, group=number, physfn=function.address)
        machine.functions[address] = vf
        function.vfs.append(address)
        _publish_vf(machine, function, vf, index)
        machine.emit("add", "pci", address, {})
        if autoprobe:
            pci.attach(machine, vf)


def _publish_vf(machine: Machine, physfn: SimFunction, vf: SimFunction, index: int) -> None:
    shape = physfn.sriov
    assert shape is not None
    tree = machine.tree
    tree.mkdir(vf.path)
    for name in ("vendor", "numa_node", "subsystem_vendor", "subsystem_device", "revision", "local_cpulist"):
        if tree.exists(f"{physfn.path}/{name}"):
            tree.put(f"{vf.path}/{name}", File(tree.read(f"{physfn.path}/{name}")))
    tree.write_text(f"{vf.path}/device", f"0x{shape.vf_device}")
    own = tree.read(f"{physfn.path}/class").decode().strip()
    class_id = f"0x{shape.vf_class}" if shape.vf_class else own
    tree.write_text(f"{vf.path}/class", class_id)
    tree.put(f"{vf.path}/config", File(VF_CONFIG))
    publish_common(machine, vf, class_id.removeprefix("0x"))
    tree.link(f"{vf.path}/physfn", physfn.path)
    tree.link(f"{physfn.path}/virtfn{index}", vf.path)


def publish_common(machine: Machine, function: SimFunction, class_id: str) -> None:
    """What every function's directory has, whatever it is."""
    tree, path = machine.tree, function.path
    vendor = tree.read(f"{path}/vendor").decode().strip().removeprefix("0x")
    device = tree.read(f"{path}/device").decode().strip().removeprefix("0x")
    alias = f"pci:v0000{vendor.upper()}d0000{device.upper()}sv00000000sd00000000"
    alias += f"bc{class_id[:2].upper()}sc{class_id[2:4].upper()}i{class_id[4:].upper()}"
    tree.write_text(f"{path}/modalias", alias)
    tree.put(f"{path}/driver_override", File(partial(_override_line, function)))
    tree.put(f"{path}/uevent", File(lambda: _uevent(function, class_id, vendor, device)))
    for name in ("remove", "rescan"):
        tree.put(f"{path}/{name}", File(error=errno.EACCES))
    tree.link(f"{path}/subsystem", "/sys/bus/pci")
    tree.link(f"{PCI_DEVICES}/{function.address}", path)
    if function.group is not None:
        pci.join_group(machine, function.group, function.address, path)


def _override_line(function: SimFunction) -> bytes:
    return f"{function.override or pci.UNSET}\n".encode()


def _uevent(function: SimFunction, class_id: str, vendor: str, device: str) -> bytes:
    lines = [f"DRIVER={function.driver}"] if function.driver else []
    lines += [f"PCI_CLASS={int(class_id, 16):X}", f"PCI_ID={vendor.upper()}:{device.upper()}"]
    lines += [f"PCI_SLOT_NAME={function.address}", ""]
    return "\n".join(lines).encode()
