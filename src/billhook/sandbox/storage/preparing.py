"""The sandbox's tables: made in an empty database, and in no other."""

from __future__ import annotations

import hashlib

from sqlalchemy import Connection, inspect
from sqlalchemy.schema import CreateIndex, CreateTable

from billhook.errors import ConfigError
from billhook.sandbox.storage import facts
from billhook.sandbox.storage.tables import access, metadata

__all__ = ["is_empty", "prepare"]

_FINGERPRINT = "tables"


def prepare(connection: Connection) -> None:
    """Make the tables, or see that they are those of this version; ConfigError for any other."""
    if is_empty(connection):
        # Without looking which are there: PostgreSQL would find those of other schemas, too.
        metadata.create_all(connection, checkfirst=False)
        facts.remember(connection, _FINGERPRINT, _fingerprint(connection))


def is_empty(connection: Connection) -> bool:
    """Are there no tables? False if they are the sandbox's own; ConfigError for any other."""
    inspector = inspect(connection)
    schema = inspector.default_schema_name  # in PostgreSQL the current one, and not all of the search path
    tables = inspector.get_table_names(schema)
    if not tables:
        return True
    ours = access.setting
    found = None
    if ours.name in tables and {one["name"] for one in inspector.get_columns(ours.name, schema)} == set(
        ours.columns.keys()
    ):
        found = facts.recall(connection, _FINGERPRINT)
    if found is None:
        raise ConfigError(
            "the sandbox's database holds tables of something else: give the sandbox one of its own, "
            "another file or database"
        )
    if found != _fingerprint(connection):
        raise ConfigError(
            "the sandbox's database was made by another version of billhook: give an empty one, "
            "or delete the file"
        )
    return False


def _fingerprint(connection: Connection) -> str:
    made = [str(CreateTable(table).compile(connection)) for table in metadata.sorted_tables]
    made += [
        str(CreateIndex(index).compile(connection))
        for table in metadata.sorted_tables
        for index in sorted(table.indexes, key=lambda index: str(index.name))
    ]
    return hashlib.sha256("\n".join(made).encode()).hexdigest()
