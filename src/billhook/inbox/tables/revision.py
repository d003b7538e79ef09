"""Which version of the tables an inbox has: checked by every transaction, upgraded by alembic when asked.

A migration may allow code of older revisions to store deliveries, so that an upgrade refuses none: until they
are restarted, the receivers of the older version go on, and its workers wait. See the table `version`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Set
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, inspect, select

from billhook.errors import SchemaMismatch, UnreleasedSchema
from billhook.inbox.tables.dialect import dialect_of, place_of
from billhook.inbox.tables.schema import metadata, version
from billhook.inbox.tables.sql import name_of

logger = logging.getLogger("billhook.inbox")

REVISION = "0001"
"""The migration that this code was written for; with a newer one it stores deliveries at most."""
MIGRATIONS = Path(__file__).parents[1] / "migrations"

any_schema: ContextVar[bool] = ContextVar("any_schema", default=False)
"""True while an app is created only to upgrade its inbox: it must not refuse an old schema."""
MAY_STORE = (
    f"SELECT 1 FROM {version.name} "  # noqa: S608 - our own table
    f"WHERE '{REVISION}' BETWEEN coalesce(oldest_compatible, version_num) AND version_num"
)
"""A row if this code may store deliveries; the same as `verify` with `storing` in one statement."""


_NEEDED = frozenset((table.name, column.name) for table in metadata.sorted_tables for column in table.c)
_OF_RELEASES = frozenset({(version.name, "released")})
"""A column that the inbox of every release has. Inboxes from before the first release lack it, though they
have the same revision numbers."""


def found_revision(connection: Connection) -> str | None:
    """Return the revision of the inbox; None if it has no tables yet."""
    schema = connection.dialect.identifier_preparer.schema_for_object(version)
    if not inspect(connection).has_table(version.name, schema):
        return None
    return connection.execute(select(version.c.version_num)).scalar_one_or_none()


def verify(execute: Callable[[str], Any], *, storing: bool = False, table: str = version.name) -> None:
    """Raise SchemaMismatch unless the inbox is at the revision this code was written for.

    With `storing` also a newer one is good in which this code may store deliveries. `execute` is a method of
    a connection, of SQLAlchemy or the driver; it returns a cursor. `table` is the name of `version` there.
    """
    query = f"SELECT version_num, oldest_compatible FROM {table}"  # noqa: S608 - our own table
    found: tuple[str, str | None] | None = execute(query).fetchone()
    revision, oldest_compatible = found or (None, None)
    if revision == REVISION:
        return
    stores = (
        revision is not None and oldest_compatible is not None and oldest_compatible <= REVISION < revision
    )
    if not (storing and stores):
        raise SchemaMismatch(revision, REVISION, stores=stores)


def verify_opened(connection: Connection) -> None:
    """Raise SchemaMismatch unless this code may at least store deliveries; the database may be empty."""
    revision = _released_revision(connection)
    if revision is None or revision < REVISION:
        raise SchemaMismatch(revision, REVISION)
    try:
        verify(connection.exec_driver_sql, table=name_of(connection, version))
    except SchemaMismatch as error:
        if not error.stores:
            raise
        logger.warning("%s", error)


def _columns(connection: Connection) -> set[tuple[str, str]]:
    schema = connection.dialect.identifier_preparer.schema_for_object(version)
    found = connection.execute(dialect_of(connection).every_column, {"schema": schema})
    return {(table, column) for table, column in found}


def _require_released(revision: str, columns: Set[tuple[str, str]], place: str) -> None:
    """Raise UnreleasedSchema unless these are the columns of a release: the revision does not say it."""
    missing = (_NEEDED if revision == REVISION else _OF_RELEASES) - columns
    if missing:
        raise UnreleasedSchema(place, revision, REVISION, ".".join(min(missing)))


def _released_revision(connection: Connection) -> str | None:
    """Return the revision of the inbox; None if it has no tables yet. Raises UnreleasedSchema."""
    revision = found_revision(connection)
    if revision is not None:
        _require_released(revision, _columns(connection), place_of(connection))
    return revision


def require_upgradable(revision: str, columns: Set[tuple[str, str]], place: str) -> None:
    """Raise SchemaMismatch for an inbox, at a place, that this code cannot upgrade and would misread."""
    _require_released(revision, columns, place)
    if revision > REVISION:
        raise SchemaMismatch(revision, REVISION)


def upgradable_revision(connection: Connection) -> str | None:
    """Return the revision of an inbox that may be upgraded, None without tables. Raises SchemaMismatch."""
    revision = found_revision(connection)
    if revision is not None:
        require_upgradable(revision, _columns(connection), place_of(connection))
    return revision


def prepare_schema(connection: Connection) -> None:
    """Upgrade the inbox at the start of a process, unless it is newer and may be used as it is."""
    revision = _released_revision(connection)
    if revision is not None and revision > REVISION:
        verify(connection.exec_driver_sql, storing=True, table=name_of(connection, version))
    else:
        upgrade_schema(connection)


def upgrade_schema(connection: Connection) -> None:
    """Upgrade the inbox to REVISION inside the caller's transaction; one that is newer is refused."""
    if upgradable_revision(connection) == REVISION:
        return
    # Imported here: alembic takes 0.8 s, which only an upgrade should cost.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, REVISION)
