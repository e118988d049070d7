"""Who uses a function right now: processes, mounts, swap, network interfaces that are up, active outputs.

What cannot be looked at is unknown, and unknown is never "free": :attr:`Holders.known` says whether every
process's open files could be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from vgpumgr import address
from vgpumgr.inventory.attachments import find_attachments
from vgpumgr.inventory.block_devices import BlockDevices
from vgpumgr.inventory.handles import find_handles
from vgpumgr.inventory.reader import Reader, whole
from vgpumgr.inventory.watched import Watched
from vgpumgr.kernel.port import PCI_DEVICES, Kernel
from vgpumgr.model.host import Holder


class Holders(NamedTuple):
    """What was found. ``known`` is true when every process's open files could be read."""

    holders: tuple[Holder, ...]
    known: bool

    def of(self, addresses: Iterable[str]) -> tuple[Holder, ...]:
        """The holders of some of the functions."""
        wanted = set(addresses)
        return tuple(holder for holder in self.holders if holder.address in wanted)


def find_holders(kernel: Kernel, addresses: Sequence[str]) -> Holders:
    """Look at the host now for whoever uses these functions. Raises nothing."""
    reader = Reader(kernel)
    names = [name for name in addresses if address.is_address(name)]
    return look(reader, {name: watch(reader, name) for name in names})


def watch(reader: Reader, name: str) -> Watched:
    """What has to be known of a function to find its holders, read from its directory."""
    base = f"{PCI_DEVICES}/{name}"
    group = whole(reader.link_name(f"{base}/iommu_group") or "")
    return Watched(
        address=name,
        names=frozenset(reader.names(base, name)),
        driver=reader.link_name(f"{base}/driver"),
        group=group,
    )


def look(reader: Reader, watched: Mapping[str, Watched]) -> Holders:
    """The same for functions that have been looked at already."""
    disks = BlockDevices(reader, {name for name, function in watched.items() if function.driver is not None})
    handles, known = find_handles(reader, watched, disks)
    return Holders((*handles, *find_attachments(reader, watched, disks)), known)
