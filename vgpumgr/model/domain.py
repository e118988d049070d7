"""Virtual machines as libvirt knows them, and what a guest of ours shall look like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from vgpumgr.model.json import JsonObject


class DomainState(StrEnum):
    """What libvirt says of a domain."""

    RUNNING = "running"
    PAUSED = "paused"
    SHUTTING_DOWN = "shutting-down"
    SHUT_OFF = "shut-off"
    CRASHED = "crashed"
    UNKNOWN = "unknown"

    @property
    def holds_devices(self) -> bool:
        """True unless the domain is known to be off: unknown is never "free"."""
        return self not in (DomainState.SHUT_OFF, DomainState.CRASHED)


@dataclass(frozen=True, slots=True)
class HostDevice:
    """A host device that a domain's XML names: ``type`` is ``pci`` or ``mdev``.

    ``address`` of a PCI function, ``uuid`` of a mediated device; ``managed`` as libvirt reads it.
    """

    type: str
    address: str | None = None
    uuid: str | None = None
    managed: bool = False

    @property
    def key(self) -> str:
        """What identifies the device on its host: its address or its UUID."""
        return self.address or self.uuid or ""


@dataclass(frozen=True, slots=True)
class DomainInfo:
    """One libvirt domain. ``allocation`` is ours that it was defined for; ``None``: the domain is foreign."""

    name: str
    uuid: str
    state: DomainState
    persistent: bool
    devices: tuple[HostDevice, ...] = ()
    allocation: str | None = None
    devices_known: bool = True
    """False when its XML could not be read: it may hold any device."""

    def to_json(self) -> JsonObject:
        """``{"name", "uuid", "state", "persistent", "ours", "allocation", "devices"}``."""
        return {
            "name": self.name,
            "uuid": self.uuid,
            "state": str(self.state),
            "persistent": self.persistent,
            "ours": self.allocation is not None,
            "allocation": self.allocation,
            "devices": [
                {"type": device.type, "address": device.address, "uuid": device.uuid} for device in self.devices
            ],
        }


@dataclass(frozen=True, slots=True)
class HypervisorCapabilities:
    """What a libvirt is: its driver (``QEMU``, ``TEST``), versions (``11.3.0``), kinds of domains (``kvm``).

    ``node_cpus``: the host's processors by NUMA node, as ranges (``0-15,32-47``); empty when libvirt does not say.
    """

    driver: str
    libvirt: str
    emulator: str
    domain_types: tuple[str, ...] = ()
    node_cpus: Mapping[int, str] = field(default_factory=dict)

    @property
    def version(self) -> tuple[int, int, int]:
        """libvirt's version, to compare."""
        major, minor, release = (int(part) for part in self.libvirt.split("."))
        return major, minor, release


@dataclass(frozen=True, slots=True)
class GuestShape:
    """The guest around its GPUs. ``disks`` are absolute paths of images; ``network`` a libvirt network's name."""

    memory_mib: int = 8192
    vcpus: int = 4
    disks: tuple[str, ...] = ()
    network: str | None = None

    def to_json(self) -> JsonObject:
        """All fields by name."""
        return {
            "memory_mib": self.memory_mib,
            "vcpus": self.vcpus,
            "disks": list(self.disks),
            "network": self.network,
        }


@dataclass(frozen=True, slots=True)
class GuestDevice:
    """One device for the composer: the functions of a whole GPU in order, or an mdev, or a VF.

    ``functions``: addresses that become one multifunction guest device, the primary one first.
    ``mdev``: a UUID. ``managed``: libvirt binds and unbinds (never for a VF that must stay on its driver).
    """

    functions: tuple[str, ...] = ()
    mdev: str | None = None
    managed: bool = False
    display: bool = False
    numa_node: int | None = None
    bar_bytes: int = 0
    """Sum of the 64-bit BARs: the firmware's window must hold them."""
    ramfb: bool = False
    """A picture before the guest's driver starts; needs ``display``, and such a device cannot be unplugged."""


@dataclass(frozen=True, slots=True)
class DomainRequest:
    """Everything the composer puts into a template."""

    name: str
    uuid: str
    allocation: str
    shape: GuestShape
    devices: tuple[GuestDevice, ...]
    node_cpus: str | None = None
    """Host processors of the GPUs' NUMA node (``0-15,32-47``), when they all sit on one."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A finding of the preflight. ``error`` would stop the VM; ``warning`` would not."""

    code: str
    severity: str
    message: str
    addresses: tuple[str, ...] = ()

    def to_json(self) -> JsonObject:
        """The shape of DESIGN §6."""
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "addresses": list(self.addresses),
        }


@dataclass(frozen=True, slots=True)
class CheckedDevice:
    """A device that the XML names, and which VM has it now (``None``: nobody known)."""

    device: HostDevice
    owner: str | None

    def to_json(self) -> JsonObject:
        """The shape of DESIGN §6."""
        return {
            "type": self.device.type,
            "address": self.device.address,
            "uuid": self.device.uuid,
            "owner": self.owner,
        }


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What the preflight of a domain XML found."""

    devices: tuple[CheckedDevice, ...]
    problems: tuple[Problem, ...]

    @property
    def fatal(self) -> bool:
        """True when a problem would stop the VM."""
        return any(problem.severity == "error" for problem in self.problems)

    def to_json(self) -> JsonObject:
        """The shape of DESIGN §6."""
        return {
            "devices": [device.to_json() for device in self.devices],
            "problems": [problem.to_json() for problem in self.problems],
        }


def count_cpus(ranges: str) -> int:
    """How many processors ranges such as ``0-15,32-47`` name."""
    bounds = (part.partition("-") for part in ranges.split(",") if part)
    return sum(int(last or first) - int(first) + 1 for first, _, last in bounds)
