"""What an inbox has counted, and the closing of all that may be closed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from billhook.inbox import Claim, HandlerLimits, Inbox, RunResult, RunState
from billhook.inbox.overview import read_totals
from support.inbox_view import NOON

LEASE = timedelta(seconds=30)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def claim(
    inbox: Inbox, limit: int = 10, seconds: float = 0, limits: Mapping[str, HandlerLimits] | None = None
) -> list[Claim]:
    """Claim runs as a worker does, some seconds after noon."""
    with inbox.transaction("host:1", limits or {}) as transaction:
        return transaction.claim(limit, at(seconds), at(seconds) + LEASE)


def settle(
    inbox: Inbox,
    claims: Iterable[Claim],
    state: RunState = RunState.SUCCEEDED,
    seconds: float = 0,
    **facts: Any,
) -> None:
    """Store the results of claimed runs, which their handlers had some seconds after noon."""
    facts["error"] = None if state is RunState.SUCCEEDED else "e"
    results = [result_of(one, state, seconds, **facts) for one in claims]
    with inbox.transaction("host:1") as transaction:
        transaction.settle(results)


def result_of(one: Claim, state: RunState, seconds: float, **facts: Any) -> RunResult:
    """The result of a claimed run, which its handler had some seconds after noon."""
    ids = (one.run_id, one.token, one.delivery.delivery_id, one.attempt)
    return RunResult(*ids, state, at(seconds), **facts)


def totals(inbox: Inbox) -> Counter[tuple[str, str, str]]:
    """What happened since the inbox was made, by event type, handler and what, as metrics have it."""
    numbers: Counter[tuple[str, str, str]] = Counter()
    for key, sums in read_totals(inbox).items():
        numbers[key.event_type, key.handler, key.what] += sums.number
    return numbers


def close(inbox: Inbox, now: datetime) -> None:
    """Close all that can be closed: on PostgreSQL the first call notes it."""
    inbox.close_counts(now)
    while inbox.close_counts(now):
        pass
