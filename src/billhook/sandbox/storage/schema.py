"""Creating the sandbox's tables in an empty database, and refusing any other database."""

from __future__ import annotations

import hashlib

from sqlalchemy import Connection, inspect
from sqlalchemy.schema import CreateIndex, CreateTable

from billhook.errors import ConfigError
from billhook.sandbox.storage import key_value
from billhook.sandbox.storage.tables import entities, metadata

__all__ = ["is_empty", "prepare"]

_FINGERPRINT = "tables"


def prepare(connection: Connection) -> None:
    """Create the tables in an empty database; ConfigError for tables of another version or program."""
    if is_empty(connection):
        # A check would find tables of other schemas on PostgreSQL's search path.
        metadata.create_all(connection, checkfirst=False)
        key_value.put(connection, _FINGERPRINT, _fingerprint(connection))


def is_empty(connection: Connection) -> bool:
    """Return True if there are no tables; ConfigError if they are not those of this version."""
    inspector = inspect(connection)
    schema = inspector.default_schema_name  # on PostgreSQL the first of the search path
    tables = inspector.get_table_names(schema)
    if not tables:
        return True
    ours = entities.setting
    found = None
    # Compared by its columns: another program may have a table of this name.
    if ours.name in tables and {one["name"] for one in inspector.get_columns(ours.name, schema)} == set(
        ours.columns.keys()
    ):
        found = key_value.get(connection, _FINGERPRINT)
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
    # The DDL itself: any change of a table or an index is another version.
    made = [str(CreateTable(table).compile(connection)) for table in metadata.sorted_tables]
    made += [
        str(CreateIndex(index).compile(connection))
        for table in metadata.sorted_tables
        for index in sorted(table.indexes, key=lambda index: str(index.name))
    ]
    return hashlib.sha256("\n".join(made).encode()).hexdigest()
