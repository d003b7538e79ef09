"""The schema's version: checked by every transaction, brought up to date by alembic when asked.

A migration may allow code of older revisions to store deliveries, so that an upgrade refuses none: until they
are restarted, the receivers of the older version go on, and its workers wait. See `version` in
billhook.inbox.schema.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, inspect, select

from billhook.errors import SchemaMismatch, UnreleasedSchema
from billhook.inbox.schema import FIRST_RELEASED, REVISION, version

__all__ = [
    "MIGRATIONS",
    "REVISION",
    "any_schema",
    "found_revision",
    "prepare",
    "require_known",
    "upgrade",
    "verify",
    "verify_opened",
]

logger = logging.getLogger("billhook.inbox")

MIGRATIONS = Path(__file__).parent / "migrations"

any_schema: ContextVar[bool] = ContextVar("any_schema", default=False)
"""True while an app is created only to upgrade its inbox: it must not refuse an old schema."""
_VERSION = f"SELECT version_num, oldest_writer FROM {version.name}"  # noqa: S608 - our own table


def found_revision(connection: Connection) -> str | None:
    """Return the revision of the inbox; None if it has no tables yet."""
    if not inspect(connection).has_table(version.name):
        return None
    return connection.execute(select(version.c.version_num)).scalar_one_or_none()


def verify(execute: Callable[[str], Any], *, storing: bool = False) -> None:
    """Raise SchemaMismatch unless the inbox is at the revision this code was written for.

    With `storing` also a newer one is good in which this code may store deliveries. `execute` is a method of
    a connection, of SQLAlchemy or the driver; it returns a cursor.
    """
    found: tuple[str, str | None] | None = execute(_VERSION).fetchone()
    revision, oldest_writer = found or (None, None)
    if revision == REVISION:
        return
    stores = revision is not None and oldest_writer is not None and oldest_writer <= REVISION < revision
    if not (storing and stores):
        raise SchemaMismatch(revision, REVISION, stores=stores)


def verify_opened(connection: Connection) -> None:
    """Raise SchemaMismatch unless this code may at least store deliveries; the database may be empty."""
    revision = found_revision(connection)
    if revision is None or revision < REVISION:
        require_known(revision)
        raise SchemaMismatch(revision, REVISION)
    try:
        verify(connection.exec_driver_sql)
    except SchemaMismatch as error:
        if not error.stores:
            raise
        logger.warning("%s", error)


def require_known(revision: str | None) -> None:
    """Raise SchemaMismatch for a revision that this code cannot upgrade, and would misread."""
    if revision is not None and revision < FIRST_RELEASED:
        raise UnreleasedSchema(revision, REVISION)
    if revision is not None and revision > REVISION:
        raise SchemaMismatch(revision, REVISION)


def prepare(connection: Connection) -> None:
    """Upgrade the inbox at the start of a process, unless it is newer and may be used as it is."""
    revision = found_revision(connection)
    if revision is not None and revision > REVISION:
        verify(connection.exec_driver_sql, storing=True)
    else:
        upgrade(connection)


def upgrade(connection: Connection) -> None:
    """Upgrade the inbox to REVISION inside the caller's transaction; one that is newer is refused."""
    revision = found_revision(connection)
    if revision == REVISION:
        return
    require_known(revision)
    # Imported here: alembic takes 0.8 s, which only an upgrade should cost.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, REVISION)
