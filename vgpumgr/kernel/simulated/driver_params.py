"""NVIDIA's driver parameters: read from modprobe's files when the driver is loaded, shown under /proc."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vgpumgr.kernel.modprobe import module_options
from vgpumgr.kernel.recorded import RecordedTree

if TYPE_CHECKING:
    from vgpumgr.kernel.simulated.machine import Machine

SHOWN = "/proc/driver/nvidia/params"
_NAMES = ("RegistryDwords", "RegistryDwordsPerDevice")
_POLICIES = {0x00: 2, 0x10: 3}
"""Policy bits of RmPVMRL → NVML's number; without its lowest bit it is best effort (1)."""


def load(machine: Machine) -> None:
    """The driver is loaded: from now on it shows, and keeps to, what is configured now."""
    options = module_options(RecordedTree("simulated", machine.tree), "nvidia")
    given = {option.name.removeprefix("NVreg_"): option.value for option in options}
    lines = ["EnableMSI: 1", *(f'{name}: "{given.get(name, "")}"' for name in _NAMES)]
    machine.tree.write_text(SHOWN, "\n".join(lines))
    for address, card in machine.cards.items():
        card.scheduler = _policy(given, address)


def _policy(given: dict[str, str], address: str) -> int:
    """A card's own entry counts before that for all cards."""
    found, concerned = None, False
    for part in given.get("RegistryDwordsPerDevice", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == "pci":
            concerned = value == address
        elif name == "RmPVMRL" and concerned:
            found = value
    for part in given.get("RegistryDwords", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == "RmPVMRL" and found is None:
            found = value
    bits = int(found or "0", 0)
    return _POLICIES[bits & 0xF0] if bits & 1 else 1
