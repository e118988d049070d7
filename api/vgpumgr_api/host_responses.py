"""What answers of the host look like: functions, groups, GPUs, findings. Additions may come; nothing is renamed."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


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

    address: str = Field(description="its PCI address; of the kind `virtual`, its device's name")
    kind: str = Field(description="gpu, accelerator, nvswitch, bmc-vga, or virtual")
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
    gpus: list[GpuModel] = Field(description="those on PCI")
    virtual_parents: list[GpuModel] = Field(description="parents of vGPUs that are no PCI functions")
    warnings: list[NoticeModel]


class RemedyModel(Answer):
    """One thing to do; `value` is the exact setting, parameter, module, address or command."""

    kind: str
    text: str
    value: str
    undo: bool = Field(description="`value` is to be taken away")


class FindingModel(Answer):
    """Something that stands between a GPU and a VM, and what to do about it."""

    code: str
    severity: str = Field(description="blocking, warning or info")
    message: str
    addresses: list[str]
    remedies: list[RemedyModel]


class HostFindingsModel(Answer):
    """What concerns the whole host."""

    findings: list[FindingModel]


class GpuDiagnosisModel(Answer):
    """Everything about one GPU."""

    address: str
    name: str
    assignable: bool
    state: str
    findings: list[FindingModel]


class DiagnosisModel(Answer):
    """The doctor's report."""

    host: HostFindingsModel
    gpus: list[GpuDiagnosisModel]


class OfferedOnModel(Answer):
    """How many more of a profile one GPU takes."""

    address: str
    creatable: int


class OfferModel(ProfileModel):
    """A profile over the whole host."""

    gpus: list[OfferedOnModel]


class GpuPage(Answer):
    """A page of GPUs."""

    items: list[GpuModel]
    next_cursor: str | None


class GroupPage(Answer):
    """A page of IOMMU groups."""

    items: list[GroupModel]
    next_cursor: str | None


class OfferPage(Answer):
    """A page of profiles. ``reasons``: why cards that can be sliced list none; ``hint``: what to do about that."""

    items: list[OfferModel]
    next_cursor: str | None
    reasons: list[ReasonModel]
    hint: str


class StatusModel(Answer):
    """How the service is."""

    status: str
    waiting_for: list[str] = Field(default_factory=list)
