"""Runs the migrations in a process of its own. The database URL comes on standard input: it may hold a password."""

from __future__ import annotations

import sys
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine

from vgpumgr.errors import VgpumgrError
from vgpumgr.store.engine import open_engine, store_errors


def upgrade(engine: Engine) -> None:
    """All versions that a database lacks, in one transaction."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    known = {revision.revision for revision in ScriptDirectory.from_config(config).walk_revisions()}
    with store_errors(), engine.begin() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
        if current is not None and current not in known:
            raise VgpumgrError(
                f"it is at version {current}, which this release does not know",
                hint="install the release that wrote it, or a later one",
            )
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def main() -> int:
    """Upgrade the database whose URL stands on standard input."""
    try:
        upgrade(open_engine(sys.stdin.read().strip()))
    except VgpumgrError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
