"""Where devices stand on the guest's PCI buses: addresses that exist, used once, functions beside a function 0."""

from __future__ import annotations

from collections import defaultdict

from lxml import etree

from vgpumgr.domain.document import devices_of
from vgpumgr.domain.findings import Findings
from vgpumgr.domain.source import SourceAddress, read_address, unreadable_part

Slot = tuple[int, int, int]


def check_guest_slots(root: etree._Element, findings: Findings) -> None:
    """The guest addresses that are written; libvirt chooses the others."""
    slots: dict[Slot, dict[int, etree._Element]] = defaultdict(dict)
    for device in devices_of(root):
        address = device.find("address")
        if address is not None and address.get("type") == "pci":
            _place(address, slots, findings)
    for functions in slots.values():
        _multifunction(functions, findings)


def _place(element: etree._Element, slots: dict[Slot, dict[int, etree._Element]], findings: Findings) -> None:
    place = read_address(element)
    if place is None:
        findings.error("guest-address-invalid", f"in the guest: {unreadable_part(element)}")
    elif place.fault is not None:
        findings.error("guest-address-invalid", f"in the guest: {place.fault}")
    elif place.domain or place.bus or place.slot:
        functions = slots[place.domain, place.bus, place.slot]
        if place.function in functions:
            findings.error("guest-address-twice", f"two devices stand at {place.text} in the guest")
        functions[place.function] = element


def _multifunction(functions: dict[int, etree._Element], findings: Findings) -> None:
    """A guest looks for further functions only where function 0 exists and says that there are some."""
    first = functions.get(0)
    if not any(functions) or (first is not None and first.get("multifunction") == "on"):
        return
    place = read_address(next(iter(functions.values()))) or SourceAddress(0, 0, 0, 0)
    slot = place.text[:-2]
    if first is None:
        findings.warning(
            "guest-multifunction", f"slot {slot} in the guest has no function 0: it finds no other there"
        )
    else:
        message = f"function 0 of slot {slot} in the guest lacks multifunction='on': QEMU refuses the others there"
        findings.error("guest-multifunction", message)
