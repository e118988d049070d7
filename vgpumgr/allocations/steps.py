"""Steps that remember, in the store, what has been done to the host: part of the plan, so never forgotten."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from vgpumgr.model.records import Binding
from vgpumgr.plans.step import Step, StepContext
from vgpumgr.store.store import Store


@dataclass(frozen=True)
class RememberBinding(Step):
    """Keep a binding, so that the GPU is bound again after a reboot and its drivers are known at release."""

    kind: ClassVar[str] = "remember-binding"
    address: str
    fingerprint: str
    driver: str
    owner: str
    originals: dict[str, str | None] = field(default_factory=dict)

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"remember that {self.address} is bound, also after a reboot"

    def _binding(self) -> Binding:
        return Binding(self.address, self.fingerprint, self.driver, self.originals, self.owner)

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        return context.port(Store).bindings.get(self.address) == self._binding()

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`."""
        context.port(Store).bindings.put(self._binding())

    def undo(self, context: StepContext) -> None:
        """See :class:`Step`."""
        if self.is_done(context):
            context.port(Store).bindings.remove(self.address)


@dataclass(frozen=True)
class ForgetBinding(Step):
    """Let a binding go: the GPU belongs to its host driver again."""

    kind: ClassVar[str] = "forget-binding"
    address: str

    def describe(self) -> str:
        """See :class:`Step`."""
        return f"forget that {self.address} was bound"

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        return context.port(Store).bindings.get(self.address) is None

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`."""
        context.port(Store).bindings.remove(self.address)

    def undo(self, context: StepContext) -> None:
        """Nothing to take back: it is the last step of plans that only go forward."""
