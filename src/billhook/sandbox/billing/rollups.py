"""Keeping each meter's figure of each day while events come in: one read and one write for a whole batch."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from billhook.sandbox.billing.exact import exact_sum
from billhook.sandbox.billing.metering import Contribution, identity
from billhook.sandbox.storage.bulk import insert_rows, with_keys
from billhook.sandbox.storage.tables.usage import usage_day, usage_instance
from billhook.sandbox.transaction import Transaction

__all__ = ["Key", "Rollups"]

Key = tuple[str, str, int, int]
"""Customer, meter, day, and where in it the row begins."""

_KEY = ("customer_id", "meter_id", "day", "since")
_FIGURES = ("events", "total", "highest", "last", "last_at")
_NEW = ", ".join(f"{name} = excluded.{name}" for name in _FIGURES)
_REPLACE = f"ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET {_NEW}"
_LEAVE = "ON CONFLICT DO NOTHING"


@dataclass(slots=True)
class _Tally:
    values: list[Decimal] = field(default_factory=list)
    instances: set[str] = field(default_factory=set)
    last: Decimal | None = None
    last_at: int | None = None


class Rollups:
    """What a batch adds to the figures."""

    def __init__(self) -> None:
        self._tallies: defaultdict[Key, _Tally] = defaultdict(_Tally)

    def add(self, key: Key, contribution: Contribution, at: int) -> None:
        """Count an event of the microsecond `at`; of two at one time, the one that came later is last."""
        value = contribution.value
        if value is None:
            return
        tally = self._tallies[key]
        tally.values.append(value)
        if tally.last_at is None or at >= tally.last_at:
            tally.last, tally.last_at = value, at
        if contribution.instance is not None:
            tally.instances.add(identity(contribution.instance) or "")

    def write(self, tx: Transaction) -> set[Key]:
        """Add it to what is there; the rows that it changed."""
        stored = with_keys(tx.connection, usage_day, list(self._tallies))
        there = {(row.customer_id, row.meter_id, row.day, row.since): row for row in stored}
        rows = [(*key, *_figures(tally, there.get(key))) for key, tally in self._tallies.items()]
        insert_rows(tx.connection, usage_day, (*_KEY, *_FIGURES), rows, _REPLACE)
        seen = [(*key, instance) for key, tally in self._tallies.items() for instance in tally.instances]
        insert_rows(tx.connection, usage_instance, (*_KEY, "instance"), seen, _LEAVE)
        return set(self._tallies)


def _figures(tally: _Tally, there: Any) -> tuple[int, str, str, str, int]:
    """The new figures, in the order of _FIGURES, of a day whose row was `there`, if it was."""
    events, total, highest = len(tally.values), exact_sum(tally.values), max(tally.values)
    last, last_at = str(tally.last), tally.last_at or 0
    if there is None:
        return events, str(total), str(highest), last, last_at
    if there.highest is not None:
        highest = max(Decimal(there.highest), highest)
    if there.last_at is not None and there.last_at > last_at:
        last, last_at = there.last, there.last_at
    return there.events + events, str(exact_sum([Decimal(there.total), total])), str(highest), last, last_at
