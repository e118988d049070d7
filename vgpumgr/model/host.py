"""The host inventory: groups, GPUs and everything that stands between a GPU and a VM."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from vgpumgr.errors import Reason
from vgpumgr.model.json import JsonObject
from vgpumgr.model.pci import Bar, Link, PciFunction
from vgpumgr.model.vgpu import VgpuState


class GpuKind(StrEnum):
    """What a GPU-like function is. Only ``gpu`` and ``accelerator`` are ever offered to VMs.

    ``virtual`` is no PCI function but a driver's own device that vGPUs are made on; its address is its name.
    """

    GPU = "gpu"
    ACCELERATOR = "accelerator"
    NVSWITCH = "nvswitch"
    BMC_VGA = "bmc-vga"
    VIRTUAL = "virtual"


class PassthroughState(StrEnum):
    """Who has the GPU now.

    ``host``: a host driver. ``ready``: on a VFIO driver, group viable, seen to be free. ``parked``: taken
    from the host but not ready (unbound, on pci-stub, or its group is not viable). ``in-use``: a VM or
    another process holds it. ``reserved``: promised to an allocation. ``unknown``: on a VFIO driver and
    nobody could look who uses it; never "free". ``failed``: broken, or quarantined.
    """

    HOST = "host"
    READY = "ready"
    PARKED = "parked"
    IN_USE = "in-use"
    RESERVED = "reserved"
    UNKNOWN = "unknown"
    FAILED = "failed"


class HealthStatus(StrEnum):
    """Health as far as sysfs (and later NVML and the kernel log) tell."""

    OK = "ok"
    DEGRADED = "degraded"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Notice(NamedTuple):
    """A warning on the inventory: something could not be read, or is not as it should be."""

    code: str
    message: str
    subject: str

    def to_json(self) -> JsonObject:
        """``{"code", "message", "subject"}``."""
        return {"code": self.code, "message": self.message, "subject": self.subject}


class Holder(NamedTuple):
    """What uses a function right now.

    ``kind``: ``process`` (an open handle), ``mount``, ``swap``, ``block`` (a stacked block device or a pool),
    ``network`` (an interface that is up), ``display`` (an active output), ``framebuffer`` (boot framebuffer on its
    BAR), ``vm`` (a libvirt domain). ``name`` is the process, mount point, interface or domain.
    """

    kind: str
    name: str
    address: str
    pid: int | None = None
    detail: str = ""

    def to_json(self) -> JsonObject:
        """``{"kind", "name", "address", "pid", "detail"}``."""
        return {
            "kind": self.kind,
            "name": self.name,
            "address": self.address,
            "pid": self.pid,
            "detail": self.detail,
        }


class Blocker(NamedTuple):
    """A group member that keeps its IOMMU group from being viable."""

    address: str
    driver: str | None
    reason: str

    def to_json(self) -> JsonObject:
        """``{"address", "driver", "reason"}``."""
        return {"address": self.address, "driver": self.driver, "reason": self.reason}


class IommuGroup(NamedTuple):
    """The kernel's unit of isolation. ``other_members`` are names of members that are no PCI functions."""

    id: int
    members: tuple[str, ...]
    blockers: tuple[Blocker, ...]
    other_members: tuple[str, ...] = ()
    type: str | None = None

    @property
    def viable(self) -> bool:
        """True when every non-bridge member is unbound or on a VFIO driver."""
        return not self.blockers

    def to_json(self) -> JsonObject:
        """The shape of DESIGN §6, plus ``type``."""
        return {
            "id": self.id,
            "viable": self.viable,
            "members": list(self.members),
            "blockers": [blocker.to_json() for blocker in self.blockers],
            "other_members": list(self.other_members),
            "type": self.type,
        }


class Companion(NamedTuple):
    """A function that must (``required``) or should travel with the GPU."""

    address: str
    class_id: str | None
    driver: str | None
    required: bool
    reason: str

    def to_json(self) -> JsonObject:
        """The shape of DESIGN §6."""
        return {
            "address": self.address,
            "class_id": self.class_id,
            "driver": self.driver,
            "required": self.required,
            "reason": self.reason,
        }


class Sriov(NamedTuple):
    """SR-IOV of a physical function. ``driver_ready`` is ``False`` when the driver is known to refuse VFs."""

    total_vfs: int
    num_vfs: int
    vfs: tuple[str, ...] = ()
    driver_ready: bool | None = None

    def to_json(self) -> JsonObject:
        """The shape of DESIGN §6, plus ``driver_ready``."""
        return {
            "total_vfs": self.total_vfs,
            "num_vfs": self.num_vfs,
            "vfs": list(self.vfs),
            "driver_ready": self.driver_ready,
        }


class Passthrough(NamedTuple):
    """Whether a VM can have the whole GPU, who has it now, and every reason against it."""

    assignable: bool
    state: PassthroughState
    reasons: tuple[Reason, ...] = ()

    def to_json(self) -> JsonObject:
        """The shape of DESIGN §6."""
        return {
            "assignable": self.assignable,
            "state": str(self.state),
            "reasons": [reason.to_json() for reason in self.reasons],
        }


class Health(NamedTuple):
    """Health of one GPU with the reasons for anything but ``ok``."""

    status: HealthStatus
    reasons: tuple[Reason, ...] = ()

    def to_json(self) -> JsonObject:
        """``{"status", "reasons": [{"code", "message"}]}``."""
        return {
            "status": str(self.status),
            "reasons": [{"code": reason.code, "message": reason.message} for reason in self.reasons],
        }


class Topology(NamedTuple):
    """Where a GPU sits: its root port, the switches on the way, and NICs behind the same switch."""

    root_port: str | None
    switches: tuple[str, ...] = ()
    nearby_nics: tuple[str, ...] = ()
    acs: bool | None = None
    """True when every downstream port on the path isolates (ACS SV|RR|CR|UF on), ``None`` when unreadable."""

    def to_json(self) -> JsonObject:
        """``{"root_port", "switches", "nearby_nics", "acs"}``."""
        return {
            "root_port": self.root_port,
            "switches": list(self.switches),
            "nearby_nics": list(self.nearby_nics),
            "acs": self.acs,
        }


class Gpu(NamedTuple):
    """A physical card or accelerator: its primary function, its companions and all that is known of it."""

    function: PciFunction
    kind: GpuKind
    name: str
    boot_display: bool
    companions: tuple[Companion, ...]
    passthrough: Passthrough
    health: Health
    topology: Topology
    sriov: Sriov | None = None
    vgpu: VgpuState = VgpuState()
    holders: tuple[Holder, ...] = ()
    holders_known: bool = False
    """False when open handles could not be looked at (no /proc, or not root): unknown is never "free"."""
    subsystem_id: str | None = None
    """``"10de:1467"``; tells an A2 from an A16."""
    modalias: str | None = None
    driver_override: str | None = None
    power_state: str | None = None
    reset_methods: tuple[str, ...] | None = None
    bars: tuple[Bar, ...] = ()
    link: Link = Link()

    @property
    def address(self) -> str:
        """The address of the primary function, which names the GPU; of a virtual one, its device's name."""
        return self.function.address

    @property
    def offered(self) -> bool:
        """True for the kinds that may be given to a VM at all, whole or as vGPUs."""
        return self.kind in (GpuKind.GPU, GpuKind.ACCELERATOR, GpuKind.VIRTUAL)

    def to_json(self) -> JsonObject:
        """The shape of DESIGN §6; the keys after ``health`` are additions."""
        function = self.function
        return {
            "address": function.address,
            "kind": str(self.kind),
            "vendor_id": function.vendor_id,
            "device_id": function.device_id,
            "class_id": function.class_id,
            "name": self.name,
            "driver": function.driver,
            "iommu_group": function.iommu_group,
            "numa_node": function.numa_node,
            "boot_display": self.boot_display,
            "companions": [companion.to_json() for companion in self.companions],
            "passthrough": self.passthrough.to_json(),
            "sriov": self.sriov.to_json() if self.sriov else None,
            "vgpu": self.vgpu.to_json(),
            "health": self.health.to_json(),
            "subsystem_id": self.subsystem_id,
            "driver_override": self.driver_override,
            "power_state": self.power_state,
            "reset_methods": list(self.reset_methods) if self.reset_methods is not None else None,
            "bars": [bar.to_json() for bar in self.bars],
            "link": self.link.to_json(),
            "topology": self.topology.to_json(),
            "holders": [holder.to_json() for holder in self.holders],
            "holders_known": self.holders_known,
        }


class IommuState(NamedTuple):
    """Whether the IOMMU works, judged by its effect, and what the kernel command line says about it."""

    active: bool
    hints: tuple[str, ...] = ()

    def to_json(self) -> JsonObject:
        """``{"active", "hints"}``."""
        return {"active": self.active, "hints": list(self.hints)}


class HostInventory(NamedTuple):
    """Everything one look at a host found. ``functions`` holds every PCI function, GPUs or not."""

    hostname: str | None
    kernel: str | None
    iommu: IommuState
    functions: tuple[PciFunction, ...]
    groups: tuple[IommuGroup, ...]
    gpus: tuple[Gpu, ...]
    warnings: tuple[Notice, ...] = ()

    def to_json(self) -> JsonObject:
        """The object of DESIGN §6. Programs read PCI addresses in ``gpus``: virtual ones are a list of their own,
        ``virtual_parents``, in the same shape.
        """
        virtual = [gpu.to_json() for gpu in self.gpus if gpu.kind is GpuKind.VIRTUAL]
        return {
            "host": {"hostname": self.hostname, "kernel": self.kernel, "iommu": self.iommu.to_json()},
            "iommu_groups": [group.to_json() for group in self.groups],
            "gpus": [gpu.to_json() for gpu in self.gpus if gpu.kind is not GpuKind.VIRTUAL],
            "virtual_parents": virtual,
            "warnings": [warning.to_json() for warning in self.warnings],
        }
