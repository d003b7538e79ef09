"""Deliveries that failed by an issue, and deliveries that its handler handled, to compare what they hold.

Read are the newest of both, bounded in number and in bytes. What their bodies say is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, func, select

from billhook.inbox.inbox import Inbox
from billhook.inbox.tables.handler_names import has_name_of
from billhook.inbox.tables.schema import DEAD_RUN, delivery, failure, release, run
from billhook.inbox.tables.sql import in_values
from billhook.inbox.tables.states import RunState
from billhook.inbox.watching.issues import Issue
from billhook.inbox.watching.occurrences import IssueKind

COMPARED = 200
"""How many deliveries of each side are compared at most."""
_ATTEMPTS_READ = 4 * COMPARED
"""How many of the newest failed attempts are read: several may be of one delivery."""
_LOOKED_BACK = 200_000
"""In how many deliveries before the newest failed one successful ones are looked for, by an index."""
LARGEST_BODY = 64 * 1024
"""The size in bytes above which a body is not read."""
MOST_BYTES = 1024 * 1024
"""How many bytes of bodies are read of each side, the newest first."""


class ComparedDelivery(NamedTuple):
    """A delivery, and where its handler was called for it. `body` is None if it is not read, or pruned."""

    event_type: str
    source: str
    release: str | None
    host: str | None
    body: bytes | None


@dataclass(frozen=True, slots=True)
class ComparedDeliveries:
    """The newest deliveries that failed by an issue, and the newest that the handler handled."""

    failed: Sequence[ComparedDelivery]
    succeeded: Sequence[ComparedDelivery]


def read_compared(inbox: Inbox, one: Issue) -> ComparedDeliveries:
    """Return what to compare of an issue of failures or of dead runs; nothing of another kind.

    Erased deliveries are left out.
    """
    if one.handler is None:
        return ComparedDeliveries((), ())
    with inbox.database.read() as connection:
        calls: dict[int, tuple[str | None, int | None]] = {}
        for delivery_id, worker, release_id in connection.execute(_failed(one)):
            if len(calls) < COMPARED:
                calls.setdefault(delivery_id, (worker, release_id))
        failed = _deliveries(connection, calls)
        if not failed:
            return ComparedDeliveries((), ())
        succeeded = connection.execute(_succeeded(one, above=max(calls) - _LOOKED_BACK))
        calls = {delivery_id: (worker, release_id) for delivery_id, worker, release_id in succeeded}
        return ComparedDeliveries(failed, _deliveries(connection, calls))


def _failed(one: Issue) -> Select[Any]:
    """Select the newest deliveries that failed, with the worker and the release of each attempt."""
    if one.kind is IssueKind.DEAD:
        dead = select(run.c.delivery_id, run.c.worker, run.c.release_id)
        dead = dead.where(DEAD_RUN, has_name_of(run.c.handler, one.subject))
        return dead.order_by(run.c.finished_at.desc()).limit(COMPARED)
    attempts = select(run.c.delivery_id, failure.c.worker, failure.c.release_id)
    attempts = attempts.join(run, run.c.id == failure.c.run_id).where(failure.c.fingerprint == one.id)
    return attempts.order_by(failure.c.id.desc()).limit(_ATTEMPTS_READ)


def _succeeded(one: Issue, above: int) -> Select[Any]:
    """Select the newest deliveries that the handler handled at the first attempt: none of them has failed."""
    handled = select(run.c.delivery_id, run.c.worker, run.c.release_id).where(
        run.c.delivery_id > above,
        has_name_of(run.c.handler, one.subject),
        run.c.state == RunState.SUCCEEDED.value,
        run.c.attempts == 1,
        run.c.replays == 0,
    )
    return handled.order_by(run.c.delivery_id.desc()).limit(COMPARED)


def _deliveries(
    connection: Connection, calls: dict[int, tuple[str | None, int | None]]
) -> list[ComparedDelivery]:
    """Return deliveries with their bodies, by the worker and the release that each was handled by."""
    sizes = select(delivery.c.id, delivery.c.event_type, delivery.c.source, func.length(delivery.c.body))
    sizes = sizes.where(in_values(delivery.c.id, sorted(calls)), delivery.c.digest.is_not(None))
    rows = connection.execute(sizes.order_by(delivery.c.id.desc())).all()
    bodies = select(delivery.c.id, delivery.c.body)
    chosen = sorted(_within_limits((row[0], row[3]) for row in rows))
    bodies_by_id = dict(map(tuple, connection.execute(bodies.where(in_values(delivery.c.id, chosen)))))
    used = sorted({release_id for _, release_id in calls.values() if release_id is not None})
    named = select(release.c.id, release.c.name).where(in_values(release.c.id, used))
    releases = dict(map(tuple, connection.execute(named)))
    found = []
    for delivery_id, event_type, source, _ in rows:
        worker, release_id = calls[delivery_id]
        # An owner is host, process id and a random part: see billhook.basics.concurrency.
        host = None if worker is None else worker.split(":", 1)[0]
        name = releases.get(release_id) or None
        found.append(ComparedDelivery(event_type, source, name, host, bodies_by_id.get(delivery_id)))
    return found


def _within_limits(sizes: Iterator[tuple[int, int]]) -> Iterator[int]:
    """Yield the ids of the deliveries whose bodies are read; a pruned one is empty."""
    total = 0
    for delivery_id, size in sizes:
        if 0 < size <= LARGEST_BODY and total + size <= MOST_BYTES:
            total += size
            yield delivery_id
