"""Which operations were made for an idempotency key."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the column."""
    op.add_column("idempotency_keys", sa.Column("operations", sa.JSON(), nullable=True))
