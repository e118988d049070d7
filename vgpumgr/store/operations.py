"""Operations and their journal."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from vgpumgr.errors import NotFoundError
from vgpumgr.model.event import EventType, Happening, because, cause
from vgpumgr.model.json import JsonObject
from vgpumgr.model.operation import Operation, OperationStep
from vgpumgr.model.page import Page
from vgpumgr.model.records import Reservation
from vgpumgr.plans.journal import JournalStep, OpenOperation, OperationState, StepState
from vgpumgr.plans.plan import Plan
from vgpumgr.store.events import add_event
from vgpumgr.store.idempotency import note_operation
from vgpumgr.store.models import AllocationRow, OperationRow, ReservationRow, StepRow
from vgpumgr.store.session import Sessions, page_of


class Operations:
    """The operations of one host; it is also the :class:`~vgpumgr.plans.journal.Journal` of their plans."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    # -- for users ------------------------------------------------------------------------------------
    def create(
        self,
        operation_id: str,
        kind: str,
        subject: str,
        allocation_id: str | None = None,
        reserved: Sequence[Reservation] = (),
    ) -> Operation:
        """A new operation, pending: its plan is made when its turn comes. What it reserves goes with its end."""
        with self._sessions.transaction() as session:
            row = add_operation(session, self._sessions, operation_id, kind, subject, allocation_id)
            session.flush()
            for item in reserved:
                session.add(_reservation_row(self._sessions.host_id, operation_id, item))
            return _operation(row, ())

    def get(self, operation_id: str) -> Operation:
        """One operation with its steps. NotFoundError ``operation-unknown``."""
        with self._sessions.transaction() as session:
            row = session.get(OperationRow, operation_id)
            if row is None or row.host_id != self._sessions.host_id:
                raise NotFoundError(
                    f"there is no operation {operation_id!r}",
                    hint="'vgpumgr op list' shows them",
                    code="operation-unknown",
                )
            return _operation(row, _steps(session, operation_id))

    def list(self, *, state: str | None, subject: str | None, limit: int, cursor: str | None) -> Page[Operation]:
        """Operations, newest first, without their steps."""
        query = select(OperationRow).where(OperationRow.host_id == self._sessions.host_id)
        if state is not None:
            query = query.where(OperationRow.state == state)
        if subject is not None:
            query = query.where(OperationRow.subject == subject)
        with self._sessions.transaction() as session:
            rows, following = page_of(session, query, OperationRow, limit, cursor)
            return Page([_operation(row, ()) for row in rows], following)

    def fail(self, operation_id: str, error: JsonObject) -> None:
        """End an operation that never got to its plan, or was refused. One that has ended stays as it is."""
        with self._sessions.transaction() as session:
            row = session.get_one(OperationRow, operation_id)
            if not OperationState(row.state).final:
                self._end(session, row, OperationState.FAILED, error)

    def reservations(self) -> Sequence[tuple[str, Reservation]]:
        """What operations that have not ended reserve, each with the operation's id."""
        query = select(ReservationRow).where(ReservationRow.host_id == self._sessions.host_id)
        with self._sessions.transaction() as session:
            rows = session.scalars(query.order_by(ReservationRow.id))
            return [(row.operation_id, Reservation(row.gpu, row.profile_id, row.count)) for row in rows]

    def under_way(self) -> Sequence[tuple[str, Sequence[JsonObject]]]:
        """The operations that run now: for whom (an allocation's id, else its own) and the records of its steps."""
        query = select(OperationRow).where(
            OperationRow.host_id == self._sessions.host_id, OperationRow.state == OperationState.RUNNING
        )
        with self._sessions.transaction() as session:
            return [
                (row.allocation_id or row.id, [step.record for step in _rows(session, row.id)])
                for row in session.scalars(query)
            ]

    def not_finished(self, wanted: Collection[str], step_kind: str) -> Set[str]:
        """Those of ``wanted`` that a step of this kind is about, in an operation that has not succeeded."""
        query = (
            select(StepRow)
            .join(OperationRow, OperationRow.id == StepRow.operation_id)
            .where(StepRow.host_id == self._sessions.host_id, StepRow.address.in_(wanted))
            .where(OperationRow.state != OperationState.SUCCEEDED)
        )
        with self._sessions.transaction() as session:
            rows = session.scalars(query)
            return {row.address for row in rows if row.address and row.record.get("kind") == step_kind}

    # -- the journal ----------------------------------------------------------------------------------
    def begin(self, operation_id: str, plan: Plan) -> None:
        """See :class:`~vgpumgr.plans.journal.Journal`."""
        with self._sessions.transaction() as session:
            row = session.get(OperationRow, operation_id)
            if row is None:
                row = add_operation(session, self._sessions, operation_id, plan.kind, plan.subject, None)
            row.state, row.updated_at = OperationState.RUNNING, self._sessions.now()
            row.after_crash = str(plan.after_crash)
            for position, step in enumerate(plan.steps):
                session.add(
                    StepRow(
                        operation_id=operation_id,
                        position=position,
                        host_id=self._sessions.host_id,
                        record=step.to_record(),
                        describe=step.describe(),
                        address=step.subject,
                        state=StepState.PENDING,
                    )
                )

    def step(self, operation_id: str, index: int, state: StepState, error: str | None = None) -> None:
        """See :class:`~vgpumgr.plans.journal.Journal`."""
        with self._sessions.transaction() as session:
            row = session.get_one(StepRow, (operation_id, index))
            row.state = state
            row.error = error if error is not None else row.error
            session.get_one(OperationRow, operation_id).updated_at = self._sessions.now()

    def end(self, operation_id: str, state: OperationState, error: JsonObject | None = None) -> None:
        """See :class:`~vgpumgr.plans.journal.Journal`."""
        with self._sessions.transaction() as session:
            self._end(session, session.get_one(OperationRow, operation_id), state, error)

    def _end(self, session: Session, row: OperationRow, state: OperationState, error: JsonObject | None) -> None:
        """Its end, the event of it and the end of what it reserved are one transaction."""
        row.state, row.error, row.updated_at = state, error, self._sessions.now()
        session.execute(delete(ReservationRow).where(ReservationRow.operation_id == row.id))
        allocation = session.get(AllocationRow, row.allocation_id) if row.allocation_id is not None else None
        add_event(session, self._sessions, _ending(row, allocation.tenant_id if allocation is not None else None))

    def unfinished(self) -> Sequence[OpenOperation]:
        """See :class:`~vgpumgr.plans.journal.Journal`. One that was only pending has no steps yet."""
        open_states = [state for state in OperationState if not state.final]
        query = (
            select(OperationRow)
            .where(OperationRow.host_id == self._sessions.host_id, OperationRow.state.in_(open_states))
            .order_by(OperationRow.created_at)
        )
        with self._sessions.transaction() as session:
            return [
                OpenOperation(row.id, row.kind, row.subject, row.after_crash, _journal(session, row.id))
                for row in session.scalars(query)
            ]


def add_operation(
    session: Session, sessions: Sessions, operation_id: str, kind: str, subject: str, allocation_id: str | None
) -> OperationRow:
    """Record a pending operation, and the idempotency key it is made for, if any."""
    now = sessions.now()
    row = OperationRow(
        id=operation_id,
        host_id=sessions.host_id,
        kind=kind,
        subject=subject,
        state=OperationState.PENDING,
        after_crash="back",
        allocation_id=allocation_id,
        created_at=now,
        updated_at=now,
    )
    session.add(row)
    note_operation(session, sessions.host_id, operation_id)
    return row


def _reservation_row(host_id: str, operation_id: str, item: Reservation) -> ReservationRow:
    return ReservationRow(
        host_id=host_id, operation_id=operation_id, gpu=item.gpu, profile_id=item.profile_id, count=item.count
    )


def _ending(row: OperationRow, tenant: str | None) -> Happening:
    data = {"operation_id": row.id, "kind": row.kind, **cause(row.error)}
    message = f"{row.kind} of {row.subject} {_ENDED[OperationState(row.state)]}{because(row.error)}"
    return Happening(EventType(f"operation.{row.state}"), row.subject, message, data, tenant, row.allocation_id)


_ENDED = {
    OperationState.SUCCEEDED: "succeeded",
    OperationState.FAILED: "failed",
    OperationState.STUCK: "failed, and something is left that must be looked at",
}


def _rows(session: Session, operation_id: str) -> Sequence[StepRow]:
    query = select(StepRow).where(StepRow.operation_id == operation_id).order_by(StepRow.position)
    return session.scalars(query).all()


def _journal(session: Session, operation_id: str) -> list[JournalStep]:
    return [
        JournalStep(row.record, row.describe, StepState(row.state), row.error)
        for row in _rows(session, operation_id)
    ]


def _steps(session: Session, operation_id: str) -> tuple[OperationStep, ...]:
    return tuple(
        OperationStep(row.describe, row.state, str(row.record.get("kind")), row.address, row.error)
        for row in _rows(session, operation_id)
    )


def _operation(row: OperationRow, steps: tuple[OperationStep, ...]) -> Operation:
    return Operation(
        id=row.id,
        host_id=row.host_id,
        kind=row.kind,
        subject=row.subject,
        state=str(row.state),
        created_at=row.created_at,
        updated_at=row.updated_at,
        steps=steps,
        error=row.error,
        allocation_id=row.allocation_id,
    )
