"""Events: what happened, in order, for as long as there is room."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from sqlalchemy import delete, func, select, text
from sqlalchemy.orm import Session

from vgpumgr.errors import UsageError
from vgpumgr.model.event import MAX_ID, Event, EventType, Happening
from vgpumgr.model.page import Page
from vgpumgr.store.bell import Bell
from vgpumgr.store.models import AllocationRow, EventRow
from vgpumgr.store.session import MAX_PAGE, Sessions

KEPT = 10_000
"""The newest events of a host; older ones are forgotten."""

# One statement that holds the host's row until the transaction ends: ids become visible in their order, so that who
# has read up to one has missed none before it.
_NEXT_ID = text(
    "INSERT INTO event_counters (host_id, last) VALUES (:host_id, 1) "
    "ON CONFLICT (host_id) DO UPDATE SET last = event_counters.last + 1 RETURNING last"
)
_ABOUT_DEVICES = (EventType.DEVICE_MISSING, EventType.DEVICE_BACK)


class Span(NamedTuple):
    """The ids of the oldest event that is kept and of the newest; ``(1, 0)`` while there is none."""

    oldest: int
    newest: int


class Events:
    """The events of one host. ``bell`` is rung after each transaction that wrote some."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    @property
    def bell(self) -> Bell:
        """Rung when there is more to read."""
        return self._sessions.bell

    def append(self, happenings: Iterable[Happening]) -> None:
        """Write down what happened, all or nothing."""
        with self._sessions.transaction() as session:
            for happening in happenings:
                add_event(session, self._sessions, happening)

    def append_unless_changed(self, generation: int, happenings: Collection[Happening]) -> None:
        """Write down what was seen of an allocation, unless it is of another ``generation`` by now.

        Then what was seen may be the work of whoever changed it, and no news.
        """
        with self._sessions.transaction() as session:
            for happening in happenings:
                row = session.get(AllocationRow, happening.allocation_id)
                if row is not None and row.generation == generation:
                    add_event(session, self._sessions, happening)

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

    def span(self) -> Span:
        """Which events there are."""
        query = select(func.min(EventRow.id), func.max(EventRow.id)).where(
            EventRow.host_id == self._sessions.host_id
        )
        with self._sessions.transaction() as session:
            oldest, newest = session.execute(query).one()
        return Span(1, 0) if oldest is None else Span(oldest, newest)

    def told_missing(self) -> Mapping[str, frozenset[str]]:
        """Of which devices the last word is that they are missing, by the allocation that has them."""
        query = (
            select(EventRow)
            .where(EventRow.host_id == self._sessions.host_id, EventRow.type.in_(_ABOUT_DEVICES))
            .order_by(EventRow.id)
        )
        missing: dict[str, set[str]] = {}
        with self._sessions.transaction() as session:
            for row in session.scalars(query):
                devices = missing.setdefault(row.subject, set())
                if row.type == EventType.DEVICE_MISSING:
                    devices.add(row.data["device"])
                else:
                    devices.discard(row.data["device"])
        return {key: frozenset(devices) for key, devices in missing.items()}


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
    sessions.ring_after(session)


def _place(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdecimal()) or len(cursor) > len(str(MAX_ID)) or int(cursor) > MAX_ID:
        raise UsageError(
            "the cursor is not one that a list gave out", hint="start without it", code="cursor-invalid"
        )
    return int(cursor)


def _event(row: EventRow) -> Event:
    what = Happening(EventType(row.type), row.subject, row.message, row.data, row.tenant_id, row.allocation_id)
    return Event(row.id, row.time, what)
