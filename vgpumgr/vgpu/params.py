"""Plugin parameters of a vGPU of NVIDIA's, the frame-rate limiter among them: read, merged, changed by plan.

They take effect when the VM next starts. The driver clears all of them at once or none: a key that shall go takes
the others with it, so these are written again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from vgpumgr.address import is_address
from vgpumgr.errors import Reason
from vgpumgr.kernel.port import Kernel, read_text
from vgpumgr.model.host import Gpu
from vgpumgr.model.vgpu import Backend, VgpuView, limits_frames
from vgpumgr.plans.plan import Plan, Refusal
from vgpumgr.plans.step import Step
from vgpumgr.vgpu import mdev, vendor_steps
from vgpumgr.vgpu.checks import CheckVgpuIdle
from vgpumgr.vgpu.mdev_steps import SetParams

LIMITER = "frame_rate_limiter"
KIND = "vgpu-params"


def path_of(vgpu_id: str) -> str:
    """Where a vGPU's parameters stand, by its UUID or its virtual function's address."""
    return vendor_steps.params_path(vgpu_id) if is_address(vgpu_id) else mdev.params_path(vgpu_id)


def read_params(kernel: Kernel, vgpu_id: str) -> str | None:
    """The parameters as the driver shows them; ``None`` where it has none to show."""
    return read_text(kernel, path_of(vgpu_id))


def parsed(text: str) -> dict[str, str]:
    """``a=1,b=2`` or ``a=1 b=2``, in their order."""
    pairs = (part.partition("=") for part in re.split(r"[,\s]+", text) if part)
    return {key: value for key, _, value in pairs}


def written(values: Mapping[str, str]) -> str:
    """The same as the driver takes it."""
    return ",".join(f"{key}={value}" if value else key for key, value in values.items())


def plan_params(
    kernel: Kernel, gpu: Gpu, view: VgpuView, params: str | None = None, limiter: bool | None = None
) -> Plan:
    """The plan that sets all parameters of a vGPU of ours (``params``; empty clears them), its limiter, or both.

    Refused while a guest has it, and where its driver has no parameters, or no limiter under the card's scheduler.
    """
    vgpu_id = view.vgpu.id
    reason = _in_the_way(kernel, gpu, view, limiter)
    if reason is not None:
        hint = {"vgpu-missing": "'vgpumgr vgpu restore' brings it back", "vgpu-in-use": "stop the VM first"}
        return Plan(
            KIND, vgpu_id, refusal=Refusal(reason.code, reason.message, (reason,), hint.get(reason.code, ""))
        )
    prior = read_params(kernel, vgpu_id) or ""
    wanted = parsed(prior if params is None else params)
    if limiter is not None:
        wanted[LIMITER] = "1" if limiter else "0"
    if wanted == parsed(prior):
        return Plan(KIND, vgpu_id)
    steps: list[Step] = [CheckVgpuIdle(vgpu_id)]
    if wanted and not parsed(prior).keys() <= wanted.keys():
        steps.append(SetParams(path_of(vgpu_id), "", prior))
        prior = ""
    steps.append(SetParams(path_of(vgpu_id), written(wanted), prior))
    return Plan(KIND, vgpu_id, tuple(steps))


def _in_the_way(kernel: Kernel, gpu: Gpu, view: VgpuView, limiter: bool | None) -> Reason | None:
    name, vgpu = view.vgpu.id, view.vgpu
    if not view.live:
        return Reason("vgpu-missing", f"vGPU {name} is not on the host", (name,))
    if gpu.vgpu.backend is Backend.SRIOV:
        return no_params(gpu)
    if not view.ours:
        return Reason("vgpu-foreign", f"vGPU {name} was not made by vgpumgr: it is not touched", (name,))
    if not kernel.exists(path_of(name)):
        return no_params(gpu)
    if vgpu.owner is not None:
        return Reason("vgpu-in-use", f"the VM {vgpu.owner} has vGPU {name}", (name,))
    scheduler = gpu.vgpu.modes.scheduler if gpu.vgpu.modes is not None else None
    if limiter and limits_frames(scheduler) is False:
        message = f"{gpu.address} schedules by {scheduler}: the frame-rate limiter works with best effort only"
        return Reason("limiter-unsupported", message, (gpu.address,))
    return None


def no_params(gpu: Gpu) -> Reason:
    """Why vGPUs of a card take no parameters."""
    return Reason(
        "params-unsupported", f"vGPUs of {gpu.address} take no parameters under its driver", (gpu.address,)
    )
