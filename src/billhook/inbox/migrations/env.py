"""Alembic's entry: runs the migrations on the connection that billhook.inbox.migrate hands over."""

from alembic import context

from billhook.inbox.schema import metadata, version

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=version.name,
    include_name=lambda name, kind, _parents: kind != "table" or name in metadata.tables,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
