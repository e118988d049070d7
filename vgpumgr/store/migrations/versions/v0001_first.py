"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make all tables."""
    op.create_table(
        "allocations",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("host_id", sa.String(length=64), nullable=False),
        sa.Column("tenant_id", sa.String(length=64), nullable=False),
        sa.Column("vm", sa.String(length=255), nullable=False),
        sa.Column("live_vm", sa.String(length=255), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("devices", sa.JSON(), nullable=False),
        sa.Column("operation_id", sa.String(length=40), nullable=True),
        sa.Column("domain_uuid", sa.String(length=40), nullable=True),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("lease_expires_at", sa.String(length=32), nullable=True),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("updated_at", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_allocations")),
        sa.UniqueConstraint("host_id", "live_vm", name="uq_allocations_live_vm"),
    )
    op.create_index("ix_allocations_host_created", "allocations", ["host_id", "created_at", "id"], unique=False)
    op.create_index(op.f("ix_allocations_state"), "allocations", ["state"], unique=False)
    op.create_index(op.f("ix_allocations_tenant_id"), "allocations", ["tenant_id"], unique=False)
    op.create_table(
        "bindings",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("host_id", sa.String(length=64), nullable=False),
        sa.Column("address", sa.String(length=32), nullable=False),
        sa.Column("fingerprint", sa.String(length=16), nullable=False),
        sa.Column("driver", sa.String(length=64), nullable=False),
        sa.Column("originals", sa.JSON(), nullable=False),
        sa.Column("owner", sa.String(length=40), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bindings")),
        sa.UniqueConstraint("host_id", "address", name="uq_bindings_address"),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("host_id", sa.String(length=64), nullable=False),
        sa.Column("tenant_id", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("request_hash", sa.String(length=64), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=True),
        sa.Column("headers", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("host_id", "tenant_id", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_table(
        "operations",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("host_id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("subject", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("after_crash", sa.String(length=16), nullable=False),
        sa.Column("allocation_id", sa.String(length=40), nullable=True),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("updated_at", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_operations")),
    )
    op.create_index("ix_operations_host_created", "operations", ["host_id", "created_at", "id"], unique=False)
    op.create_index(op.f("ix_operations_state"), "operations", ["state"], unique=False)
    op.create_table(
        "quarantine",
        sa.Column("host_id", sa.String(length=64), nullable=False),
        sa.Column("address", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("host_id", "address", name=op.f("pk_quarantine")),
    )
    op.create_table(
        "vgpus",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("host_id", sa.String(length=64), nullable=False),
        sa.Column("vgpu_id", sa.String(length=64), nullable=False),
        sa.Column("gpu", sa.String(length=32), nullable=False),
        sa.Column("fingerprint", sa.String(length=16), nullable=False),
        sa.Column("parent", sa.String(length=32), nullable=False),
        sa.Column("backend", sa.String(length=16), nullable=False),
        sa.Column("profile_id", sa.String(length=64), nullable=False),
        sa.Column("profile", sa.String(length=128), nullable=False),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.Column("allocation_id", sa.String(length=40), nullable=True),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_vgpus")),
        sa.UniqueConstraint("host_id", "vgpu_id", name="uq_vgpus_vgpu_id"),
    )
    op.create_table(
        "claims",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("host_id", sa.String(length=64), nullable=False),
        sa.Column("resource", sa.String(length=64), nullable=False),
        sa.Column("gpu", sa.String(length=64), nullable=False),
        sa.Column("profile_id", sa.String(length=64), nullable=True),
        sa.Column("allocation_id", sa.String(length=40), nullable=False),
        sa.ForeignKeyConstraint(["allocation_id"], ["allocations.id"], name=op.f("fk_claims_allocation_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_claims")),
        sa.UniqueConstraint("host_id", "resource", name="uq_claims_resource"),
    )
    op.create_index(op.f("ix_claims_allocation_id"), "claims", ["allocation_id"], unique=False)
    op.create_table(
        "operation_steps",
        sa.Column("operation_id", sa.String(length=40), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("host_id", sa.String(length=64), nullable=False),
        sa.Column("record", sa.JSON(), nullable=False),
        sa.Column("describe", sa.String(), nullable=False),
        sa.Column("address", sa.String(length=64), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("error", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["operation_id"], ["operations.id"], name=op.f("fk_operation_steps_operation_id")),
        sa.PrimaryKeyConstraint("operation_id", "position", name=op.f("pk_operation_steps")),
    )
