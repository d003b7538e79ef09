"""How the databases would execute the statements of a piece of code."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Engine, event

from billhook.inbox import Inbox


def query_plans(inbox: Inbox, work: Callable[[], object]) -> list[str]:
    """The plan of each statement on runs or deliveries that `work` executes, as text."""
    executed = []

    def record(_connection, _cursor, statement, parameters, *_):
        executed.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", record)
    try:
        work()
    finally:
        event.remove(Engine, "before_cursor_execute", record)
    explain = "EXPLAIN" if inbox.database.is_remote else "EXPLAIN QUERY PLAN"
    plans = []
    with inbox.database.read() as connection:
        for statement, parameters in executed:
            if " run" in statement or " delivery" in statement:
                steps = connection.exec_driver_sql(f"{explain} {statement}", parameters)
                plans.append("\n".join(str(step[-1]) for step in steps))
    return plans
