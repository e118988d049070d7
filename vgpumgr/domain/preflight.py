"""Finds what would stop a VM before libvirt and QEMU find it, with the devices it is about.

A pure function of a domain's XML, one look at the host, and what libvirt says of other VMs. What could not be
looked at is said to be unknown; it is never taken for "free".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lxml import etree

from vgpumgr.domain.checks_document import Version, check_document
from vgpumgr.domain.checks_host import check_host
from vgpumgr.domain.document import name_of
from vgpumgr.domain.findings import Findings
from vgpumgr.domain.host_index import HostIndex
from vgpumgr.domain.owners import Owners
from vgpumgr.domain.parser import read_devices
from vgpumgr.domain.source import read_uuid
from vgpumgr.model.domain import CheckResult
from vgpumgr.model.host import HostInventory


def check(
    root: etree._Element,
    inventory: HostInventory | None,
    owners: Mapping[str, str] | None,
    *,
    libvirt: Version | None = None,
    schema: Sequence[str] = (),
) -> CheckResult:
    """Check a domain (or a bare ``<hostdev>``). ``inventory`` ``None``: only what the XML itself tells.

    ``owners`` maps addresses and UUIDs to VM names; ``None`` when libvirt was not asked. ``libvirt`` is the
    version that will read the domain, for what older ones do not know; ``schema`` is what its schema has against
    the domain.
    """
    findings = Findings()
    for fault in schema:
        findings.warning("schema", f"libvirt's schema, {fault}: libvirt drops what it does not know, or refuses it")
    devices = read_devices(root)
    host = HostIndex.of(inventory) if inventory is not None else None
    check_document(root, devices, libvirt, findings)
    if host is not None:
        check_host(host, devices, findings)
    who = Owners(owners, host, _myself(root))
    who.check(devices, findings)
    return CheckResult(who.checked(devices), findings.problems)


def _myself(root: etree._Element) -> frozenset[str]:
    uuid = read_uuid(root.findtext("uuid") or "")
    return frozenset(name for name in (name_of(root), uuid) if name)
