"""Marks that something rising passes: tiers, and percentages that subscriptions have set.

What was passed is told from where it stood and where it stands. The highest that it stood in a cycle is what
is remembered, so nothing is announced twice in one, however often it falls and rises again.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_DOWN, Decimal, localcontext
from fractions import Fraction

from sqlalchemy import delete, insert, select

from billhook.sandbox.billing.exact import EXACT, ZERO, bounded
from billhook.sandbox.billing.terms import Tier
from billhook.sandbox.storage.tables.credit import reached
from billhook.sandbox.storage.tables.sending import subscription
from billhook.sandbox.transaction import Transaction

__all__ = [
    "DEFAULT_THRESHOLD",
    "MOST_AT_ONCE",
    "Watch",
    "exceeds_final_tier",
    "highest",
    "marks_passed",
    "percent",
    "remember",
    "tiers_entered",
    "watches",
]

DEFAULT_THRESHOLD = Decimal(80)
"""Percent, for a subscription that sets none."""
MOST_AT_ONCE = 100
"""Of more recurring marks passed by one jump only the last are announced."""

_HUNDREDTH = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class Watch:
    """What a subscription waits for: a percentage, and then each further `recurring` points."""

    threshold: Decimal = DEFAULT_THRESHOLD
    recurring: Decimal | None = None
    subscription_id: str | None = None


def tiers_entered(tiers: Sequence[Tier], before: Decimal, after: Decimal) -> list[tuple[int, Decimal]]:
    """The tiers, numbered from 1, that usage came into, and the usage beyond which each begins."""
    borders = [(n, tier.up_to) for n, tier in enumerate(tiers[:-1], 2) if tier.up_to is not None]
    return [(n, border) for n, border in borders if before <= border < after]


def exceeds_final_tier(tiers: Sequence[Tier], before: Decimal, after: Decimal) -> bool:
    """Did usage go beyond the last tier? Never, if that has no end."""
    end = tiers[-1].up_to if tiers else None
    return end is not None and before <= end < after


def marks_passed(
    watching: Iterable[Watch], whole: Decimal, before: Decimal, after: Decimal
) -> list[tuple[Decimal, list[str]]]:
    """The percentages of `whole` that were reached, rising, each with the ids of who waited for it."""
    if whole <= 0 or after <= before:
        return []
    was, now = (Fraction(each) * 100 / Fraction(whole) for each in (before, after))
    passed: dict[Decimal, list[str]] = defaultdict(list)
    for watch in watching:
        for mark in _marks(watch, was, now):
            passed[mark] += [watch.subscription_id] if watch.subscription_id else []
    return sorted(passed.items())


def percent(part: Decimal, whole: Decimal) -> Decimal:
    """So many hundredths of `whole`, to two places, rounded down: 79.999 % is not 80 %. 0 of nothing."""
    if whole <= 0:
        return ZERO
    with localcontext(EXACT):
        return (part.scaleb(2) / whole).quantize(_HUNDREDTH, rounding=ROUND_DOWN)


def watches(tx: Transaction, event_type: str) -> list[Watch]:
    """What the subscriptions to an event type wait for; without any, the usual threshold, for the log.

    A recurring threshold alone is the first one as well: 25 means 25, 50, 75, 100.
    """
    rows = tx.connection.execute(
        select(subscription.c.id, subscription.c.threshold, subscription.c.recurring_threshold).where(
            subscription.c.event_type == event_type
        )
    ).all()
    found = [
        Watch(
            threshold=next(bounded(mark) for mark in (*row[1:], DEFAULT_THRESHOLD) if mark is not None),
            recurring=None if row.recurring_threshold is None else bounded(row.recurring_threshold),
            subscription_id=row.id,
        )
        for row in rows
    ]
    return found or [Watch()]


def highest(tx: Transaction, subject: str, cycle_start: datetime) -> tuple[Decimal, Decimal]:
    """The most units and the most money that `subject` has stood at in this cycle."""
    row = tx.connection.execute(
        select(reached.c.units, reached.c.money).where(
            reached.c.subject == subject, reached.c.cycle_start == cycle_start
        )
    ).first()
    return (ZERO, ZERO) if row is None else (row.units, row.money)


def remember(tx: Transaction, subject: str, cycle_start: datetime, units: Decimal, money: Decimal) -> None:
    """Put down how high it stands now; what was of another cycle goes."""
    tx.connection.execute(delete(reached).where(reached.c.subject == subject))
    tx.connection.execute(
        insert(reached).values(subject=subject, cycle_start=cycle_start, units=units, money=money)
    )


def _marks(watch: Watch, was: Fraction, now: Fraction) -> list[Decimal]:
    first, step = Fraction(watch.threshold), Fraction(watch.recurring or 0)
    if step <= 0:
        return [watch.threshold] if was < first <= now else []
    # The first mark that was not reached before, and the last that is now, counted in steps.
    lowest = max(math.floor((was - first) / step) + 1, 0)
    last = math.floor((now - first) / step)
    lowest = max(lowest, last - MOST_AT_ONCE + 1)
    with localcontext(EXACT):
        return [watch.threshold + (watch.recurring or ZERO) * n for n in range(lowest, last + 1)]
