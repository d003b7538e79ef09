"""Thresholds that rising usage crosses: price tiers, and percentages that subscriptions have set.

A crossing is computed from the usage before and after. Before is the highest usage so far in the cycle (the
high-water mark), so nothing is emitted twice in one cycle if usage falls and rises again.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_DOWN, Decimal, localcontext
from fractions import Fraction

from sqlalchemy import insert, select

from billhook.sandbox.billing.usage.money import EXACT, ZERO, clamp
from billhook.sandbox.billing.usage.rating import Tier
from billhook.sandbox.storage.database import Transaction
from billhook.sandbox.storage.tables import subscription, usage_peak

DEFAULT_THRESHOLD = Decimal(80)
"""In percent, for a subscription that sets none."""
MAX_RECURRING_AT_ONCE = 100
"""If one jump crosses more recurring thresholds, only the last of them are emitted."""

_HUNDREDTH = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class ThresholdRule:
    """A subscription's rule: a percentage, and then every further `recurring` points."""

    threshold: Decimal = DEFAULT_THRESHOLD
    recurring: Decimal | None = None
    subscription_id: str | None = None


def tiers_entered(tiers: Sequence[Tier], before: Decimal, after: Decimal) -> list[tuple[int, Decimal]]:
    """Return the tiers, numbered from 1, that usage entered, each with the usage beyond which it begins."""
    # Tier n begins where tier n - 1 ends; the last tier's end is `exceeds_final_tier`.
    borders = [(n, tier.up_to) for n, tier in enumerate(tiers[:-1], 2) if tier.up_to is not None]
    return [(n, border) for n, border in borders if before <= border < after]


def exceeds_final_tier(tiers: Sequence[Tier], before: Decimal, after: Decimal) -> bool:
    """Return whether usage went beyond the last tier; never, if that tier has no end."""
    end = tiers[-1].up_to if tiers else None
    return end is not None and before <= end < after


def thresholds_crossed(
    watching: Iterable[ThresholdRule], whole: Decimal, before: Decimal, after: Decimal
) -> list[tuple[Decimal, list[str]]]:
    """Return the percentages of `whole` that were reached, rising, each with its subscription ids."""
    if whole <= 0 or after <= before:
        return []
    # Fractions: a decimal quotient could round up onto a threshold that is not reached.
    was, now = (Fraction(each) * 100 / Fraction(whole) for each in (before, after))
    passed: dict[Decimal, list[str]] = defaultdict(list)
    for watch in watching:
        for mark in _rule_thresholds(watch, was, now):
            passed[mark] += [watch.subscription_id] if watch.subscription_id else []
    return sorted(passed.items())


def percent(part: Decimal, whole: Decimal) -> Decimal:
    """Return `part` as a percentage of `whole`, to two places; 0 of nothing.

    Rounded down: 79.999 % has not reached 80 %.
    """
    if whole <= 0:
        return ZERO
    with localcontext(EXACT):
        return (part.scaleb(2) / whole).quantize(_HUNDREDTH, rounding=ROUND_DOWN)


def threshold_rules(tx: Transaction, event_type: str) -> list[ThresholdRule]:
    """Return the rules of the subscriptions to an event type.

    Without a subscription it is the default rule, so that the event log has the event. A recurring threshold
    alone is also the first one: 25 means 25, 50, 75, 100.
    """
    rows = tx.execute(
        select(subscription.c.id, subscription.c.threshold, subscription.c.recurring_threshold).where(
            subscription.c.event_type == event_type
        )
    ).all()
    found = [
        ThresholdRule(
            threshold=next(clamp(mark) for mark in (*row[1:], DEFAULT_THRESHOLD) if mark is not None),
            recurring=None if row.recurring_threshold is None else clamp(row.recurring_threshold),
            subscription_id=row.id,
        )
        for row in rows
    ]
    return found or [ThresholdRule()]


def high_water_mark(tx: Transaction, subject: str, cycle_start: datetime) -> tuple[Decimal, Decimal]:
    """Return the most units and the most money of `subject` so far in this cycle."""
    peak = select(usage_peak).filter_by(subject=subject, cycle_start=cycle_start)
    row = tx.execute(peak).first()
    return (ZERO, ZERO) if row is None else (row.units, row.money)


def store_high_water_mark(
    tx: Transaction, subject: str, cycle_start: datetime, units: Decimal, money: Decimal
) -> None:
    """Store the high-water mark of this cycle; those of other cycles stay, for usage that comes late."""
    peak = {"subject": subject, "cycle_start": cycle_start, "units": units, "money": money}
    tx.execute(insert(usage_peak).prefix_with("OR REPLACE").values(**peak))


def _rule_thresholds(watch: ThresholdRule, was: Fraction, now: Fraction) -> list[Decimal]:
    first, step = Fraction(watch.threshold), Fraction(watch.recurring or 0)
    # No recurring threshold: the rule has one threshold only.
    if step <= 0:
        return [watch.threshold] if was < first <= now else []
    # The first threshold not reached before, and the last one reached now, counted in steps.
    lowest = max(math.floor((was - first) / step) + 1, 0)
    last = math.floor((now - first) / step)
    # A tiny step would otherwise emit millions of events at once.
    lowest = max(lowest, last - MAX_RECURRING_AT_ONCE + 1)
    with localcontext(EXACT):
        return [watch.threshold + (watch.recurring or ZERO) * n for n in range(lowest, last + 1)]
