"""Runs of an inbox without an app, at times that a test gives in seconds after noon."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from billhook.inbox import Claim, HandlerLimits, Inbox, RunPlan, RunResult, RunState
from support.inbox_view import NOON, incoming

LEASE = timedelta(seconds=30)
OWNER = "host:1"


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def planned(
    inbox: Inbox, *handlers: str, key: str = "k", seconds: float = 0, error: str | None = None
) -> int:
    """Store a delivery and plan it for these handlers; its id."""
    delivery_id = inbox.put(incoming(key)).delivery_id
    with inbox.transaction(OWNER) as transaction:
        transaction.plan([RunPlan(delivery_id, handlers, error)], at(seconds))
    return delivery_id


def claim(
    inbox: Inbox,
    limit: int = 10,
    seconds: float = 0,
    limits: Mapping[str, HandlerLimits] | None = None,
    *,
    owner: str = OWNER,
    **options: Any,
) -> list[Claim]:
    """Claim runs as a worker does, some seconds after noon."""
    with inbox.transaction(owner, limits or {}) as transaction:
        return transaction.claim(limit, at(seconds), at(seconds) + LEASE, **options)


def settle(
    inbox: Inbox,
    claims: Iterable[Claim],
    state: RunState = RunState.SUCCEEDED,
    seconds: float = 0,
    **facts: Any,
) -> set[tuple[int, int]]:
    """Store the results of claimed runs, which their handlers had some seconds after noon."""
    facts["error"] = None if state is RunState.SUCCEEDED else "e"
    results = [result_of(one, state, seconds, **facts) for one in claims]
    with inbox.transaction(OWNER) as transaction:
        return transaction.settle(results)


def result_of(
    one: Claim,
    state: RunState = RunState.SUCCEEDED,
    seconds: float = 1,
    *,
    due: float | None = None,
    **facts: Any,
) -> RunResult:
    """The result of a claimed run, which its handler had some seconds after noon."""
    if due is not None:
        facts["due_at"] = at(due)
    ids = (one.run_id, one.token, one.delivery.delivery_id, one.attempt)
    return RunResult(*ids, state, at(seconds), ordered=one.ordered, **facts)
