"""Who has the devices that a domain names: that domain itself, another one, nobody, or nobody can tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vgpumgr.domain.findings import Findings
from vgpumgr.domain.host_index import HostIndex
from vgpumgr.domain.parser import NamedDevice
from vgpumgr.model.domain import CheckedDevice, HostDevice
from vgpumgr.model.host import Gpu, Holder


class Owners:
    """``asked`` maps addresses and UUIDs to VM names; ``None`` when libvirt could not be asked."""

    def __init__(self, asked: Mapping[str, str] | None, host: HostIndex | None, myself: frozenset[str]) -> None:
        self._asked = asked
        self._host = host
        self._myself = myself
        """The name and UUID of the domain that is checked: what it has itself is no conflict."""

    def checked(self, devices: Sequence[NamedDevice]) -> tuple[CheckedDevice, ...]:
        """All devices with their owners."""
        return tuple(CheckedDevice(named.device, self._owner(named.device.key)) for named in devices)

    def check(self, devices: Sequence[NamedDevice], findings: Findings) -> None:
        """Devices that somebody else has, and those of which it cannot be told."""
        named_keys = {named.device.key for named in devices}
        for device in (named.device for named in devices if named.fault is None):
            owner = self._owner(device.key)
            if owner is not None and owner not in self._myself:
                findings.error("device-in-use", f"{device.key} belongs to the VM {owner}", device.key)
            elif owner is None:
                self._unowned(device, findings)
            self._group_elsewhere(device, named_keys, findings)

    def _owner(self, key: str) -> str | None:
        """As libvirt says, else as the vGPU's driver does."""
        if not key:
            return None
        owner = (self._asked or {}).get(key)
        vgpu = self._host.vgpus.get(key) if self._host is not None else None
        return owner if owner is not None or vgpu is None else vgpu.owner

    def _unowned(self, device: HostDevice, findings: Findings) -> None:
        """Unknown is not free: a process may hold the device, and where nobody could look that is said."""
        holders = self._vfio_holders(device.key)
        if holders:
            who = ", ".join(
                f"{item.name} (pid {item.pid})" if item.pid is not None else item.name for item in holders
            )
            findings.error("device-in-use", f"{who} holds {device.key} through VFIO", device.key)
        elif self._asked is None and self._ready_for_a_vm(device):
            message = f"libvirt could not be asked which VM has {device.key}: it may be in use"
            findings.warning("owner-unknown", message, device.key)

    def _group_elsewhere(self, device: HostDevice, named: set[str], findings: Findings) -> None:
        """The kernel gives an IOMMU group to one VM at a time."""
        function = self._host.functions.get(device.key) if self._host is not None else None
        if self._host is None or self._asked is None or function is None:
            return
        group = self._host.group_of(function)
        for member in group.members if group is not None else ():
            owner = self._asked.get(member)
            if member not in named and owner is not None and owner not in self._myself:
                message = f"the IOMMU group of {device.key} belongs to the VM {owner}, which has {member}"
                findings.error("group-in-use", message, member)

    def _gpu(self, key: str) -> Gpu | None:
        return None if self._host is None else self._host.gpus.get(key) or self._host.companions.get(key)

    def _vfio_holders(self, key: str) -> list[Holder]:
        gpu = self._gpu(key)
        if gpu is None or self._host is None or not self._host.functions[key].vfio:
            return []
        return [item for item in gpu.holders if item.address == key and item.kind == "process"]

    def _ready_for_a_vm(self, device: HostDevice) -> bool:
        """On a host driver of its own, no VM can have it."""
        if self._host is None:
            return True
        if device.type == "mdev":
            return device.key in self._host.mdevs
        function = self._host.functions.get(device.key)
        return function is not None and (function.vfio or self._host.carries_vgpu(device.key))
