"""The schema's version: checked at every start, brought up to date by alembic when asked."""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path

from sqlalchemy import Connection, inspect, select

from billhook.errors import SchemaMismatch, UnreleasedSchema
from billhook.inbox.schema import FIRST_RELEASED, REVISION, version

__all__ = ["MIGRATIONS", "any_schema", "found_revision", "require_known", "upgrade", "verify"]

MIGRATIONS = Path(__file__).parent / "migrations"

any_schema: ContextVar[bool] = ContextVar("any_schema", default=False)
"""True while an app is created only to upgrade its inbox: it must not refuse an old schema."""


def found_revision(connection: Connection) -> str | None:
    """Return the revision of the inbox; None if it has no tables yet."""
    if not inspect(connection).has_table(version.name):
        return None
    return connection.execute(select(version.c.version_num)).scalar_one_or_none()


def verify(connection: Connection) -> None:
    """Raise SchemaMismatch unless the inbox is at the revision this code was written for."""
    revision = found_revision(connection)
    if revision is not None:
        require_known(revision)
    if revision != REVISION:
        raise SchemaMismatch(revision, REVISION)


def require_known(revision: str) -> None:
    """Raise SchemaMismatch for a revision that this code cannot upgrade, and would misread."""
    if revision < FIRST_RELEASED:
        raise UnreleasedSchema(revision, REVISION)
    if revision > REVISION:
        raise SchemaMismatch(revision, REVISION)


def upgrade(connection: Connection) -> None:
    """Upgrade the inbox to REVISION inside the caller's transaction; one that is newer is refused."""
    revision = found_revision(connection)
    if revision == REVISION:
        return
    if revision is not None:
        require_known(revision)
    # Imported here: alembic takes 0.8 s, which only an upgrade should cost.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, REVISION)
