"""Device nodes: whose is ``/dev/nvidia1``, ``/dev/dri/renderD129``, ``/dev/vfio/31``?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from vgpumgr import address
from vgpumgr.inventory.reader import Reader, hex_id, whole
from vgpumgr.inventory.watched import Watched
from vgpumgr.kernel.port import PCI_DEVICES

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
_NVIDIA_NODE = "/dev/nvidia"
_SOUND_NODE = "/dev/snd/"


class DeviceNodes:
    """The nodes of watched functions."""

    def __init__(
        self, reader: Reader, watched: Mapping[str, Watched], others: Iterable[tuple[str, str]] = ()
    ) -> None:
        """``others`` are nodes that are known already, each with its function's address."""
        self._nodes: dict[str, list[str]] = {}
        for node, owner in others:
            self._nodes.setdefault(node, []).append(owner)
        self._sound_cards: dict[str, list[str]] = {}
        for function in watched.values():
            for node in _own_nodes(reader, function):
                self._nodes.setdefault(node, []).append(function.address)
            for card in _children(reader, function, "sound"):
                self._sound_cards.setdefault(card, []).append(function.address)
        on_nvidia = [name for name, function in watched.items() if function.driver == "nvidia"]
        minors = dict(_nvidia_minors(reader)) if on_nvidia else {}
        self._numbered = {f"{_NVIDIA_NODE}{minor}": name for name, minor in minors.items()}
        self._unnumbered = [name for name in on_nvidia if name not in minors]
        for node, name in self._numbered.items():
            if name in watched:
                self._nodes.setdefault(node, []).append(name)

    def owners(self, node: str) -> Sequence[str]:
        """The functions that are held by whoever has ``node`` open."""
        owners = self._nodes.get(node) or self._sound_cards.get(_sound_card(node))
        if owners is None and self._unnumbered and node not in self._numbered and _is_nvidia_gpu(node):
            # The number of these GPUs could not be found: it may be any that no other GPU has.
            return self._unnumbered
        return owners or ()


def _own_nodes(reader: Reader, function: Watched) -> Iterator[str]:
    for folder, prefix in _NODE_FOLDERS.items():
        for name in _children(reader, function, folder):
            yield prefix + name
    if function.group is not None:
        # A group goes to one owner as a whole: whoever opened it holds every function in it.
        yield f"/dev/vfio/{function.group}"
        yield f"/dev/vfio/noiommu-{function.group}"
    if function.driver == "amdgpu":
        # One node for all AMD GPUs of the host: it cannot be told which of them the process computes on.
        yield "/dev/kfd"


def _children(reader: Reader, function: Watched, folder: str) -> list[str]:
    if folder not in function.names:
        return []
    return reader.names(f"{PCI_DEVICES}/{function.address}/{folder}", function.address)


def _is_nvidia_gpu(node: str) -> bool:
    number = node.removeprefix(_NVIDIA_NODE)
    return number != node and number.isascii() and number.isdigit()


def _nvidia_minors(reader: Reader) -> Iterator[tuple[str, int]]:
    """The driver's own numbering of its GPUs, which is not the bus order."""
    for name in reader.names(_NVIDIA_GPUS, "host"):
        text = reader.text(f"{_NVIDIA_GPUS}/{name}/information", name) or ""
        for line in text.splitlines():
            key, _, value = line.partition(":")
            minor = whole(value)
            if key.strip() == "Device Minor" and minor is not None and _looks_like_address(name):
                yield address.canonical(name), minor


def _looks_like_address(name: str) -> bool:
    """The driver pads the domain and may write upper case."""
    domain, _, rest = name.partition(":")
    return hex_id(domain, 8) is not None and address.is_address(f"0000:{rest.lower()}")


def _sound_card(node: str) -> str:
    """``card1`` for ``/dev/snd/controlC1`` and ``/dev/snd/pcmC1D3p``; empty for anything else."""
    if not node.startswith(_SOUND_NODE):
        return ""
    number = node.rpartition("/")[2].partition("C")[2].partition("D")[0]
    return f"card{number}" if number.isascii() and number.isdigit() else ""
