"""The executor: journal before and after, read-back, undo in reverse, and going on after a crash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import pytest

from vgpumgr.errors import FailedError, RefusedError, UnavailableError
from vgpumgr.kernel.port import Kernel
from vgpumgr.model.json import JsonObject
from vgpumgr.plans.executor import execute, resume
from vgpumgr.plans.journal import MemoryJournal, OperationState, StepState
from vgpumgr.plans.plan import AfterCrash, Plan, Refusal
from vgpumgr.plans.step import Step, StepContext, step_from_record

HOST: dict[str, str] = {}
CALLS: list[str] = []


@pytest.fixture(autouse=True)
def _fresh_host() -> None:
    HOST.clear()
    CALLS.clear()


@dataclass(frozen=True)
class Put(Step):
    kind: ClassVar[str] = "test-put"
    key: str
    fails: bool = False
    lies: bool = False
    keeps: bool = False

    def describe(self) -> str:
        return f"put {self.key}"

    def is_done(self, context: StepContext) -> bool:
        return HOST.get(self.key) == "there"

    def apply(self, context: StepContext) -> None:
        CALLS.append(f"do {self.key}")
        if self.fails:
            raise OSError(5, "EIO")
        if not self.lies:
            HOST[self.key] = "there"

    def undo(self, context: StepContext) -> None:
        CALLS.append(f"undo {self.key}")
        if self.keeps:
            raise OSError(16, "EBUSY")
        HOST.pop(self.key, None)


class NoKernel:
    pass


def context() -> StepContext:
    return StepContext(kernel=cast(Kernel, NoKernel()))


def plan(*steps: Step, after_crash: AfterCrash = AfterCrash.BACK) -> Plan:
    return Plan("test", "0000:01:00.0", steps, after_crash=after_crash)


def states(journal: MemoryJournal) -> list[StepState]:
    return [step.state for step in journal.entries["op"].steps]


def test_all_steps_are_done_in_order_and_journaled() -> None:
    journal = MemoryJournal()
    execute("op", plan(Put("a"), Put("b")), context(), journal)
    assert CALLS == ["do a", "do b"]
    assert states(journal) == [StepState.DONE, StepState.DONE]
    assert journal.entries["op"].state == OperationState.SUCCEEDED


def test_a_step_that_is_already_done_is_skipped_and_never_undone() -> None:
    HOST["a"] = "there"
    journal = MemoryJournal()
    with pytest.raises(FailedError):
        execute("op", plan(Put("a"), Put("b", fails=True)), context(), journal)
    assert states(journal) == [StepState.SKIPPED, StepState.UNDONE]
    assert HOST == {"a": "there"}


def test_a_failure_undoes_in_reverse_including_the_failed_step() -> None:
    journal = MemoryJournal()
    with pytest.raises(FailedError) as caught:
        execute("op", plan(Put("a"), Put("b"), Put("c", fails=True)), context(), journal)
    assert CALLS[-3:] == ["undo c", "undo b", "undo a"]
    assert HOST == {}
    assert caught.value.code == "kernel-refused"
    assert journal.entries["op"].state == OperationState.FAILED


def test_a_write_that_silently_does_nothing_is_a_failure() -> None:
    with pytest.raises(FailedError) as caught:
        execute("op", plan(Put("a", lies=True)), context(), MemoryJournal())
    assert caught.value.code == "verify-failed"


def test_an_undo_that_fails_is_named_and_the_others_go_on() -> None:
    journal = MemoryJournal()
    with pytest.raises(FailedError) as caught:
        execute("op", plan(Put("a"), Put("b", keeps=True), Put("c", fails=True)), context(), journal)
    assert [reason.code for reason in caught.value.reasons].count("left-behind") == 1
    assert HOST == {"b": "there"}
    assert journal.entries["op"].state == OperationState.STUCK


def test_a_refusal_touches_nothing_and_leaves_no_journal() -> None:
    journal = MemoryJournal()
    refused = Plan("test", "x", (), Refusal("boot-display", "it shows the console"))
    with pytest.raises(RefusedError) as caught:
        execute("op", refused, context(), journal)
    assert caught.value.code == "boot-display"
    assert journal.entries == {}


class FullDisk(MemoryJournal):
    def step(self, operation_id: str, index: int, state: StepState, error: str | None = None) -> None:
        if state in (StepState.DONE, StepState.FAILED, StepState.UNDONE):
            raise UnavailableError("disk full", code="store-full")
        super().step(operation_id, index, state, error)

    def end(self, operation_id: str, state: OperationState, error: JsonObject | None = None) -> None:
        raise UnavailableError("disk full", code="store-full")


def test_a_journal_that_cannot_be_written_takes_the_host_back_all_the_same() -> None:
    journal = FullDisk()
    with pytest.raises(FailedError) as caught:
        execute("op", plan(Put("a"), Put("b")), context(), journal)
    assert HOST == {}
    assert caught.value.code == "store-full"
    assert "journal-failed" in {reason.code for reason in caught.value.reasons}
    assert [operation.id for operation in journal.unfinished()] == ["op"]


class KilledError(BaseException):
    pass


class KillAt(MemoryJournal):
    """A journal that dies, as by kill -9, when the ``at``-th step record is to be written."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at
        self.alive = True

    def step(self, operation_id: str, index: int, state: StepState, error: str | None = None) -> None:
        if self.at == 0 and self.alive:
            self.alive = False
            raise KilledError
        self.at -= 1
        super().step(operation_id, index, state, error)


@pytest.mark.parametrize("after_crash", list(AfterCrash))
@pytest.mark.parametrize("at", range(6))
def test_a_crash_at_any_record_is_finished_or_undone_later(at: int, after_crash: AfterCrash) -> None:
    journal = KillAt(at)
    with pytest.raises(KilledError):
        execute("op", plan(Put("a"), Put("b"), Put("c"), after_crash=after_crash), context(), journal)
    (operation,) = journal.unfinished()
    resume(operation, context(), journal)
    finished = after_crash == AfterCrash.FORWARD
    expected = dict.fromkeys("abc", "there") if finished else {}
    assert expected == HOST
    assert journal.entries["op"].state == (OperationState.SUCCEEDED if finished else OperationState.FAILED)
    assert not journal.unfinished()


def test_a_step_survives_the_journal_unchanged() -> None:
    step = Put("a", fails=True)
    assert step_from_record(step.to_record()) == step
