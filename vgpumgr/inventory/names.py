"""Names of devices from the machine's hardware database; ids where it has none.

``pci.ids`` is searched in place (three look-ups per GPU), not parsed: it has 40,000 lines.
"""

from __future__ import annotations

import mmap
import re
from functools import cache
from pathlib import Path
from typing import Protocol

_FILES = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids", "/var/lib/pciutils/pci.ids")
_NEXT_VENDOR = rb"\n[0-9A-Za-z]"
_NEXT_DEVICE = rb"\n\t[0-9a-f]"
_NEXT_LINE = rb"\n|\Z"


class Names(Protocol):
    """Something that can name a PCI device."""

    def name(self, vendor: str, device: str, subsystem: str | None) -> str | None:
        """A name for ids like ``10de``, ``2235``, subsystem ``10de:145a``; ``None`` when there is none."""
        ...


class NoNames:
    """Names nothing: every device goes by its ids."""

    def name(self, vendor: str, device: str, subsystem: str | None) -> str | None:
        """See :class:`Names`."""
        return None


class PciIds:
    """The ``pci.ids`` file. Raises OSError when it cannot be opened, ValueError when it is empty."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._known: dict[tuple[str, str, str | None], str | None] = {}

    def name(self, vendor: str, device: str, subsystem: str | None) -> str | None:
        """See :class:`Names`: vendor and device, and the board's own name where boards share the id."""
        key = (vendor, device, subsystem)
        if key not in self._known:
            self._known[key] = self._search(vendor, device, subsystem)
        return self._known[key]

    def _search(self, vendor: str, device: str, subsystem: str | None) -> str | None:
        start = self._find(f"{vendor}  ", 0, len(self._data))
        if start is None:
            return None
        end = self._before(_NEXT_VENDOR, start)
        at = self._find(f"\t{device}  ", start, end)
        if at is None:
            return None
        name = f"{self._rest(start, 6)} {self._rest(at, 7)}"
        if subsystem is None:
            return name
        board = self._find(f"\t\t{subsystem.replace(':', ' ')}  ", at, min(end, self._before(_NEXT_DEVICE, at)))
        return name if board is None else f"{name} ({self._rest(board, 13)})"

    def _find(self, line: str, start: int, end: int) -> int | None:
        """Where a line that begins so starts, between two places."""
        wanted = line.encode("ascii", "replace")
        if start == 0 and self._data[: len(wanted)] == wanted:
            return 0
        at = self._data.find(b"\n" + wanted, start, end)
        return None if at < 0 else at + 1

    def _before(self, pattern: bytes, start: int) -> int:
        # Compiled when first needed (and kept by ``re``): a host without GPUs needs no names.
        match = re.compile(pattern).search(self._data, start)
        return match.start() if match else len(self._data)

    def _rest(self, start: int, skip: int) -> str:
        """What follows the ids on the line that begins at ``start``."""
        return self._data[start + skip : self._before(_NEXT_LINE, start)].decode("utf-8", "replace").strip()


class UdevNames:
    """What udev's database says about the functions of this machine, for one that has no ``pci.ids``."""

    def __init__(self) -> None:
        import pyudev

        self._known: dict[tuple[str, str], str] = {}
        for device in pyudev.Context().list_devices(subsystem="pci"):
            vendor, _, number = device.properties.get("PCI_ID", "").lower().partition(":")
            maker = device.properties.get("ID_VENDOR_FROM_DATABASE")
            model = device.properties.get("ID_MODEL_FROM_DATABASE")
            if maker and model:
                self._known[vendor, number] = f"{maker} {model}"

    def name(self, vendor: str, device: str, subsystem: str | None) -> str | None:
        """See :class:`Names`."""
        return self._known.get((vendor, device))


@cache
def machine_names(live: bool = False) -> Names:
    """This machine's hardware database: the first ``pci.ids`` that can be used, else (``live``: for the
    machine's own functions) udev's. Names nothing where there is neither.
    """
    for path in _FILES:
        try:
            return PciIds(Path(path))
        except (OSError, ValueError):
            continue
    try:
        return UdevNames() if live else NoNames()
    except (ImportError, OSError):
        return NoNames()


def display_name(names: Names, vendor: str | None, device: str | None, subsystem: str | None) -> str:
    """A name for people; the ids when the database has none, ``unknown`` for what is unknown."""
    if vendor is not None and device is not None:
        found = names.name(vendor, device, subsystem)
        if found:
            return found
    return f"{vendor or 'unknown'}:{device or 'unknown'}"
