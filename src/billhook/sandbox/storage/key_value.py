"""Named values about the sandbox itself: the clock's offset, keys and tokens."""

from __future__ import annotations

import sqlalchemy
from sqlalchemy import Connection, insert, select

from billhook.sandbox.storage.tables.billing import setting


def get(connection: Connection, name: str) -> str | None:
    """Return the value stored under `name`; None if there is none."""
    return connection.execute(select(setting.c.value).where(setting.c.name == name)).scalar()


def put(connection: Connection, name: str, value: str) -> None:
    """Store `value` under `name`, replacing another."""
    connection.execute(insert(setting).prefix_with("OR REPLACE").values(name=name, value=value))


def delete(connection: Connection, name: str) -> None:
    """Delete the value under `name`, if any."""
    connection.execute(sqlalchemy.delete(setting).where(setting.c.name == name))
