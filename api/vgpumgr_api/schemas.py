"""What requests must look like. Unknown fields and wrong types are refused."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from vgpumgr.model.allocation import AllocationRequest
from vgpumgr.model.domain import GuestShape

HEX_ID = r"^[0-9a-fA-F]{4}$"
VM_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
ADDRESS = Field(description="PCI address such as 0000:3b:00.0, in any spelling", max_length=32)


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

    id: str = Field(max_length=64)


class NamePath(Lenient):
    """A VM by name."""

    name: str = Field(max_length=255)


class PageQuery(Lenient):
    """A page of a list."""

    limit: int = Field(100, ge=1, le=500, description="at most so many items")
    cursor: str | None = Field(None, max_length=256, description="`next_cursor` of the page before")


class GpuListQuery(PageQuery):
    """Filters on GPUs."""

    kind: str | None = Field(None, description="gpu, accelerator, nvswitch, bmc-vga")
    state: str | None = Field(None, description="host, ready, parked, in-use, reserved, unknown, failed")
    driver: str | None = None
    vendor_id: str | None = Field(None, pattern=HEX_ID)
    assignable: bool | None = None


class GroupListQuery(PageQuery):
    """Filters on IOMMU groups."""

    viable: bool | None = None


class ProfileListQuery(PageQuery):
    """Filters on profiles."""

    gpu: Annotated[str | None, ADDRESS] = None
    name: str | None = Field(None, description="exactly", max_length=128)


class AllocationListQuery(PageQuery):
    """Filters on allocations."""

    state: str | None = None
    vm: str | None = None
    tenant: str | None = None


class OperationListQuery(PageQuery):
    """Filters on operations."""

    state: str | None = None
    subject: str | None = Field(None, description="a GPU's address, an allocation's id, or a VM's name")


class VmListQuery(PageQuery):
    """Filters on VMs."""

    state: str | None = None
    ours: bool | None = Field(None, description="only VMs of allocations, or only foreign ones")


class WaitQuery(Lenient):
    """How long to wait for the end."""

    wait: float = Field(0, ge=0, le=60, description="seconds to wait for the operation's end")


class ChangeQuery(WaitQuery):
    """A change: really, or only its plan."""

    dry_run: bool = Field(False, description="answer with the plan and change nothing")


class DryRunQuery(Lenient):
    """A change: really, or only its plan."""

    dry_run: bool = Field(False, description="answer with the plan and change nothing")


class XmlQuery(Lenient):
    """Which machine to write."""

    template: str = Field("linux-compute", max_length=64)
    memory_mib: int = Field(8192, ge=128, le=64 << 20)
    vcpus: int = Field(4, ge=1, le=4096)
    disks: list[str] = Field(default_factory=list, max_length=16)
    network: str | None = Field(None, max_length=64)

    def shape(self) -> GuestShape:
        """The guest around the GPUs."""
        return GuestShape(self.memory_mib, self.vcpus, tuple(self.disks), self.network)


class BindBody(Strict):
    """How to bind."""

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

    vm: str = Field(pattern=VM_NAME, max_length=64, examples=["desktop-17"])
    tenant: str = Field("default", pattern=VM_NAME, max_length=64)
    profile: str | None = Field(None, max_length=128, examples=["NVIDIA A40-4Q"])
    count: int = Field(1, ge=1, le=64)
    gpu: Annotated[str | None, ADDRESS] = None
    vendor_id: str | None = Field(None, pattern=HEX_ID)
    device_id: str | None = Field(None, pattern=HEX_ID)
    model: str | None = Field(None, max_length=128, description="a part of the GPU's name, in any case")
    numa_node: int | None = Field(None, ge=0, le=1023)
    lease_seconds: int | None = Field(None, ge=1, le=366 * 86400)

    def to_request(self) -> AllocationRequest:
        """The model's request."""
        return AllocationRequest(**self.model_dump())


class DefineBody(Strict):
    """Which VM to define for which allocation."""

    allocation_id: str = Field(max_length=64)
    template: str = Field("linux-compute", max_length=64)
    memory_mib: int = Field(8192, ge=128, le=64 << 20)
    vcpus: int = Field(4, ge=1, le=4096)
    disks: list[str] = Field(default_factory=list, max_length=16)
    network: str | None = Field(None, max_length=64)

    def shape(self) -> GuestShape:
        """The guest around the GPUs."""
        return GuestShape(self.memory_mib, self.vcpus, tuple(self.disks), self.network)


class StopBody(Strict):
    """How to stop."""

    force: bool = Field(False, description="pull the plug instead of asking the guest")


class EmptyBody(Strict):
    """Nothing."""


class CheckBody(Strict):
    """A domain XML to check."""

    xml: str = Field(max_length=1 << 20)
