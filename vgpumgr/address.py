"""PCI addresses: ``dddd:bb:ss.f``, lower case, with a domain of four to eight hexadecimal digits.

The kernel prints at least four digits of domain and more when it needs them (VMD bridges start at
0x10000), so a domain is up to 32 bits wide here.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from vgpumgr.errors import AddressError

_CANONICAL = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([01][0-9a-f])\.([0-7])")
_LENIENT = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([01]?[0-9a-fA-F])\.([0-7])")


class PciAddress(NamedTuple):
    """The four parts of a PCI address; sorts in bus order, which text does not (``10000:`` < ``ffff:``)."""

    domain: int
    bus: int
    slot: int
    function: int

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.slot:02x}.{self.function}"

    @property
    def slot_name(self) -> str:
        """The address without its function: what all functions of one card in one slot share."""
        return f"{self.domain:04x}:{self.bus:02x}:{self.slot:02x}"


def parse(text: str) -> PciAddress:
    """Read an address as a person or NVML writes it: upper case, no domain, or an eight-digit domain.

    Raises :class:`AddressError` for anything else.
    """
    match = _LENIENT.fullmatch(text.strip())
    if match is None:
        raise AddressError(text)
    domain, bus, slot, function = match.groups()
    return PciAddress(int(domain or "0", 16), int(bus, 16), int(slot, 16), int(function))


def canonical(text: str) -> str:
    """The one spelling used inside the project, in JSON and in sysfs paths."""
    return str(parse(text))


def is_address(text: str) -> bool:
    """True for a name that sysfs would use for a PCI function (canonical spelling only)."""
    return _CANONICAL.fullmatch(text) is not None


def plain_name(text: str) -> str:
    """An address in its one spelling; anything else as it is, for parents of vGPUs that are no PCI functions."""
    return canonical(text) if _LENIENT.fullmatch(text.strip()) else text


def sort_key(text: str) -> tuple[int, PciAddress, str]:
    """Order addresses as buses are numbered; names that are no address come last, by name."""
    match = _CANONICAL.fullmatch(text)
    if match is None:
        return (1, PciAddress(0, 0, 0, 0), text)
    domain, bus, slot, function = match.groups()
    return (0, PciAddress(int(domain, 16), int(bus, 16), int(slot, 16), int(function)), "")
