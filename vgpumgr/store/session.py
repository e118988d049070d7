"""What every repository works with: one host's transactions."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine, Select, and_, or_, select
from sqlalchemy.orm import Session

from vgpumgr.errors import UsageError
from vgpumgr.store.bell import Bell
from vgpumgr.store.engine import store_errors

MAX_PAGE = 500
_RINGS = "rings"


@dataclass(frozen=True)
class Sessions:
    """Transactions on one host's rows.

    ``now`` gives the time in the form the tables keep; ``bell`` is rung after transactions that wrote events.
    """

    engine: Engine
    host_id: str
    now: Callable[[], str]
    bell: Bell = field(default_factory=Bell)

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """One transaction: committed when the block ends, rolled back when it raises."""
        with store_errors(), Session(self.engine, expire_on_commit=False) as session:
            with session.begin():
                yield session
            if _RINGS in session.info:
                self.bell.ring()

    def ring_after(self, session: Session) -> None:
        """Ring the bell once this transaction is committed."""
        session.info[_RINGS] = True


def page_of(
    session: Session, query: Select[Any], row: Any, limit: int, cursor: str | None
) -> tuple[list[Any], str | None]:
    """Rows newest first, and the cursor of the next page. ``row`` has ``created_at`` and ``id``."""
    limit = max(1, min(limit, MAX_PAGE))
    if cursor is not None:
        created, key = _decode(cursor)
        query = query.where(or_(row.created_at < created, and_(row.created_at == created, row.id < key)))
    query = query.order_by(row.created_at.desc(), row.id.desc()).limit(limit + 1)
    found = list(session.scalars(query))
    if len(found) <= limit:
        return found, None
    last = found[limit - 1]
    return found[:limit], _encode(last.created_at, last.id)


def _encode(created: str, key: str) -> str:
    return base64.urlsafe_b64encode(f"{created} {key}".encode()).decode()


def _decode(cursor: str) -> tuple[str, str]:
    try:
        created, _, key = base64.urlsafe_b64decode(cursor.encode()).decode().partition(" ")
    except (binascii.Error, UnicodeError):
        created = key = ""
    if not created or not key:
        raise UsageError(
            "the cursor is not one that a list gave out", hint="start without it", code="cursor-invalid"
        )
    return created, key


__all__ = ["MAX_PAGE", "Sessions", "page_of", "select"]
