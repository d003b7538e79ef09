"""What the sandbox remembers of itself, by name: its clock, its keys, the fingerprint of its tables."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select, update

from billhook.sandbox.storage.tables.access import setting

__all__ = ["forget", "recall", "remember"]


def recall(connection: Connection, name: str) -> str | None:
    """What is kept under this name."""
    return connection.execute(select(setting.c.value).where(setting.c.name == name)).scalar()


def remember(connection: Connection, name: str, value: str) -> None:
    """Keep `value` under this name, instead of what was there."""
    known = update(setting).where(setting.c.name == name).values(value=value)
    if connection.execute(known).rowcount == 0:
        connection.execute(insert(setting).values(name=name, value=value))


def forget(connection: Connection, name: str) -> None:
    """Keep nothing under this name."""
    connection.execute(delete(setting).where(setting.c.name == name))
