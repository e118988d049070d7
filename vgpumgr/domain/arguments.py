"""Host devices that a domain passes to QEMU behind libvirt's back, with ``<qemu:commandline>``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

from lxml import etree

from vgpumgr.address import PciAddress, is_address, parse
from vgpumgr.domain.document import QEMU_NAMESPACE
from vgpumgr.domain.source import read_uuid
from vgpumgr.errors import AddressError
from vgpumgr.model.domain import HostDevice

_OPTIONS = ("-device", "--device")


def argument_devices(root: etree._Element) -> Iterator[HostDevice]:
    """The VFIO devices among a domain's own QEMU arguments, as far as their source can be told."""
    words = [
        item.get("value", "") for item in root.iterfind(f"{{{QEMU_NAMESPACE}}}commandline/{{{QEMU_NAMESPACE}}}arg")
    ]
    for option, value in pairwise(words):
        if option in _OPTIONS:
            yield from _device(_properties(value))


def _properties(value: str) -> dict[str, str]:
    """``driver,key=value,...`` or a JSON object, the two spellings QEMU takes."""
    if value.lstrip().startswith("{"):
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            return {}
        return {str(key): str(item) for key, item in found.items()} if isinstance(found, dict) else {}
    driver, _, rest = value.partition(",")
    pairs = (item.partition("=") for item in rest.split(",") if item)
    return {"driver": driver.removeprefix("driver=").strip()} | {
        key.strip(): text.strip() for key, _, text in pairs
    }


def _device(properties: dict[str, str]) -> Iterator[HostDevice]:
    if not properties.get("driver", "").startswith("vfio-pci"):
        return
    source = properties.get("host") or properties.get("sysfsdev", "").rstrip("/").rpartition("/")[2]
    uuid = read_uuid(source)
    if uuid is not None:
        yield HostDevice("mdev", uuid=uuid)
        return
    try:
        address: PciAddress | None = parse(source)
    except AddressError:
        address = None
    known = address is not None and is_address(str(address))
    yield HostDevice("pci", address=str(address) if known else None)
