"""Alembic's entry: runs the migrations on the connection that billhook.inbox.tables.revision hands over."""

from collections.abc import Collection, Mapping
from typing import Any

from alembic import context
from alembic.runtime.migration import MigrationContext, MigrationInfo
from sqlalchemy import null, update

from billhook.inbox.tables.schema import metadata, version

connection = context.config.attributes["connection"]


def record_oldest_compatible(
    ctx: MigrationContext, step: MigrationInfo, heads: Collection[Any], run_args: Mapping[str, Any]
) -> None:
    """Write what a migration says about older code; one that says nothing allows none."""
    del ctx, heads, run_args
    migration: Any = step.up_revision
    oldest = getattr(migration.module, "oldest_compatible", None)
    connection.execute(update(version).values(oldest_compatible=null() if oldest is None else oldest))


context.configure(
    connection=connection,
    target_metadata=metadata,
    version_table=version.name,
    version_table_schema=connection.dialect.identifier_preparer.schema_for_object(version),
    include_name=lambda name, kind, _parents: kind != "table" or name in metadata.tables,
    render_as_batch=True,
    on_version_apply=record_oldest_compatible,
)
with context.begin_transaction():
    context.run_migrations()
