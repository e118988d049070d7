"""Alembic's entry: runs the migrations on the connection it is handed, in that connection's transaction."""

from __future__ import annotations

from alembic import context

from vgpumgr.store.models import Base

context.configure(
    connection=context.config.attributes["connection"], target_metadata=Base.metadata, render_as_batch=True
)
context.run_migrations()
