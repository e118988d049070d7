"""The deeper look at one GPU: what only GPU-like functions are read for."""

from __future__ import annotations

from functools import cached_property

from vgpumgr import address
from vgpumgr.inventory.reader import Reader, clean, hex_id, whole
from vgpumgr.kernel.port import PCI_DEVICES
from vgpumgr.model.host import Sriov
from vgpumgr.model.pci import Bar, Link, PciFunction

_MEMORY = 0x200
_IO = 0x100
_PREFETCH = 0x2000
_BITS64 = 0x100000
_UNSET = 0x20000000
_BAR_LINES = 7
"""Lines 0-5 of ``resource`` are BARs and line 6 is the ROM; what follows belongs to VFs and bridges."""

_UNUSED = " ".join(["0x0000000000000000"] * 3)

_NO_OVERRIDE = ("", "(null)")


class Detail:
    """One GPU function's directory, listed once, and its attributes read on demand."""

    def __init__(self, reader: Reader, function: PciFunction) -> None:
        self.reader = reader
        self.address = function.address
        self.base = f"{PCI_DEVICES}/{function.address}"
        self.names = frozenset(reader.names(self.base, function.address))

    @cached_property
    def virtual_functions(self) -> tuple[str, ...]:
        """VF addresses by index, as the card lists them; the links' text is enough."""
        return tuple(self._read_virtual_functions())

    def text(self, name: str) -> str | None:
        """An attribute's text, without asking for one that the directory does not have."""
        return self.reader.text(f"{self.base}/{name}", self.address) if name in self.names else None

    def integer(self, name: str) -> int | None:
        """A decimal attribute, by the same rule."""
        return self.reader.integer(f"{self.base}/{name}", self.address) if name in self.names else None

    def children(self, name: str) -> list[str]:
        """The names in a sub-directory such as ``drm`` or ``vfio-dev``."""
        return self.reader.names(f"{self.base}/{name}", self.address) if name in self.names else []

    def config(self) -> bytes | None:
        """Configuration space: 64 bytes for an ordinary user, up to 4096 for root."""
        return self.reader.raw(f"{self.base}/config", self.address) if "config" in self.names else None

    def boot_display(self) -> bool:
        """True when the firmware put its console on this function."""
        return self.text("boot_vga") == "1"

    def word(self, name: str) -> str | None:
        """An attribute of one word, safe to print; empty is ``None``."""
        text = self.text(name)
        return clean(text) if text else None

    def driver_override(self) -> str | None:
        """The driver this function is pinned to; the kernel prints ``(null)`` for none."""
        text = self.word("driver_override")
        return None if text is None or text in _NO_OVERRIDE else text

    def subsystem_id(self) -> str | None:
        """``vendor:device`` of the board, from the two attributes."""
        vendor = self._hex4("subsystem_vendor")
        device = self._hex4("subsystem_device")
        return f"{vendor}:{device}" if vendor and device else None

    def reset_methods(self) -> tuple[str, ...] | None:
        """Ways the kernel can reset the function; none where the kernel would show them and does not."""
        text = self.text("reset_method")
        if text is not None:
            return tuple(clean(word) for word in text.split())
        # Kernels before 5.15 have ``reset`` without saying how. It cannot be read, so many recordings lack it,
        # as they lack ``remove``, which every function has: only beside that does its absence say something.
        return () if "remove" in self.names and "reset" not in self.names else None

    def link(self) -> Link:
        """The PCIe link; an integrated device has none and reads as unknown."""
        return Link(
            speed=_speed(self.text("current_link_speed")),
            width=_width(self.text("current_link_width")),
            max_speed=_speed(self.text("max_link_speed")),
            max_width=_width(self.text("max_link_width")),
        )

    def resources(self) -> tuple[tuple[int, int, int], ...]:
        """``(start, end, flags)`` of the BARs and the ROM; unused ones are zeros."""
        text = self.text("resource")
        if text is None:
            return ()
        found = []
        for line in text.splitlines()[:_BAR_LINES]:
            if line == _UNUSED:
                found.append((0, 0, 0))
                continue
            fields = [hex_id(field, 16) for field in line.split()]
            start, end, flags = (*fields, None, None, None)[:3]
            if start is None or end is None or flags is None:
                self.reader.malformed(f"{self.base}/resource", line, self.address)
                return ()
            found.append((int(start, 16), int(end, 16), int(flags, 16)))
        return tuple(found)

    def sriov(self, known_vfs: list[str]) -> Sriov | None:
        """SR-IOV state; ``known_vfs`` are functions that name this one as theirs."""
        total, now = self.integer("sriov_totalvfs"), self.integer("sriov_numvfs")
        listed = set(self.virtual_functions)
        vfs = [*self.virtual_functions, *(vf for vf in known_vfs if vf not in listed)]
        if total is None and not vfs:
            return None
        if now is None:
            now = len(vfs)
        elif now != len(vfs):
            self.reader.warn(
                "vf-count", f"sriov_numvfs says {now}, but {len(vfs)} virtual functions are visible", self.address
            )
        return Sriov(
            total_vfs=max(total if total is not None else len(vfs), 0),
            num_vfs=max(now, 0),
            vfs=tuple(vfs),
            # Linux answers ENOENT to sriov_numvfs while no driver is bound.
            driver_ready=None if "driver" in self.names else False,
        )

    def device_links(self) -> list[str]:
        """PCI functions that this one supplies or consumes (``consumer:pci:0000:01:00.1``)."""
        marks = ("supplier:pci:", "consumer:pci:")
        linked = {name.partition(":pci:")[2] for name in self.names if name.startswith(marks)}
        return sorted(name for name in linked if address.is_address(name))

    def _read_virtual_functions(self) -> list[str]:
        numbered = []
        for name in self.names:
            index = whole(name.removeprefix("virtfn")) if name.startswith("virtfn") else None
            if index is not None:
                target = self.reader.link_name(f"{self.base}/{name}")
                if target is not None and target != self.address and address.is_address(target):
                    numbered.append((index, target))
        return [target for _, target in sorted(numbered)]

    def _hex4(self, name: str) -> str | None:
        return self.reader.hex(f"{self.base}/{name}", 4, self.address) if name in self.names else None


def bars(resources: tuple[tuple[int, int, int], ...]) -> tuple[Bar, ...]:
    """The BARs that are in use, from what :meth:`Detail.resources` found. Sizes in bytes."""
    return tuple(
        Bar(
            number=number,
            size=end - start + 1,
            prefetchable=bool(flags & _PREFETCH),
            bits64=bool(flags & _BITS64),
            assigned=not flags & _UNSET,
        )
        for number, (start, end, flags) in enumerate(resources)
        if flags & (_MEMORY | _IO) and end >= start
    )


def _speed(text: str | None) -> float | None:
    """``16.0 GT/s PCIe`` (old kernels: ``8 GT/s``) in GT/s; ``Unknown`` is ``None``."""
    whole_part, _, fraction = (text or "").partition(" ")[0].partition(".")
    number = whole(whole_part)
    if number is None or number <= 0 or not (fraction == "" or whole(fraction) is not None):
        return None
    return float(f"{number}.{fraction or 0}")


def _width(text: str | None) -> int | None:
    """Lanes; 0 (an integrated device, a VF) and 255 (unreadable) are unknown."""
    lanes = whole(text or "")
    return lanes if lanes is not None and 0 < lanes <= 32 else None
