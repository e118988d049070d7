"""The journal: what was begun, what ended how. Written before and after every step, read after a crash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from vgpumgr.model.json import JsonObject
from vgpumgr.plans.plan import Plan


class StepState(StrEnum):
    """The life of a step in the journal."""

    PENDING = "pending"
    STARTED = "started"
    DONE = "done"
    SKIPPED = "skipped"
    """It was already done when its turn came: never undone by us."""
    FAILED = "failed"
    UNDONE = "undone"
    LEFT = "left"
    """Its undo failed: what it made is still there, and is named in the operation's error."""


class OperationState(StrEnum):
    """The life of an operation."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """It failed and everything was undone."""
    STUCK = "stuck"
    """It failed and something is left that an operator must look at."""

    @property
    def final(self) -> bool:
        """True when nothing more will happen by itself."""
        return self not in (OperationState.PENDING, OperationState.RUNNING)


@dataclass(frozen=True, slots=True)
class JournalStep:
    """One step as the journal has it: :meth:`Step.to_record` and its state."""

    record: JsonObject
    describe: str
    state: StepState
    error: str | None = None


@dataclass(frozen=True, slots=True)
class OpenOperation:
    """An operation that a crash cut short."""

    id: str
    kind: str
    subject: str
    after_crash: str
    steps: Sequence[JournalStep]


class Journal(Protocol):
    """Where an operation's progress is kept. Every call is durable when it returns."""

    def begin(self, operation_id: str, plan: Plan) -> None:
        """Write down the whole plan, all steps pending, the operation running."""
        ...

    def step(self, operation_id: str, index: int, state: StepState, error: str | None = None) -> None:
        """One step changed state."""
        ...

    def end(self, operation_id: str, state: OperationState, error: JsonObject | None = None) -> None:
        """The operation reached a final state."""
        ...

    def unfinished(self) -> Sequence[OpenOperation]:
        """Operations with no final state, oldest first."""
        ...


@dataclass
class _Entry:
    plan: Plan
    steps: list[JournalStep]
    state: OperationState = OperationState.RUNNING
    error: JsonObject | None = None


@dataclass
class MemoryJournal:
    """A journal that lives as long as the process: for tests and for recordings."""

    entries: dict[str, _Entry] = field(default_factory=dict)

    def begin(self, operation_id: str, plan: Plan) -> None:
        """See :class:`Journal`."""
        steps = [JournalStep(step.to_record(), step.describe(), StepState.PENDING) for step in plan.steps]
        self.entries[operation_id] = _Entry(plan, steps)

    def step(self, operation_id: str, index: int, state: StepState, error: str | None = None) -> None:
        """See :class:`Journal`."""
        steps = self.entries[operation_id].steps
        steps[index] = JournalStep(steps[index].record, steps[index].describe, state, error)

    def end(self, operation_id: str, state: OperationState, error: JsonObject | None = None) -> None:
        """See :class:`Journal`."""
        entry = self.entries[operation_id]
        entry.state, entry.error = state, error

    def unfinished(self) -> Sequence[OpenOperation]:
        """See :class:`Journal`."""
        return [
            OpenOperation(key, entry.plan.kind, entry.plan.subject, str(entry.plan.after_crash), tuple(entry.steps))
            for key, entry in self.entries.items()
            if not entry.state.final
        ]
