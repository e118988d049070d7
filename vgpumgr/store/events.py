"""Events: what happened, in order, for as long as there is room."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Select, delete, func, select, text
from sqlalchemy.orm import Session

from vgpumgr.errors import UsageError
from vgpumgr.model.event import EVERYTHING, MAX_ID, Event, EventType, Happening, Stretch, Wanted
from vgpumgr.model.page import Page
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


class Events:
    """The events of one host. ``bell`` is rung after each transaction that wrote some."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self.bell = sessions.bell

    def list(
        self, wanted: Wanted = EVERYTHING, *, after: int = 0, limit: int = 100, cursor: str | None = None
    ) -> Page[Event]:
        """Events with an id above ``after``, newest first. ``cursor`` is the id to go on below."""
        query = self._query(wanted, after).order_by(EventRow.id.desc())
        if cursor is not None:
            query = query.where(EventRow.id < _place(cursor))
        limit = max(1, min(limit, MAX_PAGE))
        with self._sessions.transaction() as session:
            found = [_event(row) for row in session.scalars(query.limit(limit + 1))]
        if len(found) <= limit:
            return Page(found)
        return Page(found[:limit], str(found[limit - 1].id))

    def follow(self, wanted: Wanted = EVERYTHING, *, after: int, limit: int = MAX_PAGE) -> Stretch:
        """The next events with an id above ``after``, oldest first, and how far the log goes."""
        ends = select(func.min(EventRow.id), func.max(EventRow.id)).where(
            EventRow.host_id == self._sessions.host_id
        )
        query = self._query(wanted, after).order_by(EventRow.id).limit(limit)
        with self._sessions.transaction() as session:
            oldest, newest = session.execute(ends).one()
            found = [_event(row) for row in session.scalars(query)]
        if oldest is None:
            oldest, newest = 1, 0
        return Stretch(found, oldest, newest, found[-1].id if len(found) == limit else max(after, newest))

    def append(self, happenings: Collection[Happening]) -> None:
        """Write down what happened, all or nothing."""
        if happenings:
            with self._sessions.transaction() as session:
                for happening in happenings:
                    add_event(session, self._sessions, happening)

    def append_of_allocation(self, allocation_id: str, generation: int, happenings: Collection[Happening]) -> bool:
        """Write down what was seen of an allocation, unless it is of another ``generation`` by now.

        Then what was seen may be the work of whoever changed it, and no news. Returns whether it was written.
        """
        with self._sessions.transaction() as session:
            row = session.get(AllocationRow, allocation_id)
            if row is None or row.generation != generation:
                return False
            for happening in happenings:
                add_event(session, self._sessions, happening)
        return True

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

    def _query(self, wanted: Wanted, after: int) -> Select[Any]:
        query = select(EventRow).where(EventRow.host_id == self._sessions.host_id, EventRow.id > after)
        if wanted.type is not None:
            query = query.where(EventRow.type == wanted.type)
        if wanted.subject is not None:
            query = query.where(EventRow.subject == wanted.subject)
        if wanted.tenant is not None:
            query = query.where(EventRow.tenant_id == wanted.tenant)
        return query


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
