"""Alembic entry point: migrates over the connection that `inline_core.runs.migrate` hands it."""

from alembic import context

from inline_core.runs.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transactional_ddl=False,
)
context.run_migrations()
