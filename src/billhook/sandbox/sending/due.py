"""What is to be sent now, and what is written down when it was."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import func, insert, select, update

from billhook.sandbox.sending.addresses import destination_of
from billhook.sandbox.sending.outcome import Attempt
from billhook.sandbox.storage.tables.sending import attempt, delivery, raised, subscription

if TYPE_CHECKING:
    from billhook.sandbox.transaction import Transaction

__all__ = ["Due", "count_due", "find_due", "next_due_at", "settle"]

JITTER = 0.1
"""A wait is up to so much shorter or longer than the schedule says."""


@dataclass(frozen=True, slots=True)
class Due:
    """A delivery whose time has come, with what is in it."""

    id: str
    seq: int
    subscription_id: str
    url: str
    event_type: str
    body: bytes
    attempts: int
    due_at: datetime
    held_up_by: str | None
    """The faults that put off what is now its next attempt."""

    @property
    def destination(self) -> str:
        return destination_of(self.url)


def find_due(
    tx: Transaction, free: int, busy: Mapping[str, int], sent: Collection[str], most_each: int
) -> list[Due]:
    """At most `free` deliveries, oldest first, without those in `sent`, which are under way.

    No destination gets more than `most_each` at once; `busy` says how many it has.
    """
    found: list[Due] = []
    waiting = select(delivery.c.seq).where(
        delivery.c.url == subscription.c.callback_url, delivery.c.due_at <= tx.real_now
    )
    urls = select(subscription.c.callback_url).where(waiting.exists()).distinct()
    for url in tx.connection.execute(urls).scalars():
        if busy.get(destination_of(url), 0) < most_each:
            found += _due_at(tx, url, 2 * most_each)
    chosen: list[Due] = []
    taken = dict(busy)
    for due in sorted(found, key=lambda one: (one.due_at, one.seq)):
        number = taken.get(due.destination, 0)
        if due.id not in sent and number < most_each and len(chosen) < free:
            taken[due.destination] = number + 1
            chosen.append(due)
    return chosen


def next_due_at(tx: Transaction) -> datetime | None:
    """When something falls due that is not so yet, by the machine's time."""
    query = select(func.min(delivery.c.due_at)).where(delivery.c.due_at > tx.real_now)
    return tx.connection.execute(query).scalar()


def count_due(tx: Transaction) -> int:
    """How many are due now; what is being sent counts."""
    query = select(func.count()).select_from(delivery).where(delivery.c.due_at <= tx.real_now)
    return tx.connection.execute(query).scalar_one()


def settle(tx: Transaction, due: Due, made: Sequence[Attempt]) -> None:
    """Write the attempts down, and when to come again unless one was a success."""
    number = tx.connection.execute(
        select(func.count()).select_from(attempt).where(attempt.c.delivery_id == due.id)
    ).scalar_one()
    for one in made:
        number += 1
        faults = ", ".join(filter(None, [due.held_up_by, one.fault])) or None
        tx.connection.execute(
            insert(attempt).values(
                delivery_id=due.id, number=number, started_at=one.started_at, milliseconds=one.milliseconds,
                status=one.status, error=one.problem, fault=faults, answer=one.answer,
            )
        )  # fmt: skip
    schedule = tx.options.retry_seconds
    state, due_at = "failed", None
    if any(one.problem is None for one in made):
        state = "delivered"
    elif due.attempts < len(schedule):
        state, due_at = "pending", tx.real_now + _jittered(schedule[due.attempts], due, tx.options.dice)
    # One that was cancelled meanwhile stays so.
    tx.connection.execute(
        update(delivery)
        .where(delivery.c.id == due.id, delivery.c.state == "pending")
        .values(state=state, due_at=due_at, attempts=due.attempts + 1, held=False, held_up_by=None)
    )
    tx.connection.execute(
        update(delivery)
        .where(delivery.c.held, delivery.c.url == due.url, delivery.c.seq < due.seq)
        .values(held=False, due_at=tx.real_now)
    )


def _due_at(tx: Transaction, url: str, limit: int) -> list[Due]:
    rows = tx.connection.execute(
        select(
            delivery.c.id, delivery.c.seq, delivery.c.subscription_id, delivery.c.url, raised.c.event_type,
            raised.c.body, delivery.c.attempts, delivery.c.due_at, delivery.c.held_up_by,
        )
        .join(raised, raised.c.id == delivery.c.raised_id)
        .where(delivery.c.url == url, delivery.c.due_at <= tx.real_now)
        .order_by(delivery.c.due_at, delivery.c.seq)
        .limit(limit)
    )  # fmt: skip
    return [Due(*row) for row in rows]


def _jittered(seconds: float, due: Due, seed: int | None) -> timedelta:
    dice = random.Random(None if seed is None else f"{seed}:{due.seq}:{due.attempts}")  # noqa: S311
    return timedelta(seconds=seconds * dice.uniform(1 - JITTER, 1 + JITTER))
