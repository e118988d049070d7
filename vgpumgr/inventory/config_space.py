"""PCI configuration space: the few fields the inventory needs. Offsets as in the kernel's ``pci_regs.h``."""

from __future__ import annotations

from collections.abc import Iterator

_STANDARD = 64
_CAPABILITIES = 0x34
_EXTENDED = 0x100
_CAP_PCIE = 0x10
_EXT_ACS = 0x0D
_EXT_SERIAL = 0x03
_SERIAL_BYTES = 12
_ACS_REQUIRED = 0x1D
"""Source validation, request redirect, completion redirect, upstream forwarding: what the kernel asks for."""
_DOWNSTREAM_TYPES = (4, 6)
"""Root port and switch downstream port; only these can turn a request back."""


def is_dead(config: bytes) -> bool:
    """True when every byte of the header reads ff: the function does not answer.

    A virtual function's own vendor and device registers read ffff by specification; the rest does not.
    """
    header = config[:_STANDARD]
    return len(header) >= 4 and header == b"\xff" * len(header)


def acs_isolates(config: bytes) -> bool | None:
    """Whether a downstream port has all ACS bits on that isolation takes; ``None`` when it cannot be told.

    Upstream ports and bridges that are no PCIe port have nothing to tell: ``None`` as well.
    """
    kind = port_type(config)
    if kind not in _DOWNSTREAM_TYPES or len(config) <= _EXTENDED:
        return None
    for offset, capability in _extended(config):
        if capability == _EXT_ACS and offset + 8 <= len(config):
            control = int.from_bytes(config[offset + 6 : offset + 8], "little")
            return control & _ACS_REQUIRED == _ACS_REQUIRED
    return False


def is_downstream_port(config: bytes) -> bool:
    """True for a root port or a switch's downstream port."""
    return port_type(config) in _DOWNSTREAM_TYPES


def port_type(config: bytes) -> int | None:
    """The PCIe device/port type, ``None`` for conventional PCI or a truncated header."""
    if len(config) < _STANDARD or is_dead(config):
        return None
    offset = config[_CAPABILITIES] & 0xFC
    for _ in range(48):
        if offset < _STANDARD or offset + 4 > len(config):
            return None
        if config[offset] == _CAP_PCIE:
            return config[offset + 2] >> 4
        offset = config[offset + 1] & 0xFC
    return None


def without_serial(config: bytes) -> bytes:
    """The same bytes with the device serial number capability's number zeroed."""
    scrubbed = bytearray(config)
    for offset, capability in _extended(config):
        if capability == _EXT_SERIAL:
            end = min(offset + _SERIAL_BYTES, len(scrubbed))
            scrubbed[offset + 4 : end] = bytes(max(end - offset - 4, 0))
    return bytes(scrubbed)


def _extended(config: bytes) -> Iterator[tuple[int, int]]:
    """``(offset, id)`` of the extended capabilities; a loop in the list ends it."""
    offset, seen = _EXTENDED, set[int]()
    while _EXTENDED <= offset <= len(config) - 4 and offset not in seen:
        seen.add(offset)
        header = int.from_bytes(config[offset : offset + 4], "little")
        if header in (0, 0xFFFFFFFF):
            return
        yield offset, header & 0xFFFF
        offset = header >> 20 & 0xFFC
