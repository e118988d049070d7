"""Requests that carried an idempotency key: how they were answered, or what was made for them before they were.

An operation and the key it was made for are written in one transaction. So a request whose answer got lost, by a
fault or by a crash of the service, finds what it made when it comes again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from vgpumgr.errors import ConflictError
from vgpumgr.model.json import JsonObject
from vgpumgr.plans.journal import OperationState
from vgpumgr.store.models import IdempotencyRow, OperationRow
from vgpumgr.store.session import Sessions

_working_for: ContextVar[tuple[str, str] | None] = ContextVar("idempotency_key", default=None)
"""Tenant and key of the request that this thread works on: operations that it records are made for them."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that was given: HTTP status, JSON body, and the headers that belong to it."""

    status: int
    body: JsonObject | None
    headers: JsonObject


@dataclass(frozen=True, slots=True)
class Made:
    """What was made for a request that has not been answered: the ids of its operations, in order."""

    operations: tuple[str, ...]


class KeyReusedError(ConflictError):
    """The key came before, with another request."""

    code = "idempotency-key-reused"
    http_status = 422


class IdempotencyKeys:
    """Keys of one host, apart by tenant. A host has one service, so that what is in progress is known to it."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._guard = threading.Lock()
        self._in_progress: set[tuple[str, str]] = set()

    def begin(self, tenant: str, key: str, request_hash: str) -> Answer | Made | None:
        """Reserve a key for a request. ``None``: go on, and tell the end with :meth:`finish` or :meth:`forget`.

        Otherwise the answer given the first time, or what was made before an answer was given. KeyReusedError when
        the key came with another request; ConflictError ``request-in-progress`` while the first one is still being
        worked on and has made nothing yet.
        """
        with self._guard:
            first = (tenant, key) not in self._in_progress
            self._in_progress.add((tenant, key))
        go_on = False
        try:
            found = self._reserve(tenant, key, request_hash, first)
            go_on = found is None
            return found
        finally:
            if first and not go_on:
                self._end(tenant, key)

    def _reserve(self, tenant: str, key: str, request_hash: str, first: bool) -> Answer | Made | None:
        try:
            with self._sessions.transaction() as session:
                row = session.get(IdempotencyRow, (self._sessions.host_id, tenant, key))
                if row is not None:
                    return _earlier(session, row, request_hash, first)
                if not first:
                    raise _in_progress()
                session.add(self._row(tenant, key, request_hash))
        except IntegrityError as error:
            raise _in_progress() from error
        return None

    def _row(self, tenant: str, key: str, request_hash: str) -> IdempotencyRow:
        return IdempotencyRow(
            host_id=self._sessions.host_id,
            tenant_id=tenant,
            key=key,
            request_hash=request_hash,
            status=0,
            created_at=self._sessions.now(),
        )

    def finish(self, tenant: str, key: str, answer: Answer) -> None:
        """Keep the answer for the next time."""
        try:
            with self._sessions.transaction() as session:
                row = session.get(IdempotencyRow, (self._sessions.host_id, tenant, key))
                if row is not None:
                    row.status, row.body, row.headers = answer.status, answer.body, answer.headers
        finally:
            self._end(tenant, key)

    def forget(self, tenant: str, key: str) -> None:
        """Let a key go that came to no answer, unless something was made for it that is still there."""
        try:
            with self._sessions.transaction() as session:
                row = session.get(IdempotencyRow, (self._sessions.host_id, tenant, key))
                if row is not None and _nothing_left(session, row):
                    session.delete(row)
        finally:
            self._end(tenant, key)

    def _end(self, tenant: str, key: str) -> None:
        with self._guard:
            self._in_progress.discard((tenant, key))

    def expire(self, before: str) -> None:
        """Forget keys older than a time, and those that a crash left without an answer and with nothing made."""
        with self._sessions.transaction() as session:
            session.execute(
                delete(IdempotencyRow).where(
                    IdempotencyRow.host_id == self._sessions.host_id, IdempotencyRow.created_at < before
                )
            )
            unanswered = select(IdempotencyRow).where(
                IdempotencyRow.host_id == self._sessions.host_id, IdempotencyRow.status == 0
            )
            for row in session.scalars(unanswered).all():
                if _nothing_left(session, row):
                    session.delete(row)


@contextmanager
def working_for(tenant: str, key: str) -> Iterator[None]:
    """Operations that this thread records in the block are made for this key."""
    token = _working_for.set((tenant, key))
    try:
        yield
    finally:
        _working_for.reset(token)


def note_operation(session: Session, host_id: str, operation_id: str) -> None:
    """In the transaction that records an operation: for which key it was made, if there is one."""
    working = _working_for.get()
    row = session.get(IdempotencyRow, (host_id, *working)) if working is not None else None
    if row is not None:
        row.operations = [*(row.operations or ()), operation_id]


def _earlier(session: Session, row: IdempotencyRow, request_hash: str, first: bool) -> Answer | Made | None:
    """What is known of a request that came before; ``None`` when it ended without a trace and may be made again."""
    if row.request_hash != request_hash:
        raise KeyReusedError(
            "this Idempotency-Key came before with another request", hint="use a new key for a new request"
        )
    if row.status:
        return Answer(row.status, row.body, row.headers or {})
    if first and _nothing_left(session, row):
        row.operations = None
        return None
    if not row.operations:
        raise _in_progress()
    return Made(tuple(row.operations))


def _nothing_left(session: Session, row: IdempotencyRow) -> bool:
    """No operation was recorded, or each was refused or taken back: ``failed`` is what is undone."""
    found = (session.get(OperationRow, operation_id) for operation_id in row.operations or ())
    return all(operation is None or operation.state == OperationState.FAILED for operation in found)


def _in_progress() -> ConflictError:
    return ConflictError(
        "the first request with this Idempotency-Key is still being worked on",
        hint="ask again in a moment",
        code="request-in-progress",
    )
