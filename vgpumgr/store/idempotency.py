"""Answers to requests that carried an idempotency key."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete
from sqlalchemy.exc import IntegrityError

from vgpumgr.errors import ConflictError
from vgpumgr.model.json import JsonObject
from vgpumgr.store.models import IdempotencyRow
from vgpumgr.store.session import Sessions


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that was given: HTTP status, JSON body, and the headers that belong to it."""

    status: int
    body: JsonObject | None
    headers: JsonObject


class KeyReusedError(ConflictError):
    """The key came before, with another request."""

    code = "idempotency-key-reused"
    http_status = 422


class IdempotencyKeys:
    """Keys of one host, apart by tenant."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def begin(self, tenant: str, key: str, request_hash: str) -> Answer | None:
        """Reserve a key for a request. ``None``: it is new, go on. Otherwise the answer given the first time.

        KeyReusedError when the key came with another request; ConflictError ``request-in-progress`` while
        the first one is still being worked on.
        """
        try:
            with self._sessions.transaction() as session:
                session.add(
                    IdempotencyRow(
                        host_id=self._sessions.host_id,
                        tenant_id=tenant,
                        key=key,
                        request_hash=request_hash,
                        status=0,
                        created_at=self._sessions.now(),
                    )
                )
                session.flush()
        except IntegrityError:
            return self._earlier(tenant, key, request_hash)
        return None

    def _earlier(self, tenant: str, key: str, request_hash: str) -> Answer | None:
        with self._sessions.transaction() as session:
            row = session.get(IdempotencyRow, (self._sessions.host_id, tenant, key))
        if row is None:
            return self.begin(tenant, key, request_hash)
        if row.request_hash != request_hash:
            raise KeyReusedError(
                "this Idempotency-Key came before with another request", hint="use a new key for a new request"
            )
        if row.status == 0:
            raise ConflictError(
                "the first request with this Idempotency-Key is still being worked on",
                hint="ask again in a moment",
                code="request-in-progress",
            )
        return Answer(row.status, row.body, row.headers or {})

    def finish(self, tenant: str, key: str, answer: Answer) -> None:
        """Keep the answer for the next time."""
        with self._sessions.transaction() as session:
            row = session.get(IdempotencyRow, (self._sessions.host_id, tenant, key))
            if row is not None:
                row.status, row.body, row.headers = answer.status, answer.body, answer.headers

    def forget(self, tenant: str, key: str) -> None:
        """Let a key go that came to no answer worth keeping, so that the client may try again."""
        with self._sessions.transaction() as session:
            row = session.get(IdempotencyRow, (self._sessions.host_id, tenant, key))
            if row is not None:
                session.delete(row)

    def expire(self, before: str) -> None:
        """Forget keys older than a time, and at start those whose work a crash cut short (status 0)."""
        with self._sessions.transaction() as session:
            session.execute(
                delete(IdempotencyRow).where(
                    IdempotencyRow.host_id == self._sessions.host_id,
                    (IdempotencyRow.created_at < before) | (IdempotencyRow.status == 0),
                )
            )
