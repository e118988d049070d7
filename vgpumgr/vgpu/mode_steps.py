"""Steps on a card's modes through NVML: MIG and its instances, mixed sizes, scheduler, error correction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vgpumgr.errors import FailedError
from vgpumgr.plans.step import Step, StepContext
from vgpumgr.vgpu.mig import GpuInstance
from vgpumgr.vgpu.nvml_port import NvmlCard, NvmlPort, Scheduler


def nvml_of(context: StepContext) -> NvmlPort:
    """The host's NVML; one that knows nothing where none was set up."""
    found = context.ports.get(NvmlPort)
    return found if isinstance(found, NvmlPort) else NvmlPort()


def card_now(context: StepContext, address: str) -> NvmlCard:
    """The card as NVML shows it now. Raises :class:`FailedError` ``nvml-no-card`` when it does not."""
    card = context.port(NvmlPort).card(address)
    if card is None:
        raise FailedError(f"NVML does not show {address}", code="nvml-no-card")
    return card


@dataclass(frozen=True)
class SetMigMode(Step):
    """Turn MIG mode on or off."""

    kind: ClassVar[str] = "set-mig-mode"
    address: str
    enabled: bool

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"turn MIG mode of {self.address} {'on' if self.enabled else 'off'}"

    @property
    def target_value(self) -> str:
        """``on`` or ``off``."""
        return "on" if self.enabled else "off"

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        return card_now(context, self.address).mig is self.enabled

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`."""
        context.port(NvmlPort).set_mig(self.address, self.enabled)

    def verify(self, context: StepContext) -> None:
        """Raises :class:`FailedError` ``mig-reset-needed`` for a board that takes the mode at its next reset."""
        card = card_now(context, self.address)
        if card.mig is not self.enabled and card.mig_pending is self.enabled:
            raise FailedError(
                f"MIG mode of {self.address} changes at the next reset of the GPU",
                hint="reset the GPU, or reboot the host, and ask again",
                code="mig-reset-needed",
            )
        super().verify(context)

    def undo(self, context: StepContext) -> None:
        """Turn it back."""
        card = card_now(context, self.address)
        if self.enabled in (card.mig, card.mig_pending):
            context.port(NvmlPort).set_mig(self.address, not self.enabled)


@dataclass(frozen=True)
class CreateGpuInstance(Step):
    """Make a GPU instance at a place, with a compute instance over all of it."""

    kind: ClassVar[str] = "create-gpu-instance"
    address: str
    profile: int
    shape: str
    start: int

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"create the GPU instance {self.shape} at slice {self.start} of {self.address}"

    @property
    def target_value(self) -> str:
        """The instance's shape and place."""
        return f"{self.shape}@{self.start}"

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        return self._found(context) is not None

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`."""
        context.port(NvmlPort).create_gpu_instance(self.address, self.profile, self.start)

    def undo(self, context: StepContext) -> None:
        """Destroy it. Gone already when MIG mode was turned off."""
        found = self._found(context)
        if found is not None:
            context.port(NvmlPort).destroy_gpu_instance(self.address, found.id)

    def _found(self, context: StepContext) -> GpuInstance | None:
        return next(
            (
                item
                for item in card_now(context, self.address).gpu_instances
                if (item.profile_id, item.start) == (self.profile, self.start)
            ),
            None,
        )


@dataclass(frozen=True)
class DestroyGpuInstance(Step):
    """Destroy a GPU instance with its compute instances. Undoing makes it again at its place."""

    kind: ClassVar[str] = "destroy-gpu-instance"
    address: str
    instance: int
    profile: int
    shape: str
    start: int

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"destroy the GPU instance {self.shape} at slice {self.start} of {self.address}"

    @property
    def target_value(self) -> str:
        """The instance's shape and place."""
        return f"{self.shape}@{self.start}"

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        found = card_now(context, self.address).gpu_instances
        return all((item.profile_id, item.start) != (self.profile, self.start) for item in found)

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`."""
        context.port(NvmlPort).destroy_gpu_instance(self.address, self.instance)

    def undo(self, context: StepContext) -> None:
        """Make it again."""
        if self.is_done(context):
            context.port(NvmlPort).create_gpu_instance(self.address, self.profile, self.start)


@dataclass(frozen=True)
class SetMixedSize(Step):
    """Turn mixed-size mode on or off: runtime state, lost when the driver is rebound."""

    kind: ClassVar[str] = "set-mixed-size"
    address: str
    enabled: bool

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"turn mixed-size mode of {self.address} {'on' if self.enabled else 'off'}"

    @property
    def target_value(self) -> str:
        """``on`` or ``off``."""
        return "on" if self.enabled else "off"

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        return card_now(context, self.address).mixed_size is self.enabled

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`."""
        context.port(NvmlPort).set_mixed_size(self.address, self.enabled)

    def undo(self, context: StepContext) -> None:
        """Turn it back."""
        if self.is_done(context):
            context.port(NvmlPort).set_mixed_size(self.address, not self.enabled)


@dataclass(frozen=True)
class SetScheduler(Step):
    """Set the scheduling policy of a card's vGPUs."""

    kind: ClassVar[str] = "set-scheduler"
    address: str
    policy: str
    prior: str

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"schedule the vGPUs of {self.address} by {self.policy}"

    @property
    def target_value(self) -> str:
        """The policy."""
        return self.policy

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        return card_now(context, self.address).scheduler == self.policy

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`."""
        context.port(NvmlPort).set_scheduler(self.address, Scheduler(self.policy))

    def undo(self, context: StepContext) -> None:
        """Go back to the policy there was."""
        if self.prior and card_now(context, self.address).scheduler != self.prior:
            context.port(NvmlPort).set_scheduler(self.address, Scheduler(self.prior))


@dataclass(frozen=True)
class SetEcc(Step):
    """Turn error correction on or off; it counts after the next reset of the GPU."""

    kind: ClassVar[str] = "set-ecc"
    address: str
    enabled: bool

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"turn error correction of {self.address} {'on' if self.enabled else 'off'} at its next reset"

    @property
    def target_value(self) -> str:
        """``on`` or ``off``."""
        return "on" if self.enabled else "off"

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        return card_now(context, self.address).ecc_pending is self.enabled

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`."""
        context.port(NvmlPort).set_ecc(self.address, self.enabled)

    def undo(self, context: StepContext) -> None:
        """Turn it back."""
        if self.is_done(context):
            context.port(NvmlPort).set_ecc(self.address, not self.enabled)
