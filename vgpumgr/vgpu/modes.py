"""Plans that change a card's modes: MIG and its layout, mixed sizes, scheduler, error correction."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vgpumgr.errors import Reason, counted
from vgpumgr.kernel.port import Kernel
from vgpumgr.model.host import Gpu
from vgpumgr.plans.plan import Plan, Refusal, join
from vgpumgr.plans.step import Step
from vgpumgr.vgpu.guards import not_to_be_cut
from vgpumgr.vgpu.mig_layout import LayoutSteps, layout_steps
from vgpumgr.vgpu.mode_steps import SetEcc, SetMigMode, SetMixedSize, SetScheduler
from vgpumgr.vgpu.nvml_port import NvmlCard, NvmlPort, Scheduler
from vgpumgr.vgpu.scheduler_plans import plan_driver_scheduler


@dataclass(frozen=True, slots=True)
class Modes:
    """What a card shall be like; ``None`` leaves a mode as it is.

    ``layout`` are the shapes of the GPU instances it shall hold (``("3g.40gb", "3g.40gb")``), in MIG mode.
    ``at_load`` leaves the scheduler as it runs and configures the driver for its next load.
    """

    mig: bool | None = None
    layout: tuple[str, ...] | None = None
    mixed_size: bool | None = None
    scheduler: Scheduler | None = None
    ecc: bool | None = None
    at_load: bool = False


def by_parameter(card: NvmlCard | None, wanted: Modes) -> bool:
    """True when the scheduler is to be set as a parameter of the driver: asked for, or NVML cannot set it."""
    return wanted.scheduler is not None and (wanted.at_load or card is None or not card.schedulers)


def plan_modes(nvml: NvmlPort, gpu: Gpu, wanted: Modes, kernel: Kernel | None = None) -> Plan:
    """The plan from the card's modes to the wanted ones, or the refusal: not supported, or in use.

    MIG mode goes first, then its instances: they are what vGPUs are made on later. With a ``kernel``, a scheduler
    that NVML cannot set becomes a parameter of the driver.
    """
    card = nvml.card(gpu.address)
    if kernel is None or wanted.scheduler is None or not by_parameter(card, wanted):
        return _plan_at_once(nvml, gpu, card, wanted)
    rest = replace(wanted, scheduler=None, at_load=False)
    plans = [] if rest == Modes() else [_plan_at_once(nvml, gpu, card, rest)]
    return join("mode", gpu.address, *plans, plan_driver_scheduler(kernel, gpu, wanted.scheduler))


def _plan_at_once(nvml: NvmlPort, gpu: Gpu, card: NvmlCard | None, wanted: Modes) -> Plan:
    refusal = _unknown(gpu, nvml) if card is None else not_to_be_cut(gpu) or _refusal(gpu, card, wanted)
    if card is None or refusal is not None:
        return Plan("mode", gpu.address, refusal=refusal)
    steps: list[Step] = []
    layout = () if wanted.mig is False else wanted.layout
    cut = layout_steps(card, layout) if layout is not None else LayoutSteps()
    if isinstance(cut, Refusal):
        return Plan("mode", gpu.address, refusal=cut)
    steps += cut.going
    if wanted.mig is not None and wanted.mig is not card.mig:
        steps.append(SetMigMode(gpu.address, wanted.mig))
    steps += cut.coming
    if wanted.mixed_size is not None and wanted.mixed_size is not card.mixed_size:
        steps.append(SetMixedSize(gpu.address, wanted.mixed_size))
    if wanted.scheduler is not None and wanted.scheduler is not card.scheduler:
        steps.append(SetScheduler(gpu.address, str(wanted.scheduler), str(card.scheduler or "")))
    if wanted.ecc is not None and wanted.ecc is not card.ecc_pending:
        steps.append(SetEcc(gpu.address, wanted.ecc))
    return Plan("mode", gpu.address, tuple(steps))


def _unknown(gpu: Gpu, nvml: NvmlPort) -> Refusal:
    code = "nvml-absent" if nvml.label == "absent" else "nvml-no-card"
    reason = Reason(code, f"NVML ({nvml.label}) does not show {gpu.address}", (gpu.address,))
    hint = "modes are changed through NVIDIA's host driver, which must be loaded and have the card"
    return Refusal(code, f"the modes of {gpu.address} cannot be changed: {reason.message}", (reason,), hint)


def _refusal(gpu: Gpu, card: NvmlCard, wanted: Modes) -> Refusal | None:
    reasons = [*_unsupported(card, wanted), *_in_the_way(gpu, card, wanted)]
    if not reasons:
        return None
    return Refusal(
        reasons[0].code, f"the modes of {gpu.address} stay as they are: {reasons[0].message}", tuple(reasons)
    )


def _unsupported(card: NvmlCard, wanted: Modes) -> list[Reason]:
    name = card.address
    reasons = []
    if (wanted.mig is not None or wanted.layout) and card.mig is None:
        reasons.append(Reason("mig-unsupported", f"{name} has no MIG mode", (name,)))
    elif wanted.layout and not (wanted.mig if wanted.mig is not None else card.mig):
        reasons.append(Reason("mig-off", f"{name} must be in MIG mode to hold GPU instances", (name,)))
    if wanted.mixed_size is not None and card.mixed_size is None:
        reasons.append(Reason("mixed-size-unsupported", f"{name} takes one size of vGPU at a time only", (name,)))
    if wanted.mixed_size and (wanted.mig if wanted.mig is not None else card.mig):
        reasons.append(Reason("mig-on", f"{name} is in MIG mode, which has no mixed-size mode", (name,)))
    if wanted.scheduler is not None and wanted.scheduler not in card.schedulers:
        known = ", ".join(card.schedulers) or "none"
        message = f"{name} does not support the scheduler {wanted.scheduler} (supported: {known})"
        reasons.append(Reason("scheduler-unsupported", message, (name,)))
    if wanted.ecc is not None and card.ecc is None:
        reasons.append(Reason("ecc-unsupported", f"{name} has no error correction to switch", (name,)))
    return reasons


def _in_the_way(gpu: Gpu, card: NvmlCard, wanted: Modes) -> list[Reason]:
    """vGPUs and other users of the card, where the change would pull it from under them."""
    name = gpu.address
    disturbing = (
        (wanted.mig is not None and wanted.mig is not card.mig)
        or wanted.layout is not None
        or (wanted.mixed_size is not None and wanted.mixed_size is not card.mixed_size)
    )
    if not disturbing:
        return []
    reasons = []
    live = tuple(vgpu.id for vgpu in gpu.vgpu.instances)
    if live:
        reasons.append(Reason("vgpu-live", f"{counted(len(live), 'vGPU lives', 'vGPUs live')} on {name}", live))
    if wanted.mig is False and card.mig and gpu.sriov is not None and gpu.sriov.num_vfs:
        message = f"virtual functions of {name} are enabled: the driver keeps MIG mode while they are"
        reasons.append(Reason("vfs-enabled", message, (name,)))
    for holder in gpu.holders:
        if holder.address == name:
            reasons.append(Reason("in-use-by-host", f"{holder.kind} {holder.name} uses {name}", (name,)))
    return reasons
