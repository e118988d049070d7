"""Opening a database: what SQLite must be told, and what its errors mean."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError

from vgpumgr.errors import UnavailableError, UsageError

BUSY_SECONDS = 20
"""How long a writer waits for another one's transaction."""


def open_engine(url: str) -> Engine:
    """An engine for a database URL. UsageError ``database-invalid``, UnavailableError ``store-unavailable``."""
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise UsageError(
            f"{url!r} is no database URL",
            hint="such as sqlite:////var/lib/vgpumgr/vgpumgr.db",
            code="database-invalid",
        ) from error
    if parsed.get_backend_name() == "sqlite":
        return _open_sqlite(url, parsed.database)
    try:
        return create_engine(url, pool_pre_ping=True)
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        raise UnavailableError(
            f"no driver for {parsed.drivername}: {error}",
            hint="pip install 'vgpumgr[postgresql]'",
            code="store-unavailable",
        ) from error


def _open_sqlite(url: str, database: str | None) -> Engine:
    if database and database != ":memory:":
        _make_file(Path(database))
    engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS})

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: object) -> None:
        # Transactions begin when we say so (below); the driver's own idea of when is too late for claims.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
            f"busy_timeout={BUSY_SECONDS}000",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        # IMMEDIATE: a transaction that will write takes its place in the queue before it reads.
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _make_file(path: Path) -> None:
    """The database is for root's eyes: it says which tenant has what."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise UnavailableError(
            f"cannot open the database {path}: {error.strerror}",
            hint="run as root, or set 'database' or 'state_dir' in the configuration",
            code="store-unavailable",
        ) from error


_HINTS = (
    ("disk is full", "store-full", "free space on the file system of the database; nothing was lost"),
    ("no space left", "store-full", "free space on the file system of the database; nothing was lost"),
    ("locked", "store-busy", "another process keeps the database busy; try again"),
    ("readonly", "store-readonly", "the database's file or file system is read-only"),
    ("malformed", "store-corrupt", "restore the database from a backup; see docs/reference/store.md"),
    ("not a database", "store-corrupt", "the file is no SQLite database; move it away"),
)


@contextmanager
def store_errors() -> Iterator[None]:
    """The database's errors as ours; an integrity error passes through, for its meaning is the caller's."""
    try:
        yield
    except OperationalError as error:
        raise _translated(error) from error
    except DBAPIError as error:
        if error.connection_invalidated or "malformed" in str(error) or "not a database" in str(error):
            raise _translated(error) from error
        raise


def _translated(error: DBAPIError) -> UnavailableError:
    text = " ".join(str(error.orig).split())
    for part, code, hint in _HINTS:
        if part in text.lower():
            return UnavailableError(f"the database failed: {text}", hint=hint, code=code)
    return UnavailableError(f"the database failed: {text}", hint="see the service's log", code="store-unavailable")
