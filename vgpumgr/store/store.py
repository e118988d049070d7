"""The store: one host's view of the database, as a handful of small repositories.

Steps name :class:`Store` as the port they write to, and plans are made without a database too: SQLAlchemy is
imported when one is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vgpumgr.store.session import Sessions


def utc_now() -> str:
    """The time in the form the tables keep."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Store:
    """Repositories over one database; each call is one transaction."""

    def __init__(self, sessions: Sessions) -> None:
        from vgpumgr.store.allocations import Allocations
        from vgpumgr.store.events import Events
        from vgpumgr.store.idempotency import IdempotencyKeys
        from vgpumgr.store.operations import Operations
        from vgpumgr.store.records import Bindings, Quarantine, Vgpus
        from vgpumgr.store.setups import CardSetups

        self._sessions = sessions
        self.host_id = sessions.host_id
        self.now = sessions.now
        self.operations = Operations(sessions)
        self.allocations = Allocations(sessions)
        self.bindings = Bindings(sessions)
        self.vgpus = Vgpus(sessions)
        self.setups = CardSetups(sessions)
        self.quarantine = Quarantine(sessions)
        self.events = Events(sessions)
        self.idempotency = IdempotencyKeys(sessions)

    def close(self) -> None:
        """Let all connections go."""
        self._sessions.engine.dispose()


def open_store(url: str, host_id: str, now: Callable[[], str] = utc_now) -> Store:
    """Open (and bring up to date) the database at a URL.

    Raises UsageError ``database-invalid``; UnavailableError ``store-unavailable``, ``store-too-new`` and kin.
    """
    from vgpumgr.store.engine import open_engine
    from vgpumgr.store.migrations import ensure
    from vgpumgr.store.session import Sessions

    engine = open_engine(url)
    ensure(engine)
    return Store(Sessions(engine, host_id, now))
