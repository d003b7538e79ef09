"""How the databases would execute the statements of a piece of code, beside many rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
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


def fill_unread(where: Path | str, number: int, event_type: str = "PingTest") -> None:
    """Store deliveries that no worker has read yet, in one statement; their bodies are {}."""
    named = {"event_type": f"'{event_type}'", "key": f"'{event_type} ' || CAST(n AS text)"}
    fill(where, number, body="{}", has_runs=False, source="'default'", state="'received'", **named)


def fill(
    where: Path | str,
    number: int,
    *,
    body: str = "",
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC),
    has_runs: bool = True,
    **columns: str,
) -> None:
    """Store deliveries with a run that has succeeded long ago; `columns` are other values in SQL, by `n`."""
    kind, zone = ("blob", "") if isinstance(where, Path) else ("bytea", "+00")
    columns = {
        "source": "'many'", "key": "CAST(n AS text)", "event_type": "'PingTest'", "headers": "'{}'",
        "body": f"CAST('{body}' AS {kind})", "state": "'done'",
        "received_at": f"'{at:%Y-%m-%d %H:%M:%S.%f}{zone}'", **columns,
    }  # fmt: skip
    change(
        where,
        f"INSERT INTO delivery ({', '.join(columns)}) "
        f"WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {number}) "
        f"SELECT {', '.join(columns.values())} FROM number",
    )
    if has_runs:
        change(
            where,
            "INSERT INTO run (delivery_id, handler, state, attempts, due_at, token, finished_at) SELECT id, "
            "'h0', CASE state WHEN 'dead' THEN 'dead' WHEN 'planned' THEN 'due' ELSE 'succeeded' END, 1, "
            "received_at, 1, CASE state WHEN 'planned' THEN NULL ELSE received_at END FROM delivery "
            "WHERE source = 'many' AND id > (SELECT coalesce(max(delivery_id), 0) FROM run)",
        )
