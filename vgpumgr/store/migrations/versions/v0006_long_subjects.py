"""A subject may be a VM's name, which may be longer than an address."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Widen the columns; SQLite keeps texts of any length, and would have to copy the tables."""
    if op.get_bind().dialect.name == "sqlite":
        return
    for table in ("operations", "events"):
        op.alter_column(
            table, "subject", existing_type=sa.String(64), type_=sa.String(255), existing_nullable=False
        )
