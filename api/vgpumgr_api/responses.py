"""What answers look like, for the OpenAPI document. Additions may come; nothing is renamed or removed."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from vgpumgr_api.problems import Problem


class Answer(BaseModel):
    """An object of an answer: clients must bear fields they do not know."""

    model_config = ConfigDict(extra="allow")


class ReasonModel(Answer):
    """Why not."""

    code: str
    message: str
    addresses: list[str]


class CompanionModel(Answer):
    """A function that travels with the GPU."""

    address: str
    class_id: str | None
    driver: str | None
    required: bool
    reason: str


class PassthroughModel(Answer):
    """Whether a VM can have the whole GPU."""

    assignable: bool
    state: str = Field(description="host, ready, parked, in-use, reserved, unknown or failed")
    reasons: list[ReasonModel]


class SriovModel(Answer):
    """SR-IOV of a GPU."""

    total_vfs: int
    num_vfs: int
    vfs: list[str]


class ProfileModel(Answer):
    """A vGPU profile of one card; `creatable` is how many more the card takes now."""

    id: str
    name: str
    framebuffer_mib: int | None
    max_instances: int | None
    creatable: int


class VgpuModel(Answer):
    """A vGPU in being."""

    id: str
    profile_id: str
    profile: str | None
    parent: str
    owner: str | None


class VgpuStateModel(Answer):
    """What a card offers and holds."""

    capable: bool
    backend: str | None
    profiles: list[ProfileModel]
    instances: list[VgpuModel]
    reasons: list[ReasonModel]


class HealthReasonModel(Answer):
    """Why a GPU is not well."""

    code: str
    message: str


class HealthModel(Answer):
    """Health of a GPU."""

    status: str
    reasons: list[HealthReasonModel]


class GpuModel(Answer):
    """A GPU."""

    address: str
    kind: str
    vendor_id: str | None
    device_id: str | None
    class_id: str | None
    name: str
    driver: str | None
    iommu_group: int | None
    numa_node: int | None
    boot_display: bool
    companions: list[CompanionModel]
    passthrough: PassthroughModel
    sriov: SriovModel | None
    vgpu: VgpuStateModel
    health: HealthModel


class BlockerModel(Answer):
    """A group member in the way."""

    address: str
    driver: str | None
    reason: str


class GroupModel(Answer):
    """An IOMMU group."""

    id: int
    viable: bool
    members: list[str]
    blockers: list[BlockerModel]
    other_members: list[str]


class IommuModel(Answer):
    """Whether the IOMMU works."""

    active: bool
    hints: list[str]


class HostModel(Answer):
    """The host."""

    hostname: str | None
    kernel: str | None
    iommu: IommuModel


class NoticeModel(Answer):
    """Something that could not be read, or is odd."""

    code: str
    message: str
    subject: str


class InventoryModel(Answer):
    """The whole host in one object."""

    host: HostModel
    iommu_groups: list[GroupModel]
    gpus: list[GpuModel]
    warnings: list[NoticeModel]


class StepModel(Answer):
    """One step of a plan or an operation."""

    kind: str
    address: str | None
    describe: str


class RefusalModel(Answer):
    """Why a plan must not be carried out."""

    code: str
    message: str
    reasons: list[ReasonModel]


class PlanModel(Answer):
    """What would be done (a dry run)."""

    steps: list[StepModel]
    refusal: RefusalModel | None


class OperationModel(Answer):
    """A plan being carried out."""

    id: str
    kind: str
    subject: str
    state: str = Field(description="pending, running, succeeded, failed (undone) or stuck")
    steps: list[StepModel]
    error: dict[str, Any] | None
    allocation_id: str | None
    created_at: str
    updated_at: str


class DeviceModel(Answer):
    """An allocated device; `handle` is what libvirt is told."""

    kind: str
    gpu: str
    handle: str | None
    profile_id: str | None
    profile: str | None
    companions: list[str]


class AllocationModel(Answer):
    """GPUs or vGPUs granted to one VM. `generation` is the entity tag."""

    id: str
    tenant: str
    vm: str
    state: str
    generation: int
    devices: list[DeviceModel]
    operation_id: str | None
    error: dict[str, Any] | None
    created_at: str
    updated_at: str


class CandidateModel(Answer):
    """A way to satisfy a request."""

    devices: list[DeviceModel]
    score: int
    notes: list[str]


class GpuRefusalModel(Answer):
    """Why a GPU was passed over."""

    gpu: str
    name: str
    reasons: list[ReasonModel]


class PlacementModel(Answer):
    """Candidates, best first, and refusals."""

    candidates: list[CandidateModel]
    refusals: list[GpuRefusalModel]


class VmModel(Answer):
    """A libvirt domain."""

    name: str
    uuid: str
    state: str
    persistent: bool
    ours: bool
    allocation: str | None


class CheckedDeviceModel(Answer):
    """A host device that a domain names."""

    type: str
    address: str | None
    uuid: str | None
    owner: str | None


class ProblemModel(Answer):
    """A finding of the preflight."""

    code: str
    severity: str
    message: str
    addresses: list[str]


class CheckModel(Answer):
    """What the preflight found."""

    devices: list[CheckedDeviceModel]
    problems: list[ProblemModel]


class OfferModel(ProfileModel):
    """A profile over the whole host."""

    gpus: list[dict[str, Any]]


class GpuPage(Answer):
    """A page of GPUs."""

    items: list[GpuModel]
    next_cursor: str | None


class GroupPage(Answer):
    """A page of IOMMU groups."""

    items: list[GroupModel]
    next_cursor: str | None


class OfferPage(Answer):
    """A page of profiles."""

    items: list[OfferModel]
    next_cursor: str | None


class AllocationPage(Answer):
    """A page of allocations."""

    items: list[AllocationModel]
    next_cursor: str | None


class OperationPage(Answer):
    """A page of operations."""

    items: list[OperationModel]
    next_cursor: str | None


class VmPage(Answer):
    """A page of VMs."""

    items: list[VmModel]
    next_cursor: str | None


class StatusModel(Answer):
    """How the service is."""

    status: str
    waiting_for: list[str] = Field(default_factory=list)


Responses = dict[Any, Any]
_PROBLEM = {"content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}}


def problems(*statuses: int) -> Responses:
    """Problem answers for a route, beside those that every route can give."""
    texts = {
        400: "the request cannot be read",
        404: "there is no such thing",
        409: "refused, or in conflict with the present state; `reasons` says why",
        412: "changed since it was read",
        413: "the body is too large",
        415: "the body is not JSON",
        422: "the request does not fit its model; `errors` names the fields",
        500: "tried and failed; what was done was undone, or is named in `reasons`",
        503: "the service, libvirt or the database is not available",
    }
    return {status: {"description": texts[status], **_PROBLEM} for status in (400, *statuses, 422, 500, 503)}


__all__ = ["Problem", "problems"]
