"""Open handles: which processes have a device node of a watched function open (``/proc/*/fd``)."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping

from vgpumgr import address
from vgpumgr.inventory.reader import Reader, clean, hex_id, whole
from vgpumgr.inventory.watched import Watched
from vgpumgr.kernel.port import PCI_DEVICES
from vgpumgr.model.host import Holder

_NODE_FOLDERS = {
    "drm": "/dev/dri/",
    "accel": "/dev/accel/",
    "graphics": "/dev/",
    "habanalabs": "/dev/",
    "ve": "/dev/",
    "vfio-dev": "/dev/vfio/devices/",
}
"""Sub-directories of a function whose entries are named as the device nodes they stand for."""

_NVIDIA_GPUS = "/proc/driver/nvidia/gpus"
_GONE = frozenset({errno.ENOENT, errno.ESRCH})
_DELETED = " (deleted)"


def find_handles(reader: Reader, watched: Mapping[str, Watched]) -> tuple[list[Holder], bool]:
    """The processes that hold a watched function, and whether every process could be looked at."""
    nodes = _nodes(reader, watched)
    sound_cards = _sound_cards(reader, watched)
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
            owners = nodes.get(node) or sound_cards.get(_sound_card(node)) or []
            held.update((owner, node) for owner in owners)
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


def _nodes(reader: Reader, watched: Mapping[str, Watched]) -> dict[str, list[str]]:
    """Device nodes, each with the functions that are held by whoever has it open."""
    nodes: dict[str, list[str]] = {}
    for function in watched.values():
        for node in _own_nodes(reader, function):
            nodes.setdefault(node, []).append(function.address)
    for node, owner in _nvidia_nodes(reader, watched):
        nodes.setdefault(node, []).append(owner)
    return nodes


def _own_nodes(reader: Reader, function: Watched) -> Iterator[str]:
    base = f"{PCI_DEVICES}/{function.address}"
    for folder, prefix in _NODE_FOLDERS.items():
        if folder in function.names:
            for name in reader.names(f"{base}/{folder}", function.address):
                yield prefix + name
    if function.group is not None:
        # A group goes to one owner as a whole: whoever opened it holds every function in it.
        yield f"/dev/vfio/{function.group}"
        yield f"/dev/vfio/noiommu-{function.group}"
    if function.driver == "amdgpu":
        # One node for all AMD GPUs of the host: it cannot be told which of them the process computes on.
        yield "/dev/kfd"


def _nvidia_nodes(reader: Reader, watched: Mapping[str, Watched]) -> Iterator[tuple[str, str]]:
    """``/dev/nvidiaN`` by the driver's own numbering, which is not the bus order.

    A GPU whose number cannot be found is taken to be any of those that no other GPU has.
    """
    on_nvidia = [name for name, function in watched.items() if function.driver == "nvidia"]
    if not on_nvidia:
        return
    minors = dict(_nvidia_minors(reader))
    taken = set(minors.values())
    for name in on_nvidia:
        if name in minors:
            yield f"/dev/nvidia{minors[name]}", name
        else:
            for number in range(len(on_nvidia) + len(taken)):
                if number not in taken:
                    yield f"/dev/nvidia{number}", name


def _nvidia_minors(reader: Reader) -> Iterator[tuple[str, int]]:
    for name in reader.names(_NVIDIA_GPUS, "host"):
        text = reader.text(f"{_NVIDIA_GPUS}/{name}/information", name) or ""
        for line in text.splitlines():
            key, _, value = line.partition(":")
            minor = whole(value)
            if key.strip() == "Device Minor" and minor is not None and _looks_like_address(name):
                yield address.canonical(name), minor


def _looks_like_address(name: str) -> bool:
    domain, _, rest = name.partition(":")
    return hex_id(domain, 8) is not None and address.is_address(f"0000:{rest.lower()}")


def _sound_cards(reader: Reader, watched: Mapping[str, Watched]) -> dict[str, list[str]]:
    """Sound cards (``card1``) of the watched audio functions; an open one keeps its driver from letting go."""
    cards: dict[str, list[str]] = {}
    for function in watched.values():
        if "sound" in function.names:
            for name in reader.names(f"{PCI_DEVICES}/{function.address}/sound", function.address):
                cards.setdefault(name, []).append(function.address)
    return cards


def _sound_card(node: str) -> str:
    """``card1`` for ``/dev/snd/controlC1`` and ``/dev/snd/pcmC1D3p``; empty for anything else."""
    if not node.startswith("/dev/snd/"):
        return ""
    number = node.rpartition("/")[2].partition("C")[2].partition("D")[0]
    return f"card{number}" if number.isascii() and number.isdigit() else ""
