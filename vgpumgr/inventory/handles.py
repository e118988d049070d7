"""Open handles: which processes have a device node of a watched function open (``/proc/*/fd``)."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping

from vgpumgr.inventory.block_devices import BlockDevices
from vgpumgr.inventory.device_nodes import DeviceNodes
from vgpumgr.inventory.reader import Reader, clean
from vgpumgr.inventory.watched import Watched
from vgpumgr.model.host import Holder

_GONE = frozenset({errno.ENOENT, errno.ESRCH})
_DELETED = " (deleted)"


def find_handles(
    reader: Reader, watched: Mapping[str, Watched], disks: BlockDevices | None = None
) -> tuple[list[Holder], bool]:
    """The processes that hold a watched function, or one of its ``disks``, and whether every process could be
    looked at.
    """
    nodes = DeviceNodes(reader, watched, disks.nodes() if disks is not None else ())
    pids = [name for name in reader.names("/proc", "host") if name.isascii() and name.isdigit()]
    holders: list[Holder] = []
    known = bool(pids) and not _are_hidden(reader, pids)
    for pid in pids:
        opened = _open_devices(reader, pid)
        if opened is None:
            known = False
            continue
        held: set[tuple[str, str]] = set()
        for node in opened:
            held.update((owner, node) for owner in nodes.owners(node))
        if held:
            holders.extend(_holders(reader, pid, held))
    return holders, known


def _are_hidden(reader: Reader, pids: list[str]) -> bool:
    """True when /proc shows an ordinary user only their own processes (``hidepid``): what is seen is not all."""
    if "1" in pids:
        return False
    mounts = (line.split() for line in (reader.text("/proc/self/mounts", "host") or "").splitlines())
    return any(len(fields) > 3 and fields[1] == "/proc" and "hidepid=" in fields[3] for fields in mounts)


def _open_devices(reader: Reader, pid: str) -> set[str] | None:
    """The device nodes a process has open; ``None`` when nobody may look. A process that ended holds none."""
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = reader.kernel.list(folder)
    except OSError as error:
        # A recording keeps only what was interesting; a process directory without ``fd`` is a look not taken.
        return set() if error.errno in _GONE and not reader.kernel.exists(f"/proc/{pid}") else None
    opened = set()
    for descriptor in descriptors:
        try:
            target = reader.kernel.readlink(f"{folder}/{descriptor}")
        except OSError as error:
            if error.errno not in _GONE:
                return None
            continue
        if target.startswith("/dev/"):
            opened.add(target.removesuffix(_DELETED))
    return opened


def _holders(reader: Reader, pid: str, held: set[tuple[str, str]]) -> Iterator[Holder]:
    try:
        name = reader.kernel.read(f"/proc/{pid}/comm").decode("utf-8", "replace").strip()
    except OSError:
        name = ""
    for owner in sorted({owner for owner, _ in held}):
        detail = ", ".join(sorted(clean(node) for address_, node in held if address_ == owner))
        yield Holder("process", clean(name) or f"pid {pid}", owner, pid=int(pid), detail=detail)
