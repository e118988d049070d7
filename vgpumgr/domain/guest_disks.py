"""The guest's disks: image files, block devices and CD images, by path."""

from __future__ import annotations

from lxml import etree

from vgpumgr.errors import UsageError

_RAW = (".raw", ".img")
_CDROM = ".iso"


def add_disk(devices: etree._Element, path: str) -> None:
    """Append a disk. ``/dev/...`` is a block device, ``.iso`` a CD, ``.raw`` and ``.img`` raw, the rest qcow2."""
    if not path.startswith("/"):
        raise UsageError(
            f"the disk {path!r} is no absolute path",
            hint="libvirt reads paths from the root of the host's file system",
            code="domain-request-invalid",
        )
    cdrom, block = path.lower().endswith(_CDROM), path.startswith("/dev/")
    disk = etree.SubElement(devices, "disk", type="block" if block else "file", device="cdrom" if cdrom else "disk")
    raw = block or cdrom or path.lower().endswith(_RAW)
    etree.SubElement(disk, "driver", name="qemu", type="raw" if raw else "qcow2")
    etree.SubElement(disk, "source", {"dev" if block else "file": path})
    bus = "sata" if cdrom else "virtio"
    etree.SubElement(disk, "target", dev=_free_name(devices, "sd" if cdrom else "vd"), bus=bus)
    if cdrom:
        etree.SubElement(disk, "readonly")


def _free_name(devices: etree._Element, prefix: str) -> str:
    """The first of ``vda`` ... ``vdz``, ``vdaa`` ... that no disk of the domain has."""
    taken = {target.get("dev") for target in devices.iterfind("disk/target")}
    number = 0
    while (name := prefix + _letters(number)) in taken:
        number += 1
    return name


def _letters(number: int) -> str:
    """0 is ``a``, 25 is ``z``, 26 is ``aa``."""
    text = ""
    while number >= 0:
        number, letter = divmod(number, 26)
        text = chr(ord("a") + letter) + text
        number -= 1
    return text
