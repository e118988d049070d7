"""A step that remembers, in the store, how a card shall be cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

from vgpumgr.allocations.bindings import fingerprint
from vgpumgr.model.host import Gpu
from vgpumgr.model.records import CardSetup
from vgpumgr.plans.step import Step, StepContext
from vgpumgr.store.store import Store


@dataclass(frozen=True)
class RememberSetup(Step):
    """Keep what was asked of a card, so that it is cut the same way after a reboot.

    ``changes`` are fields of :class:`CardSetup` by name; ``prior`` is what stood there, empty for nothing.
    """

    kind: ClassVar[str] = "remember-card-setup"
    address: str
    fingerprint: str
    changes: dict[str, Any] = field(default_factory=dict)
    prior: dict[str, Any] = field(default_factory=dict)

    def describe(self) -> str:
        """See :class:`Step`."""
        what = ", ".join(f"{key.replace('_', ' ')} {_shown(value)}" for key, value in self.changes.items())
        return f"remember for {self.address}, also after a reboot: {what}"

    def is_done(self, context: StepContext) -> bool:
        """See :class:`Step`."""
        found = context.port(Store).setups.get(self.address)
        return found is not None and found == self._merged(found)

    def apply(self, context: StepContext) -> None:
        """See :class:`Step`."""
        setups = context.port(Store).setups
        setups.put(self._merged(setups.get(self.address) or CardSetup(self.address, self.fingerprint)))

    def undo(self, context: StepContext) -> None:
        """Put back what stood there."""
        setups = context.port(Store).setups
        if not self.prior:
            setups.remove(self.address)
        else:
            setups.put(CardSetup(**_tuples(self.prior)))

    def _merged(self, setup: CardSetup) -> CardSetup:
        return replace(setup, fingerprint=self.fingerprint, **_tuples(self.changes))


def remember_setup(store: Store, gpu: Gpu, changes: Mapping[str, Any]) -> RememberSetup:
    """The step that keeps ``changes`` of a card, over what is kept of it now."""
    known = store.setups.get(gpu.address)
    return RememberSetup(gpu.address, fingerprint(gpu), dict(changes), asdict(known) if known is not None else {})


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    """The journal keeps tuples as lists."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}


def _shown(value: Any) -> str:
    if value is None:
        return "as the driver has it"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    return str(value)
