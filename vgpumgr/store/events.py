"""Events: what happened, in order, for as long as there is room."""

from __future__ import annotations

from sqlalchemy import delete, select, text
from sqlalchemy.orm import Session

from vgpumgr.errors import UsageError
from vgpumgr.model.event import MAX_ID, Event, EventType, Happening
from vgpumgr.model.page import Page
from vgpumgr.store.models import EventRow
from vgpumgr.store.session import MAX_PAGE, Sessions

KEPT = 10_000
"""The newest events of a host; older ones are forgotten."""

# One statement that holds the host's row until the transaction ends: ids become visible in their order, so that who
# has read up to one has missed none before it.
_NEXT_ID = text(
    "INSERT INTO event_counters (host_id, last) VALUES (:host_id, 1) "
    "ON CONFLICT (host_id) DO UPDATE SET last = event_counters.last + 1 RETURNING last"
)


class Events:
    """The events of one host."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def list(
        self,
        *,
        after: int = 0,
        type: str | None = None,
        subject: str | None = None,
        tenant: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Event]:
        """Events with an id above ``after``, oldest first. ``cursor`` is the id to go on after."""
        if cursor is not None:
            after = max(after, _place(cursor))
        query = select(EventRow).where(EventRow.host_id == self._sessions.host_id, EventRow.id > after)
        if type is not None:
            query = query.where(EventRow.type == type)
        if subject is not None:
            query = query.where(EventRow.subject == subject)
        if tenant is not None:
            query = query.where(EventRow.tenant_id == tenant)
        limit = max(1, min(limit, MAX_PAGE))
        with self._sessions.transaction() as session:
            found = [_event(row) for row in session.scalars(query.order_by(EventRow.id).limit(limit + 1))]
        if len(found) <= limit:
            return Page(found)
        return Page(found[:limit], str(found[limit - 1].id))


def add_event(session: Session, sessions: Sessions, what: Happening) -> None:
    """Write an event in the transaction that makes it true; the oldest goes when there are too many."""
    number = session.execute(_NEXT_ID, {"host_id": sessions.host_id}).scalar_one()
    session.add(
        EventRow(
            host_id=sessions.host_id,
            id=number,
            time=sessions.now(),
            type=what.type,
            subject=what.subject,
            message=what.message,
            data=what.data,
            tenant_id=what.tenant,
            allocation_id=what.allocation_id,
        )
    )
    session.execute(
        delete(EventRow).where(EventRow.host_id == sessions.host_id, EventRow.id <= number - KEPT),
        execution_options={"synchronize_session": False},
    )


def _place(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdecimal()) or len(cursor) > len(str(MAX_ID)) or int(cursor) > MAX_ID:
        raise UsageError(
            "the cursor is not one that a list gave out", hint="start without it", code="cursor-invalid"
        )
    return int(cursor)


def _event(row: EventRow) -> Event:
    what = Happening(EventType(row.type), row.subject, row.message, row.data, row.tenant_id, row.allocation_id)
    return Event(row.id, row.time, what)
