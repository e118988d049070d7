"""What a snapshot leaves out: serial numbers, MAC addresses, GPU UUIDs, other people's open files and mounts."""

from __future__ import annotations

import re
from collections.abc import Callable

from vgpumgr.address import is_address
from vgpumgr.inventory.config_space import without_serial
from vgpumgr.inventory.framebuffer import FRAMEBUFFERS
from vgpumgr.inventory.kernel_log import telling

_MAC_IN_NAME = re.compile(r"\b(en|wl|ww)x[0-9a-f]{12}\b")
_PROCESS = re.compile(r"/proc/(\d+|self)(?:/(.*))?")
_SECRET = frozenset(
    {"address", "board_serial", "eui", "nguid", "permanent_address", "product_serial", "product_uuid", "serial"}
    | {"serial_number", "unique_id", "uuid", "vpd", "wwid"}
)
"""Attributes whose content identifies a piece of hardware."""

_DEVICE_NODES = re.compile(r"/dev/(dri|nvidia|vfio|kfd|accel|snd|fb|hl|ve)")
_COMMAND_LINE = re.compile(
    r"(intel_iommu|amd_iommu|iommu|vfio|pcie_acs_override|pci|intremap|initcall_blacklist|video|i915|xe|nvidia|nouveau)"
    r"[.=_-]|nointremap$"
)
_CPU_LINES = ("vendor_id", "model name", "CPU implementer")
_NVIDIA_LINES = ("Model", "Bus Location", "Device Minor")


def scrub(path: str, data: bytes) -> bytes:
    """A file's content as it may leave the host."""
    name = path.rpartition("/")[2]
    if name in _SECRET:
        return b""
    if name == "config":
        return without_serial(data)
    rule = _RULES.get(name)
    if rule is None or not path.startswith(("/proc/", "/dev/")):
        return data
    return rule(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def scrub_name(text: str) -> str:
    """A path or a link's text with interface names that hold a MAC address made anonymous."""
    return _MAC_IN_NAME.sub(r"\1x000000000000", text)


def keep_link(path: str, target: str) -> bool:
    """Of a process's open files, only device nodes of GPUs and VFIO."""
    process = _PROCESS.fullmatch(path)
    return process is None or _DEVICE_NODES.match(target) is not None


def keep_name(path: str) -> bool:
    """What merely exists is kept in /sys; in /proc it would list everybody's processes and open files."""
    return path.startswith("/sys/")


def _command_line(text: str) -> str:
    return " ".join(word for word in text.split() if _COMMAND_LINE.match(word)) + "\n"


def _lines_of(prefixes: tuple[str, ...]) -> Callable[[str], str]:
    def keep(text: str) -> str:
        lines = dict.fromkeys(line for line in text.splitlines() if line.startswith(prefixes))
        return "".join(f"{line}\n" for line in lines)

    return keep


def _mountinfo(text: str) -> str:
    """Mounts of local block devices; options and other sources (file servers, pools) go."""
    kept = []
    for line in text.splitlines():
        fields, _, rest = line.partition(" - ")
        left, right = fields.split(" "), rest.split(" ")
        local = len(right) >= 2 and right[1].startswith("/dev/")
        if len(left) >= 5 and (local or not left[2].startswith("0:")):
            kept.append(f"{' '.join((left[0], left[1], left[2], '/', left[4]))} rw - {right[0]} {right[1]} rw\n")
    return "".join(kept)


def _iomem(text: str) -> str:
    """The map of PCI functions and framebuffers; where the kernel itself lies is nobody's business."""
    named = ((line, line.partition(" : ")[2].strip()) for line in text.splitlines())
    return "".join(f"{line}\n" for line, name in named if is_address(name) or name in FRAMEBUFFERS)


def _log(text: str) -> str:
    """What drivers said about their functions; what else happened on the host is nobody's business."""
    return "".join(f"{line}\n" for line in text.splitlines() if telling(line))


def _mounts(text: str) -> str:
    lines = (line.split(" ") for line in text.splitlines() if line.startswith("/dev/"))
    return "".join(f"{' '.join(fields[:3])} rw 0 0\n" for fields in lines)


_RULES: dict[str, Callable[[str], str]] = {
    "cmdline": _command_line,
    "cpuinfo": _lines_of(_CPU_LINES),
    "iomem": _iomem,
    "information": _lines_of(_NVIDIA_LINES),
    "kmsg": _log,
    "mountinfo": _mountinfo,
    "mounts": _mounts,
}
