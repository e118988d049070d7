"""The worker outlives a fault of ours: later operations run, and waiters are told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NoReturn, cast

import pytest

from vgpumgr.kernel.port import Kernel
from vgpumgr.plans.journal import MemoryJournal
from vgpumgr.plans.lock import HostLock
from vgpumgr.plans.plan import Plan
from vgpumgr.plans.runner import Outcome, Runner
from vgpumgr.plans.step import Step, StepContext

PATIENCE = 5.0


@dataclass(frozen=True)
class FaultyStep(Step):
    """A step with a fault in its own code."""

    kind: ClassVar[str] = "faulty-test-step"

    def describe(self) -> str:
        return "meet a fault"

    def is_done(self, context: StepContext) -> bool:
        return False

    def apply(self, context: StepContext) -> None:
        raise KeyError("a fault of ours")

    def undo(self, context: StepContext) -> None: ...


@pytest.fixture
def journal() -> MemoryJournal:
    return MemoryJournal()


@pytest.fixture
def runner(journal: MemoryJournal) -> Iterator[Runner]:
    running = Runner(StepContext(cast("Kernel", None)), journal, HostLock())
    yield running
    running.close()


def faulty() -> NoReturn:
    raise KeyError("a fault of ours")


def outcome_of_a_later_one(runner: Runner) -> list[Outcome]:
    ended: list[Outcome] = []
    runner.submit("later", lambda: Plan("test", "later"), ended.append)
    runner.wait("later", PATIENCE)
    return ended


def test_a_fault_while_planning_ends_that_operation_only(runner: Runner) -> None:
    ended: list[Outcome] = []
    runner.submit("faulty", faulty, ended.append)
    runner.wait("faulty", PATIENCE)
    (outcome,) = ended
    assert outcome is not None
    assert (outcome.code, "KeyError" in outcome.message) == ("internal", True)
    assert outcome_of_a_later_one(runner) == [None]


def test_a_fault_halfway_is_left_to_the_next_start(runner: Runner, journal: MemoryJournal) -> None:
    ended: list[Outcome] = []
    runner.submit("faulty", lambda: Plan("test", "faulty", (FaultyStep(),)), ended.append)
    runner.wait("faulty", PATIENCE)
    assert ended == []
    assert [operation.id for operation in journal.unfinished()] == ["faulty"]
    assert outcome_of_a_later_one(runner) == [None]
