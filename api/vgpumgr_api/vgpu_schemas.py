"""Requests and answers of slicing."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from vgpumgr.vgpu.vf_shares import VfShare
from vgpumgr_api.host_responses import Answer, VgpuModel
from vgpumgr_api.responses import OperationModel, PlanModel
from vgpumgr_api.schemas import ADDRESS, PageQuery, Strict

SHAPE = Field(pattern=r"^[1-9]g\.[1-9][0-9]{0,3}gb([+-]me(\.all)?|\+gfx)?$", examples=["3g.40gb"])


class VgpuListQuery(PageQuery):
    """Filters on vGPUs."""

    gpu: Annotated[str | None, ADDRESS] = None
    ours: bool | None = Field(None, description="only those that vgpumgr made, or only foreign ones")


class VgpuCreateBody(Strict):
    """`count` vGPUs of a profile, on `gpu` or on the fullest card that takes them all."""

    profile: str = Field(max_length=128, examples=["NVIDIA A40-4Q"], description="name or id, exactly")
    count: int = Field(1, ge=1, le=64)
    gpu: Annotated[str | None, ADDRESS] = None
    params: str = Field("", max_length=1024, pattern=r"^[A-Za-z0-9_=, .:-]*$", description="plugin parameters")


PARAMS = r"^[A-Za-z0-9_=, .:-]*$"


class ParamsBody(Strict):
    """What to change; what is not named stays."""

    params: str | None = Field(None, max_length=1024, pattern=PARAMS, description="all of them; empty clears them")
    frame_rate_limiter: bool | None = Field(None, description="works with the best-effort scheduler only")


class SliceBody(Strict):
    """How many virtual functions, and what each shall get (Intel's `xe` driver)."""

    vfs: int | None = Field(None, ge=0, le=65535, description="all by default, 0 for none")
    vram_bytes: int | None = Field(None, ge=0, le=1 << 48)
    exec_quantum_ms: int | None = Field(None, ge=0, le=1 << 31)
    preempt_timeout_us: int | None = Field(None, ge=0, le=1 << 31)

    def share(self) -> VfShare | None:
        """The share of each VF; ``None`` leaves it to the driver."""
        share = VfShare(self.vram_bytes, self.exec_quantum_ms, self.preempt_timeout_us)
        return share if share.values() else None


class ModesBody(Strict):
    """The modes to change; what is not named stays."""

    mig: bool | None = None
    layout: list[Annotated[str, SHAPE]] | None = Field(
        None, max_length=16, description="the GPU instances to hold in MIG mode; those of other shapes go"
    )
    mixed_size: bool | None = None
    scheduler: Literal["best-effort", "equal-share", "fixed-share"] | None = None
    scheduler_at_load: bool = Field(
        False,
        description="the scheduler as a parameter of the driver, for its next load; so it is where NVML cannot",
    )
    ecc: bool | None = Field(None, description="from the next reset on")


class VgpuViewModel(VgpuModel):
    """A vGPU, where it is and whose."""

    gpu: str
    ours: bool | None
    allocation_id: str | None
    live: bool = Field(description="false: ours, and not on the host")
    params: str | None = Field(description="plugin parameters as the driver shows them")
    frame_rate_limiter: bool | None = Field(description="as the parameters have it; `null`: the driver decides")
    gpu_instance: int | None


class VgpuPage(Answer):
    """A page of vGPUs."""

    items: list[VgpuViewModel]
    next_cursor: str | None


class RestoreModel(Answer):
    """What is restored, in order: an operation for each piece, or, of a dry run, the plans. Both empty: nothing."""

    plans: list[PlanModel]
    operations: list[OperationModel]


class GpuInstanceModel(Answer):
    """A MIG GPU instance; `start` in memory slices."""

    shape: str
    start: int


class ModesModel(Answer):
    """The modes of a GPU; `null` is "has none" or "not told"."""

    address: str
    source: str = Field(description="who told: the library's version, `simulated NVML`, or `absent`")
    mig: bool | None
    mig_pending: bool | None
    gpu_instances: list[GpuInstanceModel]
    mixed_size: bool | None
    scheduler: str | None
    scheduler_configured: str | None = Field(
        description="the policy at the driver's next load, as its parameters have it; `null` is none"
    )
    schedulers: list[str] = Field(description="the policies that can be set at once")
    frame_rate_limiter: bool | None = Field(description="whether the limiter of vGPUs works under the scheduler")
    ecc: bool | None
    ecc_pending: bool | None
