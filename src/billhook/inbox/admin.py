"""Looking at the inbox from outside the flow: pages, details, counts, the schema's version.

Reading takes no lock and goes in pages by id, so the receiver does not notice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, func, or_, select

from billhook.inbox import migrate
from billhook.inbox.clauses import among, in_state
from billhook.inbox.schema import delivery, failure, run
from billhook.inbox.states import DeliveryState, RunState
from billhook.inbox.store import Inbox
from billhook.inbox.views import Details, Failure, Listed, Run, Selection, Summary

__all__ = [
    "BATCH",
    "Details",
    "Failure",
    "Listed",
    "Run",
    "Selection",
    "Summary",
    "count",
    "counts",
    "details",
    "every",
    "handler_names",
    "ids",
    "is_busy",
    "listed",
    "page",
    "revision",
]

BATCH = 200


_SUMMARY = (
    delivery.c.id,
    delivery.c.source,
    delivery.c.key,
    delivery.c.event_type,
    delivery.c.state,
    delivery.c.received_at,
    delivery.c.signed_at,
    func.length(delivery.c.body).label("body_bytes"),
    select(func.min(run.c.twin_of))
    .where(run.c.delivery_id == delivery.c.id)
    .scalar_subquery()
    .label("twin_of"),
    delivery.c.conflict_of,
    delivery.c.sent_as,
)
_RUN = (
    run.c.id,
    run.c.handler,
    run.c.state,
    run.c.attempts,
    run.c.due_at,
    run.c.finished_at,
    run.c.last_error,
    run.c.order_key,
    run.c.twin_of,
)
_FAILURE = (failure.c.run_id, failure.c.attempt, failure.c.failed_at, failure.c.error, failure.c.traceback)


def page(inbox: Inbox, selection: Selection, limit: int, below: int | None = None) -> list[Summary]:
    """The newest of the selected first; `below` an id, to go on where a page ended."""
    query = select(*_SUMMARY).where(*selection.conditions()).order_by(delivery.c.id.desc()).limit(limit)
    if below is not None:
        query = query.where(delivery.c.id < below)
    with inbox.database.read() as connection:
        return [Summary(*row) for row in connection.execute(query)]


def listed(inbox: Inbox, summaries: Sequence[Summary]) -> list[Listed]:
    """The same with their errors and their runs, as they are now."""
    delivery_ids = [summary.id for summary in summaries]
    with inbox.database.read() as connection:
        wrong = select(delivery.c.id, delivery.c.error).where(
            among(delivery.c.id, delivery_ids), delivery.c.error.is_not(None)
        )
        errors: dict[int, str] = dict(map(tuple, connection.execute(wrong)))
        runs = _runs(connection, delivery_ids, {})
    return [Listed(one, errors.get(one.id), runs.get(one.id, [])) for one in summaries]


def handler_names(inbox: Inbox, newest: int = 50) -> list[str]:
    """The handlers with runs of the newest deliveries, so many of them."""
    found = listed(inbox, page(inbox, Selection(), newest))
    return sorted({each.handler for one in found for each in one.runs})


def is_busy(inbox: Inbox, now: datetime) -> bool:
    """Is anything to be read or to be called now, or being called?"""
    unread = select(delivery.c.id).where(in_state(delivery.c.state, DeliveryState.RECEIVED))
    # In these words, as the partial index has them.
    open_runs = select(run.c.id).where(in_state(run.c.state, RunState.DUE, RunState.RUNNING))
    now_due = open_runs.where(or_(run.c.due_at <= now, run.c.state == RunState.RUNNING.value))
    with inbox.database.read() as connection:
        return any(connection.execute(query.limit(1)).first() for query in (unread, now_due))


def count(inbox: Inbox, selection: Selection) -> int:
    """How many are selected."""
    with inbox.database.read() as connection:
        query = select(func.count()).select_from(delivery).where(*selection.conditions())
        found: int = connection.execute(query).scalar_one()
        return found


def counts(inbox: Inbox) -> dict[str, int]:
    """How many deliveries are in each state; every state is named."""
    with inbox.database.read() as connection:
        rows = connection.execute(select(delivery.c.state, func.count()).group_by(delivery.c.state))
        found: dict[str, int] = {state: int(number) for state, number in rows}
    return {state.value: found.get(state.value, 0) for state in DeliveryState}


def ids(inbox: Inbox, selection: Selection, batch: int = BATCH) -> Iterator[list[int]]:
    """The ids of the selected, oldest first, in batches; what comes meanwhile is left out."""
    with inbox.database.read() as connection:
        last = connection.execute(select(func.max(delivery.c.id))).scalar_one() or 0
    after = 0
    while True:
        query = _between(select(delivery.c.id).where(*selection.conditions()), after, last, batch)
        with inbox.database.read() as connection:
            found = list(connection.execute(query).scalars())
        if not found:
            return
        yield found
        after = found[-1]


def details(inbox: Inbox, delivery_ids: Sequence[int]) -> list[Details]:
    """These deliveries, oldest first; ids that there are not are passed over."""
    with inbox.database.read() as connection:
        query = select(*_SUMMARY, delivery.c.body, delivery.c.headers, delivery.c.error)
        rows = connection.execute(query.where(delivery.c.id.in_(delivery_ids)).order_by(delivery.c.id))
        found = list(rows.mappings())
        runs = _runs(connection, delivery_ids, _failures(connection, delivery_ids))
    return [_details(row, runs.get(row["id"], [])) for row in found]


def every(inbox: Inbox, selection: Selection) -> Iterator[Details]:
    """The selected with all that is known of them, oldest first, a batch in memory at a time."""
    for batch in ids(inbox, selection, BATCH // 4):
        yield from details(inbox, batch)


def revision(inbox: Inbox) -> str | None:
    """The schema's version, whichever it is; None without tables."""
    with inbox.database.write_unverified() as connection:
        return migrate.found_revision(connection)


def _between(query: Select[Any], after: int, last: int, limit: int) -> Select[Any]:
    return query.where(delivery.c.id > after, delivery.c.id <= last).order_by(delivery.c.id).limit(limit)


def _details(row: RowMapping, runs: list[Run]) -> Details:
    summary = Summary(**{name: row[name] for name in Summary.__slots__})
    return Details(summary, row["body"], json.loads(row["headers"]), row["error"], runs)


def _failures(connection: Connection, delivery_ids: Sequence[int]) -> dict[int, list[Failure]]:
    """The failed attempts by the id of their run, oldest first."""
    failures: dict[int, list[Failure]] = {}
    query = select(*_FAILURE).join(run, run.c.id == failure.c.run_id)
    of_these = query.where(among(run.c.delivery_id, delivery_ids)).order_by(failure.c.id)
    for run_id, *facts in connection.execute(of_these):
        failures.setdefault(run_id, []).append(Failure(*facts))
    return failures


def _runs(
    connection: Connection, delivery_ids: Sequence[int], failures: Mapping[int, list[Failure]]
) -> dict[int, list[Run]]:
    found: dict[int, list[Run]] = {}
    duties = select(run.c.delivery_id, *_RUN).where(among(run.c.delivery_id, delivery_ids)).order_by(run.c.id)
    for row in connection.execute(duties).mappings():
        own = {column.name: row[column.name] for column in _RUN}
        found.setdefault(row["delivery_id"], []).append(Run(**own, failures=failures.get(row["id"], [])))
    return found
