"""What operators' vGPUs reserve while they are being made."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "reservations",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("host_id", sa.String(length=64), nullable=False),
        sa.Column("operation_id", sa.String(length=40), nullable=False),
        sa.Column("gpu", sa.String(length=64), nullable=False),
        sa.Column("profile_id", sa.String(length=64), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["operation_id"], ["operations.id"], name=op.f("fk_reservations_operation_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reservations")),
    )
    op.create_index(op.f("ix_reservations_host_id"), "reservations", ["host_id"])
    op.create_index(op.f("ix_reservations_operation_id"), "reservations", ["operation_id"])
