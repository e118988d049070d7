"""What answers about work look like: plans, operations, allocations, VMs. Additions come; nothing is renamed."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field, RootModel

from vgpumgr_api.host_responses import Answer, ReasonModel


class StepModel(Answer):
    """One step of a plan."""

    kind: str
    address: str | None
    path: str | None = Field(description="the kernel path that is written")
    value: str | None = Field(description="what is written there")
    describe: str


class DoneStepModel(Answer):
    """One step of an operation."""

    kind: str
    address: str | None
    describe: str
    state: str
    error: str | None


class RefusalModel(Answer):
    """Why a plan must not be carried out."""

    code: str
    message: str
    hint: str
    reasons: list[ReasonModel]


class PlanModel(Answer):
    """What would be done (a dry run). No steps and no refusal: the host is already as wanted."""

    kind: str
    subject: str
    warnings: list[ReasonModel]
    steps: list[StepModel]
    refusal: RefusalModel | None


class OperationModel(Answer):
    """A plan being carried out."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "b1a6c1ce-2c1f-4d0c-8d53-6c8a5f0d9a01",
                    "host_id": "vdi-a40",
                    "kind": "bind",
                    "subject": "0000:3b:00.0",
                    "state": "succeeded",
                    "created_at": "2026-01-05T09:00:00.000000Z",
                    "updated_at": "2026-01-05T09:00:01.000000Z",
                    "steps": [
                        {
                            "kind": "unbind",
                            "address": "0000:3b:00.0",
                            "describe": "take 0000:3b:00.0 from nvidia",
                            "state": "done",
                            "error": None,
                        }
                    ],
                    "error": None,
                    "allocation_id": None,
                }
            ]
        }
    )

    id: str
    kind: str
    subject: str
    state: str = Field(description="pending, running, succeeded, failed (undone) or stuck")
    steps: list[DoneStepModel]
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

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "0c3f5a52-4f0e-4b8e-9d52-3f1c1f6f1c11",
                    "tenant": "default",
                    "vm": "desktop-17",
                    "state": "ready",
                    "generation": 3,
                    "devices": [
                        {
                            "kind": "mdev",
                            "gpu": "0000:5e:00.0",
                            "handle": "6c0f3b1e-9d0a-4b8a-9a51-0d6f1d5f7a10",
                            "profile_id": "nvidia-560",
                            "profile": "NVIDIA A40-4Q",
                            "companions": [],
                        }
                    ],
                    "operation_id": "b1a6c1ce-2c1f-4d0c-8d53-6c8a5f0d9a01",
                    "error": None,
                    "created_at": "2026-01-05T09:00:00.000000Z",
                    "updated_at": "2026-01-05T09:00:01.000000Z",
                    "warnings": [],
                }
            ]
        }
    )

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
    warnings: list[ReasonModel]


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


class AllocationPage(Answer):
    """A page of allocations."""

    items: list[AllocationModel]
    next_cursor: str | None


class OperationPage(Answer):
    """A page of operations."""

    items: list[OperationModel]
    next_cursor: str | None


class EventModel(Answer):
    """Something that happened. `id` counts without gaps, in the order in which things became true."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": 12,
                    "time": "2026-01-05T09:00:01.000000Z",
                    "type": "allocation.ready",
                    "subject": "0c3f5a52-4f0e-4b8e-9d52-3f1c1f6f1c11",
                    "message": "the allocation of desktop-17 is ready",
                    "tenant": "default",
                    "allocation_id": "0c3f5a52-4f0e-4b8e-9d52-3f1c1f6f1c11",
                    "data": {"vm": "desktop-17", "generation": 3},
                }
            ]
        }
    )

    id: int
    time: str
    type: str
    subject: str = Field(description="a GPU's address, a vGPU's or an allocation's id, or what an operation was on")
    message: str = Field(description="what a person should read")
    tenant: str | None = Field(description="of the allocation; null: the host's own affair")
    allocation_id: str | None
    data: dict[str, Any] = Field(description="what programs may want to know, by type; additions come")


class EventPage(Answer):
    """A page of events."""

    items: list[EventModel]
    next_cursor: str | None


class VmPage(Answer):
    """A page of VMs."""

    items: list[VmModel]
    next_cursor: str | None


class OperationOrPlan(RootModel[OperationModel | PlanModel]):
    """The operation that has ended, or, of a dry run, the plan."""


class AllocationOrPlan(RootModel[AllocationModel | PlanModel]):
    """The allocation, or, of a dry run, the plan."""


class VmOrPlan(RootModel[VmModel | PlanModel]):
    """The VM, or, of a dry run, the plan."""
