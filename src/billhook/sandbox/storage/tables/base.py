"""What tables have in common."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Integer, MetaData, Table, Text

from billhook.sandbox.storage.types import Instant

__all__ = ["document", "metadata", "serial"]

metadata = MetaData()


def serial(name: str = "seq") -> Column[int]:
    """A primary key that grows with each row: the order of lists."""
    return Column(name, BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True)


def document(name: str, *columns: Any) -> Table:
    """A table of resources: each whole in `body`, as JSON of the wire; `columns` to look it up by."""
    return Table(
        name,
        metadata,
        serial(),
        Column("id", Text, nullable=False, unique=True),
        *columns,
        Column("created_at", Instant, nullable=False),
        Column("updated_at", Instant, nullable=False),
        Column("body", Text, nullable=False),
        sqlite_autoincrement=True,
    )
