"""What requests must look like. Unknown fields and wrong types are refused."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from vgpumgr.model.allocation import AllocationRequest, AllocationState
from vgpumgr.model.domain import DomainState, GuestShape
from vgpumgr.model.event import MAX_ID, EventType
from vgpumgr.model.host import GpuKind, PassthroughState
from vgpumgr_api.waiting import MAX_SECONDS

OperationState = Literal["pending", "running", "succeeded", "failed", "stuck"]
TEXT = r"^[^\x00-\x1f\x7f\ufffe\uffff]+$"
"""What XML and databases can hold: no control characters."""
HEX_ID = r"^[0-9a-fA-F]{4}$"
VM_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
ADDRESS = Field(
    description="PCI address such as 0000:3b:00.0, in any spelling; or a virtual GPU's name", max_length=32
)


class Strict(BaseModel):
    """A JSON object of ours: exact types, known fields only."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Lenient(BaseModel):
    """Query and path: texts that are read as what they stand for, known names only."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class GpuPath(Lenient):
    """A GPU by address."""

    address: Annotated[str, ADDRESS]


class GroupPath(Lenient):
    """An IOMMU group by number."""

    group_id: int = Field(ge=0, lt=1 << 31)


class IdPath(Lenient):
    """An allocation or operation by id."""

    id: str = Field(max_length=64, pattern=TEXT)


class NamePath(Lenient):
    """A VM by name."""

    name: str = Field(max_length=255, pattern=TEXT)


class CreateHeaders(BaseModel):
    """Headers of a POST that creates."""

    key: str | None = Field(
        None,
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=TEXT,
        description="the same key and request again give the first answer again; with another request: 422",
    )


class ChangeHeaders(BaseModel):
    """Headers of a change of something that was read before."""

    tag: str | None = Field(
        None, alias="If-Match", description="the `ETag` that was read; 412 when it has changed since"
    )


class PreferHeaders(BaseModel):
    """Headers of a change that is waited for unless the caller has something better to do."""

    prefer: str | None = Field(
        None, alias="Prefer", description="`respond-async` answers 202 with the operation at once (RFC 7240)"
    )


class VmCreateHeaders(CreateHeaders, PreferHeaders):
    """Headers of a POST that defines a VM."""


class VmChangeHeaders(ChangeHeaders, PreferHeaders):
    """Headers of a change of a VM."""


class CreateChangeHeaders(CreateHeaders, ChangeHeaders):
    """Headers of a POST that changes something read before, and begins an operation."""


class NoQuery(Lenient):
    """No parameters."""


class PageQuery(Lenient):
    """A page of a list."""

    limit: int = Field(100, ge=1, le=500, description="at most so many items")
    cursor: str | None = Field(None, max_length=256, pattern=TEXT, description="`next_cursor` of the page before")


Word = Annotated[str | None, Field(max_length=128, pattern=TEXT)]


class GpuListQuery(PageQuery):
    """Filters on GPUs."""

    kind: GpuKind | None = None
    state: PassthroughState | None = Field(None, description="who has the GPU now")
    driver: Word = None
    vendor_id: str | None = Field(None, pattern=HEX_ID, description="such as 10de")
    assignable: bool | None = Field(None, description="whether a VM can have the whole GPU")


class GroupListQuery(PageQuery):
    """Filters on IOMMU groups."""

    viable: bool | None = None


class ProfileListQuery(PageQuery):
    """Filters on profiles."""

    gpu: Annotated[str | None, ADDRESS] = None
    name: Word = Field(None, description="exactly, such as NVIDIA A40-4Q")


class AllocationListQuery(PageQuery):
    """Filters on allocations."""

    state: AllocationState | None = None
    vm: Word = None
    tenant: Word = None


class OperationListQuery(PageQuery):
    """Filters on operations."""

    state: OperationState | None = None
    subject: Word = Field(None, description="a GPU's address, an allocation's id, or a VM's name")


class EventQuery(PageQuery):
    """Which events; `limit` and `cursor` are for lists, a stream goes on."""

    after: int | None = Field(None, ge=0, le=MAX_ID, description="only events with a higher id")
    type: EventType | None = None
    subject: Word = Field(None, description="a GPU's address, a vGPU's or an allocation's id, or a VM's name")
    tenant: Word = None


class FollowHeaders(BaseModel):
    """Headers of a stream that goes on where another ended."""

    last_id: int | None = Field(
        None, alias="Last-Event-ID", ge=0, le=MAX_ID, description="the id to go on after; goes before `after`"
    )


class VmListQuery(PageQuery):
    """Filters on VMs."""

    state: DomainState | None = None
    ours: bool | None = Field(None, description="only VMs of allocations, or only foreign ones")


class WaitQuery(Lenient):
    """How long to wait for the end."""

    wait: float = Field(
        0,
        ge=0,
        le=MAX_SECONDS,
        allow_inf_nan=False,
        description="seconds to wait, at most, for the operation's end; when many wait, less",
    )


class DryRunQuery(Lenient):
    """A change: really, or only its plan."""

    dry_run: bool = Field(False, description="answer with the plan and change nothing")


class ChangeQuery(WaitQuery, DryRunQuery):
    """A change that takes its time."""


class VmQuery(DryRunQuery):
    """A change of a VM: most are quick, and waited for."""

    wait: float = Field(
        30,
        ge=0,
        le=MAX_SECONDS,
        allow_inf_nan=False,
        description="seconds to wait, at most, before the answer is 202 with the operation; when many wait, less",
    )


class _Guest(BaseModel):
    """The guest around its GPUs."""

    template: str = Field("linux-compute", max_length=64, pattern=TEXT)
    memory_mib: int = Field(8192, ge=128, le=64 << 20)
    vcpus: int = Field(4, ge=1, le=4096)
    disks: list[Annotated[str, Field(max_length=1024, pattern=TEXT)]] = Field(
        default_factory=list, max_length=16, description="absolute paths of images"
    )
    network: Annotated[str | None, Field(max_length=64, pattern=TEXT, description="a libvirt network's name")] = (
        None
    )

    def shape(self) -> GuestShape:
        """The guest around the GPUs."""
        return GuestShape(self.memory_mib, self.vcpus, tuple(self.disks), self.network)


class XmlQuery(_Guest, Lenient):
    """Which machine to write."""


class BindBody(Strict):
    """How to bind."""

    model_config = ConfigDict(json_schema_extra={"examples": [{}, {"driver": "vfio-pci", "force": True}]})

    driver: str = Field("auto", pattern=r"^[A-Za-z0-9_-]{1,64}$", description="`auto`, or a VFIO driver's name")
    force: bool = Field(False, description="take the GPU although the host uses it (boot display, open handles)")
    also: list[Annotated[str, ADDRESS]] = Field(
        default_factory=list, max_length=64, description="other members of its IOMMU group to take along"
    )


class ReleaseBody(Strict):
    """How to give back."""

    force: bool = Field(False, description="although open handles could not be looked at")


class RequestBody(Strict):
    """What a VM asks for: `count` vGPUs of `profile`, or `count` whole GPUs."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"vm": "desktop-17", "profile": "NVIDIA A40-4Q"},
                {"vm": "train-1", "count": 2, "vendor_id": "10de", "numa_node": 0},
            ]
        }
    )

    vm: str = Field(pattern=VM_NAME, max_length=64, examples=["desktop-17"])
    tenant: str = Field("default", pattern=VM_NAME, max_length=64)
    profile: Word = Field(None, description="a profile's name or id", examples=["NVIDIA A40-4Q"])
    count: int = Field(1, ge=1, le=64)
    gpu: Annotated[str | None, ADDRESS] = None
    vendor_id: str | None = Field(None, pattern=HEX_ID)
    device_id: str | None = Field(None, pattern=HEX_ID)
    model: Word = Field(None, description="a part of the GPU's name, in any case")
    numa_node: int | None = Field(None, ge=0, le=1023)
    lease_seconds: int | None = Field(None, ge=1, le=366 * 86400)

    def to_request(self) -> AllocationRequest:
        """The model's request."""
        return AllocationRequest(**self.model_dump())


class DefineBody(_Guest, Strict):
    """Which VM to define for which allocation."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "allocation_id": "0c3f5a52-4f0e-4b8e-9d52-3f1c1f6f1c11",
                    "template": "windows11-desktop",
                    "memory_mib": 16384,
                    "vcpus": 8,
                    "disks": ["/var/lib/libvirt/images/desktop-17.qcow2"],
                }
            ]
        }
    )

    allocation_id: str = Field(max_length=64, pattern=TEXT)


class StopBody(Strict):
    """How to stop."""

    model_config = ConfigDict(json_schema_extra={"examples": [{}, {"force": True}]})

    force: bool = Field(False, description="pull the plug instead of asking the guest")


class EmptyBody(Strict):
    """Nothing."""


class CheckBody(Strict):
    """A domain XML to check."""

    xml: str = Field(max_length=1 << 20)
