"""Runs of an inbox without an app, at times that a test gives in seconds after noon."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from billhook.inbox import Claim, HandlerLimits, Inbox, RunOptions, RunPlan, RunResult, RunState
from support.inbox_view import NOON, incoming

LEASE = timedelta(seconds=30)
OWNER = "host:1"


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def plan(inbox: Inbox, *plans: RunPlan, seconds: float = 0, owner: str = OWNER) -> list[int]:
    """Plan deliveries some seconds after noon; the ids of those that nobody else had planned."""
    with inbox.transaction(owner) as transaction:
        return transaction.plan(list(plans), at(seconds))


def planned(
    inbox: Inbox,
    *handlers: str,
    key: str = "k",
    seconds: float = 0,
    error: str | None = None,
    options: RunOptions | None = None,
    identifiers: tuple[str, ...] = (),
    **facts: Any,
) -> int:
    """Store a delivery and plan it for these handlers; its id. `facts` are those of `incoming`."""
    delivery_id = inbox.put(incoming(key, **facts)).delivery_id
    of_handlers = dict.fromkeys(handlers, options) if options else {}
    plan(
        inbox,
        RunPlan(delivery_id, handlers, error, options=of_handlers, identifiers=identifiers),
        seconds=seconds,
    )
    return delivery_id


def claim(
    inbox: Inbox,
    limit: int = 10,
    seconds: float = 0,
    limits: Mapping[str, HandlerLimits] | None = None,
    *,
    owner: str = OWNER,
    lease: timedelta = LEASE,
    **options: Any,
) -> list[Claim]:
    """Claim runs as a worker does, some seconds after noon."""
    with inbox.transaction(owner, limits or {}) as transaction:
        return transaction.claim(limit, at(seconds), at(seconds) + lease, **options)


def settle(
    inbox: Inbox,
    claims: Iterable[Claim],
    state: RunState = RunState.SUCCEEDED,
    seconds: float = 0,
    *,
    owner: str = OWNER,
    **facts: Any,
) -> set[tuple[int, int]]:
    """Store the results of claimed runs, which their handlers had some seconds after noon."""
    facts.setdefault("error", None if state is RunState.SUCCEEDED else "e")
    results = [result_of(one, state, seconds, **facts) for one in claims]
    with inbox.transaction(owner) as transaction:
        return transaction.settle(results)


def handled(inbox: Inbox, key: str = "k", seconds: float = 0, handler: str = "h", **facts: Any) -> int:
    """Store a delivery, plan it and have its handler succeed, all at one time; its id."""
    delivery_id = planned(inbox, handler, key=key, seconds=seconds, at=at(seconds), **facts)
    settle(inbox, claim(inbox, 1, seconds, only=delivery_id), seconds=seconds)
    return delivery_id


def failed(
    inbox: Inbox,
    key: str,
    seconds: float = 0,
    state: RunState = RunState.DEAD,
    *,
    handler: str = "h",
    group: str | None = "bug",
    error: str,
) -> int:
    """Store a delivery whose handler fails at once; its id."""
    delivery_id = planned(inbox, handler, key=key, seconds=seconds, at=at(seconds))
    claims = claim(inbox, 1, seconds, only=delivery_id)
    due = seconds + 60 if state is RunState.DUE else None
    facts = {"error": error, "traceback": f"Traceback\n{error}", "place": group and "shop.py:7 in book"}
    settle(inbox, claims, state, seconds, due=due, group=group, **facts)
    return delivery_id


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
    return one.ended(state, at(seconds), **facts)


def store_due(inbox: Inbox, count: int, *handlers: str) -> None:
    """Store so many deliveries with a run of each handler, due now."""
    now = datetime.now(UTC)
    for first in range(0, count, 200):
        ids = inbox.database.insert_new([incoming(f"msg_{first + n}") for n in range(200)])
        with inbox.transaction("planner") as transaction:
            transaction.plan([RunPlan(delivery_id, handlers) for delivery_id in ids], now)
