"""Room for large BARs in the guest: the 64-bit window that the firmware opens above the guest's memory.

OVMF sizes the window from the processor's address width when it knows it (``<maxphysaddr>``), and takes a size in
MiB from ``opt/ovmf/X-PciMmio64Mb`` otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from lxml import etree

from vgpumgr.domain.document import QEMU_NAMESPACE
from vgpumgr.model.domain import GuestDevice

DEFAULT_WINDOW = 32 << 30
"""Bytes that OVMF opens unasked."""
_OPTION = "opt/ovmf/X-PciMmio64Mb"


def window(devices: Sequence[GuestDevice]) -> int:
    """Bytes of 64-bit window for all BARs, a power of two; 0 when none is wide.

    Each device stands behind a bridge whose window is aligned to its largest BAR, so each is rounded up first.
    """
    total = sum(_round_up(device.bar_bytes) for device in devices)
    return _round_up(total)


def _round_up(size: int) -> int:
    return 1 << (size - 1).bit_length() if size > 0 else 0


def make_room(root: etree._Element, devices: Sequence[GuestDevice]) -> None:
    """Let the firmware open a window that holds all BARs, when the one it opens unasked does not."""
    needed = window(devices)
    if needed <= DEFAULT_WINDOW:
        return
    cpu = root.find("cpu")
    if cpu is not None and cpu.get("mode") == "host-passthrough":
        if cpu.find("maxphysaddr") is None:
            etree.SubElement(cpu, "maxphysaddr", mode="passthrough")
        return
    _tell_firmware(root, needed >> 20)


def _tell_firmware(root: etree._Element, mib: int) -> None:
    """A guest with a processor of another width: name the size, unless the template does."""
    tag = f"{{{QEMU_NAMESPACE}}}"
    commandline = root.find(f"{tag}commandline")
    if commandline is None:
        commandline = etree.SubElement(root, f"{tag}commandline", nsmap={"qemu": QEMU_NAMESPACE})
    if any(_OPTION in argument.get("value", "") for argument in commandline):
        return
    etree.SubElement(commandline, f"{tag}arg", value="-fw_cfg")
    etree.SubElement(commandline, f"{tag}arg", value=f"name={_OPTION},string={mib}")
