"""Addresses and identifiers as libvirt reads them from attributes: C numbers, and UUIDs with or without dashes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import UUID

from lxml import etree

PARTS = ("domain", "bus", "slot", "function")
_LARGEST = {"domain": 0xFFFFFFFF, "bus": 0xFF, "slot": 0x1F, "function": 7}
_NUMBER = re.compile(r"0x[0-9a-f]+|0[0-7]*|[1-9][0-9]*", re.IGNORECASE)
_UUID = re.compile(r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}")


@dataclass(frozen=True, slots=True)
class SourceAddress:
    """A PCI address as written, before anybody asked whether there can be such a device."""

    domain: int
    bus: int
    slot: int
    function: int

    @property
    def text(self) -> str:
        """``0000:3b:00.0``; a part out of range stays visible."""
        return f"{self.domain:04x}:{self.bus:02x}:{self.slot:02x}.{self.function:x}"

    @property
    def fault(self) -> str | None:
        """Why PCI cannot have such an address; ``None`` when it can."""
        for part in PARTS:
            value, largest = getattr(self, part), _LARGEST[part]
            if value > largest:
                meant = f"; was bus='0x{value:02x}' meant?" if part == "slot" and self.bus == 0 else ""
                return f"{part} 0x{value:x} of {self.text} is above 0x{largest:x}{meant}"
        return None


def read_address(element: etree._Element) -> SourceAddress | None:
    """The address in an element's attributes; parts left out are 0. ``None`` when one is no number."""
    values = [_number(element.get(part, "0")) for part in PARTS]
    domain, bus, slot, function = (-1 if value is None else value for value in values)
    return None if None in values else SourceAddress(domain, bus, slot, function)


def unreadable_part(element: etree._Element) -> str:
    """What is no number in an address, in words with the remedy."""
    for part in PARTS:
        text = element.get(part, "0")
        if _number(text) is None:
            written = text.strip().lower()
            hexadecimal = re.fullmatch(r"[0-9a-f]{1,8}", written) is not None
            remedy = f"; libvirt reads hexadecimal only with 0x: write 0x{written}" if hexadecimal else ""
            return f"{part}='{text}' of a PCI address is not a number{remedy}"
    return "a PCI address is not made of numbers"


def _number(text: str) -> int | None:
    """A number as C's ``strtoul`` with base 0 reads it: ``0x`` hexadecimal, a leading 0 octal, else decimal."""
    text = text.strip()
    if _NUMBER.fullmatch(text) is None or len(text) > 12:
        return None
    if text[:2].lower() == "0x":
        return int(text, 16)
    return int(text, 8 if text.startswith("0") else 10)


def read_uuid(text: str) -> str | None:
    """A UUID in its canonical spelling, as sysfs names a mediated device; ``None`` for what is none."""
    text = text.strip()
    return str(UUID(text)) if _UUID.fullmatch(text) else None
