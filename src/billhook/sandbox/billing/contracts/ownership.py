"""Which contract usage belongs to, where several contracts of a customer sell the same.

Usage at a moment belongs to the contract that came into force first, among those that are in force then and
sell the meter. A measurement is of a whole day: it belongs to the contract that has the end of the day, or
else to the one that was the last to have a part of it. Pure arithmetic, without a database.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from billhook.sandbox.billing.contracts.cycles import midnight
from billhook.sandbox.billing.usage.daily_usage import TimeSpan


@dataclass(frozen=True, slots=True)
class Seller:
    """A contract that was or is in force, from `start` to before `end`, and the meters of its products."""

    contract_id: str
    start: datetime
    end: datetime
    meter_ids: Collection[str]


def owned_spans(sellers: Sequence[Seller], contract_id: str, meter_id: str, span: TimeSpan) -> list[TimeSpan]:
    """Return the parts of `span` whose usage belongs to the contract.

    `sellers` are all contracts of the customer, the one that came into force first at the beginning.
    """
    left = [span]
    for seller in sellers:
        if seller.contract_id == contract_id:
            break
        if meter_id in seller.meter_ids:
            left = [part for each in left for part in _without(each, seller)]
    return left


def last_days(sellers: Sequence[Seller], meter_id: str, spans: Sequence[TimeSpan]) -> list[datetime]:
    """Return the midnights of days that end after one of `spans`, and whose measurement belongs to it still.

    That is so if no contract sells the meter in the rest of the day.
    """
    return [
        midnight(end)
        for _, end in spans
        if end > midnight(end) and not _is_sold_after(sellers, meter_id, end)
    ]


def is_handed_over(sellers: Sequence[Seller], contract_id: str, meter_id: str, end: datetime) -> bool:
    """Return whether another contract that sells the meter begins on the day on which this one ends."""
    return any(
        seller.contract_id != contract_id
        and meter_id in seller.meter_ids
        and seller.start < seller.end
        and seller.start.date() == end.date()
        for seller in sellers
    )


def _is_sold_after(sellers: Sequence[Seller], meter_id: str, moment: datetime) -> bool:
    """Return whether a contract sells the meter between `moment` and the end of its day."""
    return any(
        meter_id in seller.meter_ids
        and seller.start < seller.end > moment
        and seller.start.date() <= moment.date()
        for seller in sellers
    )


def _without(span: TimeSpan, seller: Seller) -> list[TimeSpan]:
    begin, end = span
    parts = [(begin, min(end, seller.start)), (max(begin, seller.end), end)]
    return [part for part in parts if part[0] < part[1]]
