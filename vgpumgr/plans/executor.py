"""Carries plans out: journal, do, read back, and on failure undo in reverse.

A step's start is in the journal before the host is touched and its end after the host was read back, so
at any moment of a crash the journal and the host together tell what to do (:func:`resume`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from vgpumgr.errors import DeadlineError, FailedError, Reason, VgpumgrError
from vgpumgr.inventory.holders import find_holders
from vgpumgr.kernel.port import PCI_DEVICES, link_name
from vgpumgr.plans.checks import holder_reason
from vgpumgr.plans.journal import Journal, OpenOperation, OperationState, StepState
from vgpumgr.plans.plan import AfterCrash, Plan
from vgpumgr.plans.step import Step, StepContext, step_from_record

STEP_ERRORS = (OSError, VgpumgrError)
"""What a step may raise. Anything else is a fault of ours and is not caught."""


def execute(operation_id: str, plan: Plan, context: StepContext, journal: Journal) -> None:
    """Carry a plan out. Returns when every step was read back.

    Raises :class:`RefusedError` before anything is touched, and :class:`FailedError` after a failure:
    what could not be undone is named in its ``reasons`` with the code ``left-behind``.
    """
    plan.require()
    journal.begin(operation_id, plan)
    _run(operation_id, plan.steps, range(len(plan.steps)), context, journal)


def resume(operation: OpenOperation, context: StepContext, journal: Journal) -> None:
    """Finish, or take back, an operation that was cut short, by looking at the host."""
    steps = [step_from_record(item.record) for item in operation.steps]
    touched = [
        index
        for index, item in enumerate(operation.steps)
        if item.state in (StepState.STARTED, StepState.DONE, StepState.FAILED)
    ]
    if operation.after_crash == AfterCrash.FORWARD:
        ahead = [
            index
            for index, item in enumerate(operation.steps)
            if item.state not in (StepState.DONE, StepState.SKIPPED)
        ]
        _run(operation.id, steps, ahead, context, journal, already_done=touched)
        return
    left = _undo(operation.id, steps, touched, context, journal)
    error = FailedError(f"{operation.kind} {operation.subject} was interrupted and taken back", code="interrupted")
    _close_failed(operation.id, error, left, journal)


def _run(
    operation_id: str,
    steps: Sequence[Step],
    ahead: Sequence[int],
    context: StepContext,
    journal: Journal,
    already_done: Sequence[int] = (),
) -> None:
    done = [index for index in already_done if index not in ahead]
    for index in ahead:
        step = steps[index]
        try:
            if index not in already_done:
                foreign = step.foreign(context)
                if foreign is not None:
                    raise foreign
                if step.is_done(context):
                    journal.step(operation_id, index, StepState.SKIPPED)
                    continue
            journal.step(operation_id, index, StepState.STARTED)
            done.append(index)
            if not step.is_done(context):
                step.apply(context)
                step.verify(context)
            journal.step(operation_id, index, StepState.DONE, step.remark(context))
        except STEP_ERRORS as cause:
            error = _as_failure(step, cause, context)
            unwritten = _note(journal, operation_id, index, StepState.FAILED, error.message)
            left = _undo(operation_id, steps, done, context, journal)
            raise _close_failed(operation_id, error, [*unwritten, *left], journal) from cause
    journal.end(operation_id, OperationState.SUCCEEDED)


def _undo(
    operation_id: str, steps: Sequence[Step], indexes: Sequence[int], context: StepContext, journal: Journal
) -> list[Reason]:
    """Take steps back, last first. Goes on past a failing undo; returns what is left behind."""
    left: list[Reason] = []
    for index in sorted(indexes, reverse=True):
        step = steps[index]
        try:
            step.undo(context)
        except STEP_ERRORS as cause:
            failure = _as_failure(step, cause, context)
            subject = (step.subject,) if step.subject else ()
            left.append(Reason("left-behind", f"could not undo: {failure.message}", subject))
            left += _note(journal, operation_id, index, StepState.LEFT, failure.message)
        else:
            left += _note(journal, operation_id, index, StepState.UNDONE)
    return left


def _note(
    journal: Journal, operation_id: str, index: int, state: StepState, error: str | None = None
) -> list[Reason]:
    """Journal a step on the way back. A journal that fails (a full disk) must not stop the undoing."""
    try:
        journal.step(operation_id, index, state, error)
    except STEP_ERRORS as cause:
        return [Reason("journal-failed", f"the journal could not be written: {cause}")]
    return []


def _close_failed(operation_id: str, error: FailedError, left: Sequence[Reason], journal: Journal) -> FailedError:
    """End a failed operation; when that cannot be written, the next start finds it open and resumes it."""
    error.reasons = (*error.reasons, *left)
    state = OperationState.STUCK if any(item.code == "left-behind" for item in left) else OperationState.FAILED
    try:
        journal.end(operation_id, state, error.to_json())
    except STEP_ERRORS as cause:
        error.reasons = (*error.reasons, Reason("journal-failed", f"the journal could not be written: {cause}"))
    return error


def _as_failure(step: Step, cause: OSError | VgpumgrError, context: StepContext) -> FailedError:
    """The step's error with the step's name in it; keeps a stable code where the cause has one."""
    if isinstance(cause, TimeoutError):
        return _past_deadline(step, context)
    if isinstance(cause, OSError):
        name = os.strerror(cause.errno) if cause.errno else str(cause)
        return FailedError(
            f"{step.describe()}: {name}",
            reasons=_subject_reason(step, "kernel-refused", f"the kernel answered {name} (errno {cause.errno})"),
            code="kernel-refused",
        )
    if isinstance(cause, FailedError):
        return cause
    return FailedError(cause.message, hint=cause.hint, reasons=cause.reasons, code=cause.code)


def _past_deadline(step: Step, context: StepContext) -> DeadlineError:
    """A write that hangs waits for somebody: whoever has the function, or the card it is a part of, is named."""
    subject = step.subject or ""
    card = link_name(context.kernel, f"{PCI_DEVICES}/{subject}/physfn")
    seen = find_holders(context.kernel, (subject, card) if card is not None else (subject,))
    hint = "end what holds the device, then ask again; the write may still come to its end by itself"
    if not seen.holders:
        hint = "nothing is seen to hold the device; the kernel log may say what its driver waits for"
    return DeadlineError(
        f"{step.describe()}: the kernel did not finish in time",
        hint=hint,
        reasons=(
            *_subject_reason(step, "deadline-exceeded", "the write hangs in the kernel"),
            *map(holder_reason, seen.holders),
        ),
    )


def _subject_reason(step: Step, code: str, message: str) -> tuple[Reason, ...]:
    return (Reason(code, message, (step.subject,) if step.subject else ()),)
