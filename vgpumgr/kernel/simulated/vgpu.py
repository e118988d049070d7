"""vGPU drivers of the simulation: mdev on PFs and VFs, NVIDIA's vendor VFIO, GVT-g's aperture.

A card is one budget for all its VFs: every counter shrinks when any sibling takes a share.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from vgpumgr.kernel.port import MDEV_DEVICES, MDEV_PARENTS
from vgpumgr.kernel.simulated.card import Card, SimType
from vgpumgr.kernel.simulated.device import SimFunction
from vgpumgr.kernel.tree import Dir, File, fail, text_file

if TYPE_CHECKING:
    from vgpumgr.kernel.simulated.machine import Machine

HEADER = "ID    : vGPU Name\n"
REFUSED = "NVRM: Failed to add vgpu create request: 0x38"
"""What NVIDIA's driver logs beside its EIO."""


def card_of(machine: Machine, function: SimFunction) -> Card | None:
    """The card that a function (or its physical function) belongs to."""
    return machine.cards.get(function.physfn or function.address)


def on_bound(machine: Machine, function: SimFunction) -> None:
    """The vGPU driver took a function: its type lists appear."""
    card = card_of(machine, function)
    if card is None or function.driver != card.driver:
        return
    on_vf = function.physfn is not None
    if card.scheme == "vendor-vfio":
        if on_vf:
            _publish_vendor(machine, card, function)
    elif on_vf == (card.scheme == "mdev-vf"):
        _publish_types(machine, card, function)


def on_unbinding(machine: Machine, function: SimFunction) -> None:
    """The driver lets go: every vGPU on the function, and its files, vanish."""
    card = card_of(machine, function)
    if card is None:
        return
    for name, (parent, _) in list(card.live.items()):
        if parent == function.address:
            _forget(machine, card, name)
    if function.physfn is None:
        card.forget_modes()
    for name in ("mdev_supported_types", "nvidia", "vfio-dev"):
        machine.tree.remove(f"{function.path}/{name}")
    machine.tree.remove(f"{MDEV_PARENTS}/{function.address}")


# -- mdev ---------------------------------------------------------------------------------------------
def _publish_types(machine: Machine, card: Card, function: SimFunction) -> None:
    types = machine.tree.mkdir(f"{function.path}/mdev_supported_types")
    for item in card.types:
        folder = types.entries[item.id] = Dir()
        folder.entries |= {
            "name": text_file(item.name),
            "description": text_file(item.description),
            "device_api": text_file("vfio-pci"),
            "create": File(error=errno.EACCES),
            "available_instances": File(partial(_counter, card, function, item)),
            "devices": Dir(),
        }
    machine.tree.link(f"{MDEV_PARENTS}/{function.address}", function.path)


def _counter(card: Card, function: SimFunction, item: SimType) -> bytes:
    return b"%d\n" % available(card, function, item)


def available(card: Card, function: SimFunction, item: SimType) -> int:
    """How many more of a type one parent takes: a VF carries one vGPU at most."""
    if function.physfn is None:
        return card.left(item)
    taken = any(parent == function.address for parent, _ in card.live.values())
    return 0 if taken else min(1, card.left(item))


def create_mdev(machine: Machine, parent: str, type_id: str, text: str) -> None:
    """``create``: EINVAL for no UUID, EEXIST for a known one, no room as the driver says it."""
    function = machine.functions[parent]
    card = card_of(machine, function)
    path = f"{function.path}/mdev_supported_types/{type_id}/create"
    item = card.type(type_id) if card else None
    if card is None or item is None:
        fail(errno.ENODEV, path)
    name = _uuid(text, path)
    if machine.tree.exists(f"{MDEV_DEVICES}/{name}"):
        fail(errno.EEXIST, path)
    if function.address in card.bad_vfs:
        machine.messages.append(REFUSED)
        fail(errno.EIO, path)
    if available(card, function, item) < 1:
        fail(errno.ENOSPC if card.scheme == "gvt" else errno.EUSERS, path)
    card.admit(name, parent, item)
    _publish_mdev(machine, function, item, name)


def _uuid(text: str, path: str) -> str:
    try:
        value = str(uuid.UUID(text.strip()))
    except ValueError:
        fail(errno.EINVAL, path)
    if value != text.strip().lower():
        fail(errno.EINVAL, path)
    return value


def _publish_mdev(machine: Machine, function: SimFunction, item: SimType, name: str) -> None:
    from vgpumgr.kernel.simulated import pci

    tree, base = machine.tree, f"{function.path}/{name}"
    types = f"{function.path}/mdev_supported_types/{item.id}"
    tree.mkdir(base)
    tree.put(f"{base}/remove", File(error=errno.EACCES))
    tree.link(f"{base}/mdev_type", types)
    tree.link(f"{types}/devices/{name}", base)
    tree.link(f"{MDEV_DEVICES}/{name}", base)
    if item.id.startswith("nvidia-"):
        tree.write_text(f"{base}/nvidia/vgpu_params", "")
    group = pci.last_group(machine) + 1
    pci.join_group(machine, group, name, base)
    tree.put(f"/dev/vfio/{group}", File())
    machine.emit("add", "mdev", name, {})


def write_mdev(machine: Machine, name: str, file: str, text: str) -> None:
    """``remove`` (EBUSY while a process has it open) and ``vgpu_params``."""
    card = next((card for card in machine.cards.values() if name in card.live), None)
    if card is None:
        fail(errno.ENODEV, name)
    parent = machine.functions[card.live[name][0]]
    if file == "vgpu_params":
        machine.tree.write_text(f"{parent.path}/{name}/nvidia/vgpu_params", text.strip())
        return
    if text.strip() != "1":
        fail(errno.EINVAL, name)
    if _open_by_somebody(machine, f"/dev/vfio/{_group_of(machine, parent, name)}"):
        fail(errno.EBUSY, name)
    _forget(machine, card, name)


def _group_of(machine: Machine, parent: SimFunction, name: str) -> str:
    return machine.tree.readlink(f"{parent.path}/{name}/iommu_group").rpartition("/")[2]


def _open_by_somebody(machine: Machine, node: str) -> bool:
    for pid in machine.tree.list("/proc"):
        folder = f"/proc/{pid}/fd"
        if pid.isdigit() and machine.tree.exists(folder):
            links = (machine.tree.readlink(f"{folder}/{number}") for number in machine.tree.list(folder))
            if node in links:
                return True
    return False


def _forget(machine: Machine, card: Card, name: str) -> None:
    from vgpumgr.kernel.simulated import pci

    parent, type_id = card.live[name]
    card.drop(name)
    if card.scheme == "vendor-vfio":
        return
    function = machine.functions[parent]
    group = int(_group_of(machine, function, name))
    machine.tree.remove(f"{function.path}/mdev_supported_types/{type_id}/devices/{name}")
    machine.tree.remove(f"{MDEV_DEVICES}/{name}")
    machine.tree.remove(f"{function.path}/{name}")
    machine.tree.remove(f"/dev/vfio/{group}")
    pci.leave_group(machine, group, name)
    machine.emit("remove", "mdev", name, {})


# -- vendor VFIO --------------------------------------------------------------------------------------
def _publish_vendor(machine: Machine, card: Card, function: SimFunction) -> None:
    tree, base = machine.tree, f"{function.path}/nvidia"
    tree.put(f"{base}/creatable_vgpu_types", File(partial(_text, creatable, card, function)))
    tree.put(f"{base}/current_vgpu_type", File(partial(_text, _current_line, card, function)))
    tree.put(f"{base}/gpu_instance_id", File(partial(_gpu_instance, card, function)))
    tree.write_text(f"{base}/vgpu_params", "")
    number = machine.next_vfio()
    tree.write_text(f"{function.path}/vfio-dev/vfio{number}/dev", f"511:{number}")


def _text(of: Callable[[Card, SimFunction], str], card: Card, function: SimFunction) -> bytes:
    return of(card, function).encode()


def _gpu_instance(card: Card, function: SimFunction) -> bytes:
    """The GPU instance behind the VF's vGPU; ENXIO while there is none."""
    if function.address not in card.live:
        fail(errno.ENXIO, function.path)
    in_mig = card.mig is not None and card.mig.enabled
    return b"%d\n" % (card.homes[function.address] if in_mig else 0xFFFFFFFF)


def _current_line(card: Card, function: SimFunction) -> str:
    return current(card, function) + "\n"


def creatable(card: Card, function: SimFunction) -> str:
    """The list of one VF: types the card still takes, none when the VF is taken."""
    header = HEADER if card.header else ""
    if current(card, function) != "0":
        return header
    rows = [f"{item.id:<5} : {item.name}\n" for item in card.types if card.left(item) > 0]
    return header + "".join(rows)


def current(card: Card, function: SimFunction) -> str:
    """The VF's type id, ``0`` for none."""
    return card.live.get(function.address, ("", "0"))[1]


def write_typed_vf(machine: Machine, address: str, file: str, text: str) -> None:
    """``current_vgpu_type``: EIO when the driver refuses, EBUSY while a VM has it; and ``vgpu_params``."""
    function = machine.functions[address]
    card = card_of(machine, function)
    path = f"{function.path}/nvidia/{file}"
    if card is None:
        fail(errno.ENODEV, path)
    if file == "vgpu_params":
        machine.tree.write_text(path, text.strip())
        return
    value = text.strip()
    if not value.isdigit():
        fail(errno.EINVAL, path)
    if value == "0":
        if function.holders:
            fail(errno.EBUSY, path)
        card.drop(address)
        return
    item = card.type(value)
    refused = address in card.bad_vfs or current(card, function) != "0" or item is None
    if refused or item is None or card.left(item) < 1:
        machine.messages.append(REFUSED)
        fail(errno.EIO, path)
    card.admit(address, address, item)
