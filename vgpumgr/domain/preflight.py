"""The preflight: what would stop a VM, found before libvirt or QEMU find it, with the devices it is about.

A pure function of a domain's XML, one look at the host, and what libvirt says of other VMs. What could not
be looked at is said to be unknown; it is never taken for "free".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lxml import etree

from vgpumgr.domain.memory import memory_problems
from vgpumgr.domain.parser import SourceAddress, hostdevs, read_source
from vgpumgr.model.domain import CheckedDevice, CheckResult, HostDevice, Problem
from vgpumgr.model.host import Gpu, HostInventory, IommuGroup
from vgpumgr.model.pci import PciFunction
from vgpumgr.model.vgpu import Backend

_UUID_LENGTH = 36


def check(root: etree._Element, inventory: HostInventory | None, owners: Mapping[str, str] | None) -> CheckResult:
    """Check a domain (or a bare ``<hostdev>``). ``inventory`` ``None``: only what the XML itself tells.

    ``owners`` maps addresses and UUIDs to VM names; ``None`` when libvirt was not asked.
    """
    return _Check(root, inventory, owners or {}).run()


@dataclass
class _Host:
    """The inventory, indexed."""

    functions: dict[str, PciFunction]
    groups: dict[int, IommuGroup]
    gpus: dict[str, Gpu]
    mdevs: set[str]
    typed_vfs: dict[str, Gpu]

    @classmethod
    def of(cls, inventory: HostInventory) -> _Host:
        gpus: dict[str, Gpu] = {}
        mdevs: set[str] = set()
        typed: dict[str, Gpu] = {}
        for gpu in inventory.gpus:
            gpus[gpu.address] = gpu
            if gpu.vgpu.backend is Backend.VENDOR_VFIO:
                typed |= {item.id: gpu for item in gpu.vgpu.instances}
            mdevs |= {item.id for item in gpu.vgpu.instances if len(item.id) == _UUID_LENGTH}
        functions = {function.address: function for function in inventory.functions}
        groups = {group.id: group for group in inventory.groups}
        mdevs |= {name for group in inventory.groups for name in group.other_members if len(name) == _UUID_LENGTH}
        return cls(functions, groups, gpus, mdevs, typed)


class _Check:
    def __init__(self, root: etree._Element, inventory: HostInventory | None, owners: Mapping[str, str]) -> None:
        self.root = root
        self.owners = owners
        self.host = _Host.of(inventory) if inventory is not None else None
        self.name = (root.findtext("name") or "").strip()
        self.devices: list[HostDevice] = []
        self.problems: list[Problem] = []

    def run(self) -> CheckResult:
        for element in hostdevs(self.root):
            self._hostdev(element)
        self._duplicates()
        self._owned()
        if self.host is not None:
            self._on_host(self.host)
        self._displays()
        self.problems += memory_problems(self.root, len(self.devices))
        checked = tuple(CheckedDevice(device, self._owner(device)) for device in self.devices)
        return CheckResult(checked, tuple(self.problems))

    def error(self, code: str, message: str, *addresses: str) -> None:
        self.problems.append(Problem(code, "error", message, addresses))

    def warning(self, code: str, message: str, *addresses: str) -> None:
        self.problems.append(Problem(code, "warning", message, addresses))

    # -- what the XML itself tells --------------------------------------------------------------------
    def _hostdev(self, element: etree._Element) -> None:
        kind = "pci" if element.tag == "interface" else element.get("type")
        address = element.find("source/address")
        if kind not in ("pci", "mdev"):
            return
        if address is None:
            self.error("source-missing", f"a {kind} host device names no source address")
        elif kind == "mdev":
            self._mdev(element, address)
        else:
            self._pci(element, address)

    def _mdev(self, element: etree._Element, address: etree._Element) -> None:
        uuid = (address.get("uuid") or "").strip().lower()
        self.devices.append(HostDevice("mdev", uuid=uuid or None))
        if not _is_uuid(uuid):
            self.error("uuid-invalid", f"{uuid!r} is not the UUID of a mediated device", *([uuid] if uuid else []))
        if element.get("model") is None:
            self.error("model-missing", f"mediated device {uuid}: libvirt needs model='vfio-pci'", uuid)

    def _pci(self, element: etree._Element, address: etree._Element) -> None:
        source = read_source(address)
        if source is None:
            self.error(
                "address-invalid",
                f"a source address is not made of numbers: {etree.tostring(address).decode().strip()}",
            )
            return
        self.devices.append(HostDevice("pci", address=source.text, managed=element.get("managed") == "yes"))
        if not source.valid:
            self.error("address-invalid", _what_is_wrong(source), source.text)

    def _duplicates(self) -> None:
        seen: set[str] = set()
        for device in self.devices:
            if device.key and device.key in seen:
                self.error("device-twice", f"{device.key} is named twice", device.key)
            seen.add(device.key)

    def _owned(self) -> None:
        for device in self.devices:
            owner = self._owner(device)
            if owner is not None and owner != self.name:
                self.error("device-in-use", f"{device.key} belongs to the VM {owner}", device.key)

    def _owner(self, device: HostDevice) -> str | None:
        return self.owners.get(device.key)

    def _displays(self) -> None:
        devices = self.root.find("devices")
        shown = [item for item in self.root.iter("hostdev") if item.get("display") == "on"]
        if shown and devices is not None and devices.find("graphics") is None:
            self.error("display-without-graphics", "display='on' needs a <graphics> device")
        if sum(item.get("ramfb") == "on" for item in self.root.iter("hostdev")) > 1:
            self.error("ramfb-twice", "only one host device can have ramfb='on'")

    # -- what the host tells --------------------------------------------------------------------------
    def _on_host(self, host: _Host) -> None:
        named = {device.key for device in self.devices}
        managed = {device.key for device in self.devices if device.managed}
        for device in self.devices:
            if device.type == "mdev" and device.uuid and device.uuid not in host.mdevs:
                self.error("mdev-unknown", f"there is no mediated device {device.uuid} on this host", device.uuid)
            elif device.type == "pci" and device.address in host.functions:
                self._function(host, device, host.functions[device.address], named, managed)
            elif device.type == "pci" and device.address and not self._said(device.address):
                self.error(
                    "device-unknown", f"there is no PCI function {device.address} on this host", device.address
                )

    def _said(self, address: str) -> bool:
        return any(problem.code == "address-invalid" and address in problem.addresses for problem in self.problems)

    def _function(
        self, host: _Host, device: HostDevice, function: PciFunction, named: set[str], managed: set[str]
    ) -> None:
        address = function.address
        if function.is_bridge:
            self.error("bridge", f"{address} is a bridge; libvirt assigns only endpoints", address)
            return
        self._driver(host, device, function)
        self._group(host, function, managed)
        gpu = host.gpus.get(address)
        if gpu is not None:
            self._gpu(gpu, named)

    def _driver(self, host: _Host, device: HostDevice, function: PciFunction) -> None:
        """Unmanaged: on a VFIO driver already, or a VF with a type on its vendor's. Managed: libvirt sees to it."""
        address, driver = function.address, function.driver or "no driver"
        typed = address in host.typed_vfs
        if typed and device.managed:
            message = f"{address} carries a vGPU: with managed='yes' libvirt would rebind it and the vGPU be lost"
            self.error("managed-vgpu", f"{message}; use managed='no'", address)
        elif not device.managed and not typed and not function.vfio:
            message = f"{address} is bound to {driver}, not to a VFIO driver, and managed='no' leaves it there"
            self.error("device-not-detached", message, address)

    def _group(self, host: _Host, function: PciFunction, managed: set[str]) -> None:
        address, group = (
            function.address,
            host.groups.get(-1 if function.iommu_group is None else function.iommu_group),
        )
        if group is None:
            self.error(
                "no-iommu-group", f"{address} is in no IOMMU group: the IOMMU is off, or does not cover it", address
            )
            return
        left = [
            item for item in group.blockers if item.address not in managed and item.address not in host.typed_vfs
        ]
        left = [item for item in left if item.address != address]
        if left:
            who = ", ".join(f"{item.address} ({item.driver or 'driver unknown'})" for item in left)
            message = f"IOMMU group {group.id} of {address} is not viable: {who} must leave the host's driver first"
            self.error("group-not-viable", message, *(item.address for item in left))

    def _gpu(self, gpu: Gpu, named: set[str]) -> None:
        for reason in gpu.passthrough.reasons:
            if reason.code in _FATAL:
                self.error(_FATAL[reason.code], reason.message, gpu.address)
            elif reason.code in _WORRYING:
                self.warning(_WORRYING[reason.code], reason.message, gpu.address)
        for companion in gpu.companions:
            if companion.address not in named:
                message = (
                    f"{companion.address} belongs to {gpu.address} and is not in the domain ({companion.reason})"
                )
                self.warning("companion-missing", message, companion.address)


_FATAL = {
    "failed": "device-failed",
    "vfs-enabled": "vfs-enabled",
    "vgpu-live": "vgpu-live",
    "framebuffer-held": "framebuffer-held",
}
"""Reasons against passthrough that stop the VM, with the problem's code."""
_WORRYING = {
    "boot-display": "boot-display",
    "in-use-by-host": "in-use-by-host",
    "owner-unknown": "owner-unknown",
    "reserved": "reserved",
    "kind-not-offered": "kind-not-offered",
}
"""Reasons that libvirt would not stop at, and that somebody will regret."""


def _what_is_wrong(source: SourceAddress) -> str:
    if source.slot > 0x1F:
        hint = f"; was bus 0x{source.slot:02x} meant?" if source.bus == 0 else ""
        return f"slot 0x{source.slot:x} of {source.text} is above 0x1f{hint}"
    if source.function > 7:
        return f"function {source.function} of {source.text} is above 7"
    return f"{source.text}: bus or domain out of range"


def _is_uuid(text: str) -> bool:
    parts = text.split("-")
    lengths = [len(part) for part in parts]
    return lengths == [8, 4, 4, 4, 12] and all(char in "0123456789abcdef" for part in parts for char in part)
