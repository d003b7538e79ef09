"""How the databases would execute the statements of a piece of code, beside many rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from billhook.inbox import Inbox
from support.inbox_view import change


@contextmanager
def listening(record: Callable[..., None], target: Any = Engine) -> Iterator[None]:
    """Have `record` called with each statement before it is executed, while the block lasts."""
    event.listen(target, "before_cursor_execute", record)
    try:
        yield
    finally:
        event.remove(target, "before_cursor_execute", record)


@contextmanager
def statements(inbox: Inbox) -> Iterator[list[str]]:
    """What the inbox's connections are asked during the block."""
    found: list[str] = []
    with inbox.database.read() as connection:
        engine = connection.engine
    with listening(lambda _connection, _cursor, statement, *_: found.append(statement), engine):
        yield found


def query_plans(inbox: Inbox, work: Callable[[], object]) -> list[str]:
    """The plan of each statement on runs, failures or deliveries that `work` executes, as text."""
    executed: list[tuple[str, Any]] = []
    with listening(lambda _connection, _cursor, *asked: executed.append(asked[:2])):
        work()
    explain = "EXPLAIN" if inbox.database.schema else "EXPLAIN QUERY PLAN"
    plans = []
    with inbox.database.read() as connection:
        for statement, parameters in executed:
            if re.search(r"[ .](run|failure|delivery)\b", statement):
                steps = connection.exec_driver_sql(f"{explain} {statement}", parameters)
                plans.append("\n".join(str(step[-1]) for step in steps))
    return plans


def fill_unread(
    where: Path | str, number: int, event_type: str = "PingTest", source: str = "default"
) -> None:
    """Store deliveries that no worker has read yet, in one statement; their bodies are {}."""
    body = "CAST('{}' AS blob)" if isinstance(where, Path) else "'{}'::bytea"
    change(
        where,
        "INSERT INTO delivery (source, key, event_type, body, headers, state, received_at) "
        f"WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {number}) "
        f"SELECT '{source}', '{event_type} ' || CAST(n AS text), '{event_type}', {body}, '{{}}', 'received', "
        "'2026-01-01 00:00:00.000000' FROM number",
    )


def fill(where: Path | str, number: int) -> None:
    """Store deliveries with a run that has succeeded long ago."""
    nothing = "CAST('' AS blob)" if isinstance(where, Path) else "''::bytea"
    change(
        where,
        "INSERT INTO delivery (source, key, event_type, body, headers, state, received_at) "
        f"WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {number}) "
        f"SELECT 'many', CAST(n AS text), 'PingTest', {nothing}, '{{}}', 'done', "
        "'2026-01-01 00:00:00.000000' FROM number",
    )
    change(
        where,
        "INSERT INTO run (delivery_id, handler, state, attempts, due_at, token, finished_at) "
        "SELECT id, 'h0', 'succeeded', 1, received_at, 1, received_at FROM delivery WHERE source = 'many'",
    )
