"""Reads libvirt domain XML of anybody's making: which host devices it names, and whether it is ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lxml import etree

from vgpumgr.errors import UsageError
from vgpumgr.model.domain import HostDevice

NAMESPACE = "https://vgpumgr.dev/xmlns/domain/1"
"""The namespace of our metadata element; a name, not an address."""
SIZE_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class SourceAddress:
    """A PCI source address as written, before anybody asked whether there can be such a device."""

    domain: int
    bus: int
    slot: int
    function: int

    @property
    def text(self) -> str:
        """``0000:3b:00.0``; a slot or function out of range stays visible."""
        return f"{self.domain:04x}:{self.bus:02x}:{self.slot:02x}.{self.function:x}"

    @property
    def valid(self) -> bool:
        """True when PCI can have such an address."""
        return self.domain < 1 << 32 and self.bus <= 0xFF and self.slot <= 0x1F and self.function <= 7


def parse_domain(xml: bytes) -> etree._Element:
    """The root element. Entities are not expanded and nothing is fetched.

    Raises :class:`UsageError` ``domain-xml-invalid`` for what is no XML, is too large, or carries a DTD.
    """
    if len(xml) > SIZE_LIMIT:
        raise UsageError(f"the domain XML is larger than {SIZE_LIMIT >> 20} MiB", code="domain-xml-invalid")
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, remove_comments=True
    )
    try:
        root = etree.fromstring(xml, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise UsageError(
            f"this is no XML: {error}",
            hint="give a libvirt domain, as virsh dumpxml prints it",
            code="domain-xml-invalid",
        ) from error
    if root.getroottree().docinfo.internalDTD is not None:
        raise UsageError("a domain XML has no DOCTYPE", hint="remove it", code="domain-xml-invalid")
    return root


def hostdevs(root: etree._Element) -> list[etree._Element]:
    """All ``<hostdev>`` elements, and interfaces that pass a VF through, wherever they stand."""
    found = [root] if root.tag == "hostdev" else []
    found += [element for element in root.iter("hostdev") if element is not root]
    return found + [element for element in root.iter("interface") if element.get("type") == "hostdev"]


def host_devices(root: etree._Element) -> tuple[HostDevice, ...]:
    """The host devices that a domain names, as far as they can be read."""
    return tuple(device for element in hostdevs(root) for device in read_device(element))


def read_device(element: etree._Element) -> Iterator[HostDevice]:
    """The device of one ``<hostdev>`` (or interface); nothing when it names none that we know how to read."""
    kind = "pci" if element.tag == "interface" else element.get("type")
    managed = element.get("managed") == "yes"
    address = element.find("source/address")
    if address is None:
        return
    if kind == "mdev":
        yield HostDevice("mdev", uuid=(address.get("uuid") or "").strip().lower(), managed=managed)
    elif kind == "pci":
        source = read_source(address)
        if source is not None:
            yield HostDevice("pci", address=source.text, managed=managed)


def read_source(address: etree._Element) -> SourceAddress | None:
    """A source address; parts left out are 0, numbers decimal or hexadecimal. ``None`` when one is no number."""
    try:
        domain, bus, slot, function = (
            _number(address.get(part, "0")) for part in ("domain", "bus", "slot", "function")
        )
    except ValueError:
        return None
    return SourceAddress(domain, bus, slot, function)


def _number(text: str) -> int:
    text = text.strip().lower()
    value = int(text, 16) if text.startswith("0x") else int(text, 10)
    if value < 0:
        raise ValueError(text)
    return value


def allocation_of(root: etree._Element) -> str | None:
    """The allocation a domain of ours was defined for; ``None`` for a foreign one."""
    element = root.find(f"metadata/{{{NAMESPACE}}}allocation")
    return element.get("id") if element is not None else None
