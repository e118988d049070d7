"""What a VM asks for, what could satisfy it, and what it was granted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from vgpumgr.errors import Reason
from vgpumgr.model.json import JsonObject


class AllocationState(StrEnum):
    """The life of an allocation; the transitions stand in ``allocations/states.py`` and nowhere else."""

    REQUESTED = "requested"
    RESERVED = "reserved"
    PREPARING = "preparing"
    READY = "ready"
    ATTACHED = "attached"
    RELEASING = "releasing"
    RELEASED = "released"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class AllocationRequest:
    """What one VM of one tenant asks for.

    ``profile`` set: ``count`` vGPUs of that profile (its name or id); unset: ``count`` whole GPUs.
    ``gpu`` pins the GPU by address; ``vendor_id``/``device_id`` (``"10de"``, ``"2235"``), ``model`` (a part
    of the name, any case) and ``numa_node`` narrow the choice. ``lease_seconds`` is kept for leases.
    """

    vm: str
    tenant: str = "default"
    profile: str | None = None
    count: int = 1
    gpu: str | None = None
    vendor_id: str | None = None
    device_id: str | None = None
    model: str | None = None
    numa_node: int | None = None
    lease_seconds: int | None = None

    def to_json(self) -> JsonObject:
        """All fields by name."""
        return {
            "vm": self.vm,
            "tenant": self.tenant,
            "profile": self.profile,
            "count": self.count,
            "gpu": self.gpu,
            "vendor_id": self.vendor_id,
            "device_id": self.device_id,
            "model": self.model,
            "numa_node": self.numa_node,
            "lease_seconds": self.lease_seconds,
        }


class DeviceKind(StrEnum):
    """What an allocated device is to libvirt."""

    GPU = "gpu"
    """A whole GPU on a VFIO driver, companions with it."""
    MDEV = "mdev"
    """A mediated device; its handle is the UUID."""
    TYPED_VF = "typed-vf"
    """A VF that carries a vGPU type and stays on its vendor driver."""
    VF = "vf"
    """A plain SR-IOV VF on a VFIO driver."""


@dataclass(frozen=True, slots=True)
class AllocatedDevice:
    """One device of an allocation. ``gpu`` is the card; ``handle`` what libvirt is told (address or UUID).

    ``handle`` is ``None`` until a vGPU has been made. ``companions`` travel with a whole GPU.
    """

    kind: DeviceKind
    gpu: str
    handle: str | None
    profile_id: str | None = None
    profile: str | None = None
    companions: tuple[str, ...] = ()

    def to_json(self) -> JsonObject:
        """All fields by name."""
        return {
            "kind": str(self.kind),
            "gpu": self.gpu,
            "handle": self.handle,
            "profile_id": self.profile_id,
            "profile": self.profile,
            "companions": list(self.companions),
        }


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way to satisfy a request: the devices it would use, and why it ranks where it does.

    Higher ``score`` is better; ``notes`` explain it in words, best known first. ``groups`` are the IOMMU groups
    of its whole GPUs: a group goes to one VM.
    """

    devices: tuple[AllocatedDevice, ...]
    score: int
    notes: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()

    def to_json(self) -> JsonObject:
        """``{"devices", "score", "notes"}``."""
        return {
            "devices": [device.to_json() for device in self.devices],
            "score": self.score,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class GpuRefusal:
    """Why one GPU does not satisfy a request."""

    gpu: str
    name: str
    reasons: tuple[Reason, ...]

    def to_json(self) -> JsonObject:
        """``{"gpu", "name", "reasons"}``."""
        return {"gpu": self.gpu, "name": self.name, "reasons": [reason.to_json() for reason in self.reasons]}


@dataclass(frozen=True, slots=True)
class Placement:
    """All candidates, best first, and every GPU that was passed over with its reasons."""

    candidates: tuple[Candidate, ...]
    refusals: tuple[GpuRefusal, ...]

    def to_json(self) -> JsonObject:
        """``{"candidates", "refusals"}``."""
        return {
            "candidates": [candidate.to_json() for candidate in self.candidates],
            "refusals": [refusal.to_json() for refusal in self.refusals],
        }


@dataclass(frozen=True, slots=True)
class Allocation:
    """GPUs or vGPUs granted to one VM of one tenant.

    ``generation`` grows with every change (the ETag). ``operation_id`` is the operation that last worked on it.
    Times are UTC, ISO 8601 with ``Z``. ``warnings`` are seen at the host when the allocation is read, and not kept:
    a device of it that is not there any more.
    """

    id: str
    host_id: str
    tenant: str
    vm: str
    state: AllocationState
    generation: int
    request: AllocationRequest
    devices: tuple[AllocatedDevice, ...]
    created_at: str
    updated_at: str
    operation_id: str | None = None
    domain_uuid: str | None = None
    error: JsonObject | None = None
    lease_expires_at: str | None = None
    warnings: tuple[Reason, ...] = ()

    def to_json(self) -> JsonObject:
        """All fields by name."""
        return {
            "id": self.id,
            "host_id": self.host_id,
            "tenant": self.tenant,
            "vm": self.vm,
            "state": str(self.state),
            "generation": self.generation,
            "request": self.request.to_json(),
            "devices": [device.to_json() for device in self.devices],
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "operation_id": self.operation_id,
            "domain_uuid": self.domain_uuid,
            "error": self.error,
            "lease_expires_at": self.lease_expires_at,
            "warnings": [warning.to_json() for warning in self.warnings],
        }
