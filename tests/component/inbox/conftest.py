"""What holds for every statement of the inbox, whichever test executes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from billhook.inbox.postgres.driver import DeadlineConnection
from billhook.inbox.tables.schema import metadata, version
from support.inbox_view import close_inboxes

_TABLES = "|".join([*metadata.tables, version.name])
WITHOUT_SCHEMA = re.compile(
    rf"(?:\b(?:FROM|JOIN|INTO|UPDATE|TABLE|ON|REFERENCES)\s+|,\s*|::)(?:{_TABLES})\b(?![.\w(])"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where an inbox on SQLite may be."""
    return tmp_path / "billhook.db"


@pytest.fixture(autouse=True)
def inboxes_are_closed() -> Iterator[None]:
    """Close what a test opened, of a file that no fixture made too."""
    yield
    close_inboxes()


@pytest.fixture(autouse=True)
def each_statement_names_its_schema() -> Iterator[None]:
    """Fail the test if billhook executes a statement on PostgreSQL that leaves a table to the search_path."""
    found: list[str] = []

    def look(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, *_: Any) -> None:
        # Not what alembic makes of a migration: its transaction sets the search_path first.
        is_query = context.compiled is not None and not context.isddl
        if (
            is_query
            and isinstance(cursor.connection, DeadlineConnection)
            and WITHOUT_SCHEMA.search(statement)
        ):
            found.append(statement)

    event.listen(Engine, "before_cursor_execute", look)
    yield
    event.remove(Engine, "before_cursor_execute", look)
    assert found == []
