"""Alembic's entry: run the migrations on the connection that the hub hands over, in its transaction."""

from __future__ import annotations

from alembic import context

from fleet_manager.hub.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
