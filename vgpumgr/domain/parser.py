"""Reads which host devices a domain XML of anybody's making names, and how."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from lxml import etree

from vgpumgr.domain.arguments import argument_devices
from vgpumgr.domain.document import devices_of
from vgpumgr.domain.source import read_address, read_uuid, unreadable_part
from vgpumgr.model.domain import HostDevice


class Way(StrEnum):
    """How a domain names a host device."""

    HOSTDEV = "hostdev"
    INTERFACE = "interface"
    """``<interface type='hostdev'>``: a NIC or VF as the guest's network."""
    NVME = "nvme"
    """``<disk type='nvme'>``: QEMU drives the controller through VFIO."""
    ARGUMENT = "argument"
    """``<qemu:commandline>``: libvirt knows nothing of it."""


@dataclass(frozen=True, slots=True)
class NamedDevice:
    """One host device that a domain names. ``fault`` says what is wrong with its address, ``None`` for nothing."""

    device: HostDevice
    way: Way
    element: etree._Element | None = None
    fault: str | None = None
    fault_code: str = "address-invalid"


def read_devices(root: etree._Element) -> tuple[NamedDevice, ...]:
    """All host devices, in the order of the document; those that cannot be read have a ``fault``."""
    found = [named for element in devices_of(root) for named in _read(element)]
    found += [NamedDevice(device, Way.ARGUMENT, fault=_unknown_source(device)) for device in argument_devices(root)]
    return tuple(found)


def host_devices(root: etree._Element) -> tuple[HostDevice, ...]:
    """The host devices that a domain names, as far as they can be read."""
    return tuple(named.device for named in read_devices(root) if named.device.key)


def _read(element: etree._Element) -> Iterator[NamedDevice]:
    """The device of one element; nothing when it names none of the kinds we know (USB, SCSI, ...)."""
    kind = element.get("type")
    managed = element.get("managed") == "yes"
    if element.tag == "hostdev" and kind == "mdev":
        yield _mdev(element, managed)
    elif element.tag == "hostdev" and kind == "pci":
        yield _pci(element, Way.HOSTDEV, managed)
    elif element.tag == "interface" and kind == "hostdev" and _is_pci(element):
        yield _pci(element, Way.INTERFACE, managed)
    elif element.tag == "disk" and kind == "nvme":
        source = element.find("source")
        yield _pci(element, Way.NVME, source is not None and source.get("managed") == "yes")


def _is_pci(element: etree._Element) -> bool:
    """An interface may name a USB device instead."""
    address = element.find("source/address")
    return address is None or address.get("type", "pci") == "pci"


def _mdev(element: etree._Element, managed: bool) -> NamedDevice:
    address = element.find("source/address")
    if address is None:
        return _without_source(HostDevice("mdev", managed=managed), Way.HOSTDEV, element)
    written = address.get("uuid", "")
    uuid = read_uuid(written)
    fault = None if uuid else f"{written!r} is not the UUID of a mediated device"
    return NamedDevice(HostDevice("mdev", uuid=uuid, managed=managed), Way.HOSTDEV, element, fault, "uuid-invalid")


def _pci(element: etree._Element, way: Way, managed: bool) -> NamedDevice:
    address = element.find("source/address")
    if address is None:
        return _without_source(HostDevice("pci", managed=managed), way, element)
    source = read_address(address)
    if source is None:
        return NamedDevice(HostDevice("pci", managed=managed), way, element, unreadable_part(address))
    return NamedDevice(HostDevice("pci", address=source.text, managed=managed), way, element, source.fault)


def _without_source(device: HostDevice, way: Way, element: etree._Element) -> NamedDevice:
    fault = f"a {device.type} host device names no source address"
    return NamedDevice(device, way, element, fault, "source-missing")


def _unknown_source(device: HostDevice) -> str | None:
    return (
        None if device.key else "a vfio-pci device among the QEMU arguments names no host device that can be read"
    )
