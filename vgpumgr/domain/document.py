"""Domain XML as a document: read safely, whole or in pieces, and told whether it is ours."""

from __future__ import annotations

import re

from lxml import etree

from vgpumgr.errors import UsageError

NAMESPACE = "https://vgpumgr.dev/xmlns/domain/1"
"""The namespace of our metadata element; a name, not an address."""
QEMU_NAMESPACE = "http://libvirt.org/schemas/domain/qemu/1.0"
"""libvirt's namespace for QEMU arguments of one's own; a name, not an address."""
SIZE_LIMIT = 1 << 20
"""Bytes of XML that are read at all; libvirt's own largest domains have some hundred KiB."""

_ROOTS = ("domain", "devices", "hostdev", "interface")
_WRAPPERS = ("domainsnapshot", "domainbackup", "domstatus")
"""Documents of libvirt's that hold a whole domain."""
_PROLOG = re.compile(rb"\s*<\?xml[^>]*\?>")
_HINT = "give a libvirt domain, as virsh dumpxml prints it, or its <devices> or <hostdev> elements"


def parse_domain(xml: bytes) -> etree._Element:
    """The root: a ``<domain>``, or a piece of one (``<devices>``, or one or more ``<hostdev>``).

    Several elements side by side come back under one ``<devices>``. Entities are not expanded and nothing is
    fetched. Raises :class:`UsageError` ``domain-xml-invalid`` for what is no XML, is no part of a domain, is too
    large, or carries a DTD.
    """
    if len(xml) > SIZE_LIMIT:
        raise _invalid(f"the domain XML is larger than {SIZE_LIMIT >> 20} MiB")
    root = _unwrapped(_parse(xml))
    if root.tag not in _ROOTS:
        raise _invalid(f"<{etree.QName(root).localname}> is no libvirt domain", _HINT)
    return root


def _parse(xml: bytes) -> etree._Element:
    try:
        root = _tree(xml)
    except (etree.XMLSyntaxError, ValueError) as error:
        several = _side_by_side(xml)
        if several is None:
            why = " ".join(str(getattr(error, "msg", error)).split())  # libxml2 breaks lines.
            raise _invalid(f"this is no XML: {why}", _HINT) from error
        return several
    if root.getroottree().docinfo.internalDTD is not None:
        raise _invalid("a domain XML has no DOCTYPE", "remove it")
    return root


def _tree(xml: bytes) -> etree._Element:
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    root = etree.fromstring(xml, parser)
    if root is None:
        raise ValueError("it is empty")
    return root


def _side_by_side(xml: bytes) -> etree._Element | None:
    """Elements one after the other, as somebody would paste them: no document, but a list of devices."""
    try:
        root = _tree(b"<devices>" + _PROLOG.sub(b"", xml, count=1) + b"</devices>")
    except (etree.XMLSyntaxError, ValueError):
        return None
    texts = (root.text, *(element.tail for element in root))
    return root if len(root) and not any(text and text.strip() for text in texts) else None


def _unwrapped(root: etree._Element) -> etree._Element:
    inner = root.find(".//domain") if root.tag in _WRAPPERS else None
    return root if inner is None else inner


def _invalid(message: str, hint: str = "") -> UsageError:
    return UsageError(message, hint=hint, code="domain-xml-invalid")


def allocation_of(root: etree._Element) -> str | None:
    """The allocation a domain of ours was defined for; ``None`` for a foreign one."""
    element = root.find(f"metadata/{{{NAMESPACE}}}allocation")
    return element.get("id") if element is not None else None


def name_of(root: etree._Element) -> str:
    """The domain's name; empty for a piece of a domain."""
    return (root.findtext("name") or "").strip()


def devices_of(root: etree._Element) -> list[etree._Element]:
    """The elements under ``<devices>``; a piece of a domain is a device itself, or the list of them."""
    if root.tag == "domain":
        return [element for devices in root.findall("devices") for element in devices]
    return list(root) if root.tag == "devices" else [root]
