"""The database's schema, version by version."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine

from vgpumgr.errors import UnavailableError
from vgpumgr.store.engine import store_errors


def upgrade(engine: Engine) -> None:
    """Bring the schema up to date. Safe when two processes start at once: the second waits and finds it done.

    Raises UnavailableError ``store-too-new`` for a database that a later release has used.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    known = {revision.revision for revision in ScriptDirectory.from_config(config).walk_revisions()}
    with store_errors(), engine.begin() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
        if current is not None and current not in known:
            raise UnavailableError(
                f"the database is at version {current}, which this release does not know",
                hint="install the release that wrote it, or a later one",
                code="store-too-new",
            )
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
