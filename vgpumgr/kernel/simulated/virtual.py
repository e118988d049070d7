"""Parents of mediated devices that are no PCI functions, as the kernel's sample drivers make them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vgpumgr.kernel.simulated import vgpu
from vgpumgr.kernel.simulated.card import Card
from vgpumgr.kernel.simulated.device import SimFunction

if TYPE_CHECKING:
    from vgpumgr.kernel.simulated.machine import Machine


def add_parent(machine: Machine, card: Card) -> None:
    """The driver is loaded: its one device, named as itself, and its types appear."""
    name = card.physfn
    function = SimFunction(name, f"/sys/devices/virtual/{name}/{name}", driver=card.driver)
    machine.functions[name] = function
    machine.cards[name] = card
    machine.tree.link(f"/sys/class/{name}/{name}", function.path)
    machine.tree.link(f"{function.path}/subsystem", f"/sys/class/{name}")
    vgpu.on_bound(machine, function)


def remove_parent(machine: Machine, function: SimFunction) -> None:
    """The driver is unloaded: its device goes, with every vGPU on it."""
    vgpu.on_unbinding(machine, function)
    machine.tree.remove(function.path)
    machine.tree.remove(f"/sys/class/{function.address}/{function.address}")
    machine.functions.pop(function.address, None)
    machine.cards.pop(function.address, None)
