"""How cards shall be cut: VFs, MIG, modes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "card_setups",
        sa.Column("host_id", sa.String(length=64), nullable=False),
        sa.Column("address", sa.String(length=32), nullable=False),
        sa.Column("fingerprint", sa.String(length=16), nullable=False),
        sa.Column("setup", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("host_id", "address", name=op.f("pk_card_setups")),
    )
