"""The plan that sets a card's scheduling policy as a parameter of its driver, for the next time that is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vgpumgr.errors import Reason
from vgpumgr.kernel.modprobe import OWN_FILE
from vgpumgr.kernel.options import OptionsFile, options_file
from vgpumgr.kernel.port import Kernel, read_text
from vgpumgr.model.host import Gpu
from vgpumgr.plans.plan import Plan, Refusal
from vgpumgr.plans.step import Step, StepContext
from vgpumgr.vgpu.driver_scheduler import (
    KEY,
    MODULE,
    PER_DEVICE,
    VALUES,
    DriverScheduler,
    edited,
    own_value,
    read_driver_scheduler,
)
from vgpumgr.vgpu.nvml_port import Scheduler

NVIDIA = "10de"
_BEST_EFFORT_ONLY = frozenset({"13bd", "13f2", "13f3"})
"""Tesla M10, M60 and M6. NVML's reference: the vGPU scheduler is set on Pascal and newer."""


@dataclass(frozen=True)
class SetDriverOption(Step):
    """Write the registry key of one card into our file for modprobe. ``prior`` is empty where it was not set."""

    kind: ClassVar[str] = "set-driver-option"
    address: str
    policy: str
    value: str
    prior: str = ""

    def describe(self) -> str:
        """See :class:`Step`."""
        return (
            f"configure {self.policy} ({KEY}={self.value}) for {self.address} in {OWN_FILE}: "
            f"it counts when the driver {MODULE} is loaded again, or after a reboot"
        )

    @property
    def target_path(self) -> str:
        """Our file."""
        return OWN_FILE

    @property
    def target_value(self) -> str:
        """The entry; others in the file stay."""
        return f"pci={self.address};{KEY}={self.value}"

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        return own_value(_text(context.kernel), self.address) == self.value

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`."""
        _file(context).replace(edited(_text(context.kernel), self.address, self.value))

    def undo(self, context: StepContext) -> None:
        """Put back what stood there for this card."""
        if self.is_done(context):
            _file(context).replace(edited(_text(context.kernel), self.address, self.prior or None))


def _text(kernel: Kernel) -> str:
    """Our file as it is. Raises OSError when it is there and cannot be read: then it must not be replaced."""
    try:
        return kernel.read(OWN_FILE).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return ""


def _file(context: StepContext) -> OptionsFile:
    found = context.ports.get(OptionsFile)
    return found if isinstance(found, OptionsFile) else options_file(context.kernel)


def plan_driver_scheduler(kernel: Kernel, gpu: Gpu, policy: Scheduler) -> Plan:
    """The plan, or the refusal: another vendor's card, another or an old driver, a foreign file."""
    now = read_driver_scheduler(kernel, gpu.address)
    reason = _in_the_way(gpu, now, policy)
    if reason is not None:
        message = f"the scheduler of {gpu.address} stays as it is: {reason.message}"
        return Plan("mode", gpu.address, refusal=Refusal(reason.code, message, (reason,), _hint(reason.code)))
    if (now.configured or Scheduler.BEST_EFFORT) is policy:
        return Plan("mode", gpu.address, warnings=_not_yet(gpu, now, policy))
    prior = own_value(read_text(kernel, OWN_FILE) or "", gpu.address) or ""
    step = SetDriverOption(gpu.address, str(policy), VALUES[policy], prior)
    return Plan("mode", gpu.address, (step,), warnings=_not_yet(gpu, now, policy))


def _in_the_way(gpu: Gpu, now: DriverScheduler, policy: Scheduler) -> Reason | None:
    name, function = gpu.address, gpu.function
    if function.vendor_id != NVIDIA:
        return Reason("scheduler-unsupported", f"{name} has no scheduler to choose: it is not NVIDIA's", (name,))
    if function.driver != MODULE:
        message = f"{name} is on {function.driver or 'no driver'}: only NVIDIA's vGPU host driver schedules vGPUs"
        return Reason("host-driver-absent", message, (name,))
    if not gpu.vgpu.capable:
        return Reason("scheduler-unsupported", f"{name} carries no vGPUs under the driver it is on", (name,))
    if function.device_id in _BEST_EFFORT_ONLY and policy is not Scheduler.BEST_EFFORT:
        message = f"{name} schedules by best effort only: cards before the Pascal generation have nothing else"
        return Reason("scheduler-unsupported", message, (name,))
    if now.knows_devices is False:
        message = f"the driver of {name} has no parameter {PER_DEVICE}: it is too old"
        return Reason("driver-option-unknown", message, (name,))
    if now.foreign is not None:
        message = f"{now.foreign} sets {PER_DEVICE} already, and the driver takes one of them only"
        return Reason("driver-option-foreign", message, (name,))
    return None


def _hint(code: str) -> str:
    return {
        "host-driver-absent": "give the card back to its host driver: 'vgpumgr gpu release'",
        "driver-option-unknown": "update NVIDIA's vGPU host driver",
        "driver-option-foreign": f"add {KEY} there, or move what it sets to {OWN_FILE}: other keys are kept",
    }.get(code, "")


def _not_yet(gpu: Gpu, now: DriverScheduler, policy: Scheduler) -> tuple[Reason, ...]:
    if now.running is policy:
        return ()
    message = (
        f"{policy} counts when the driver {MODULE} is loaded again, or after a reboot; where the initramfs "
        "carries the driver, run 'update-initramfs -u' before"
    )
    return (Reason("at-next-load", message, (gpu.address,)),)
