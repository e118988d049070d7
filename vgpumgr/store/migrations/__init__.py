"""The database's schema, version by version.

Alembic takes ten MiB of memory and is needed once in a release's life, so it runs in a process of its own, and
only when the database is not at :data:`HEAD`.
"""

from __future__ import annotations

import subprocess
import sys

from sqlalchemy import Engine, inspect, text

from vgpumgr.errors import UnavailableError
from vgpumgr.store.engine import store_errors

HEAD = "0006"
"""The newest version; a test holds it to the files in ``versions/``."""


def ensure(engine: Engine) -> None:
    """Bring the schema up to date. Safe when two processes start at once: the second waits and finds it done.

    Raises UnavailableError ``store-too-new`` for a database that a later release has used, and
    ``store-migration-failed`` with alembic's own words.
    """
    if current_version(engine) == HEAD:
        return
    url = engine.url.render_as_string(hide_password=False)
    command = [sys.executable, "-m", "vgpumgr.store.migrations.run"]
    done = subprocess.run(command, input=url, text=True, capture_output=True, check=False)
    if done.returncode:
        raise UnavailableError(
            f"the database could not be brought up to date: {done.stderr.strip()[-500:]}",
            hint="see docs/reference/store.md",
            code="store-too-new" if "does not know" in done.stderr else "store-migration-failed",
        )


def current_version(engine: Engine) -> str | None:
    """The version a database is at; ``None`` for an empty one."""
    with store_errors(), engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
