"""What is announced of usage: tiers, commitments and their percentages, each once in a cycle.

Source: spec, "Events".
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Any

from billhook.events import (
    CommitmentCrossed,
    CommitmentUsageCrossed,
    CurrencyCommitmentUsageCrossed,
    Event,
    FinalTierExceeded,
    ProductConsumptionSnapshot,
    TierCrossed,
)
from billhook.resources import Customer
from billhook.sandbox.billing import contracts, currencies
from billhook.sandbox.billing.crossings import (
    Watch,
    exceeds_final_tier,
    highest,
    marks_passed,
    percent,
    remember,
    tiers_entered,
    watches,
)
from billhook.sandbox.billing.exact import EXACT, ZERO
from billhook.sandbox.billing.lines import Cycle
from billhook.sandbox.billing.subjects import Subject
from billhook.sandbox.transaction import Transaction

__all__ = ["announce"]

_WHOLE = Decimal(100)
_Passed = list[tuple[Decimal, Event, list[str] | None]]
"""Where each mark lies, what is raised, and for which subscriptions: None for all."""


def announce(tx: Transaction, cycle: Cycle, customer: Customer, subject: Subject) -> None:
    """Raise what the usage has passed since it stood highest in this cycle, in rising order."""
    if not (subject.tiers or subject.promise.is_made):
        return
    units, money = highest(tx, subject.key, subject.since)
    if subject.units <= units and subject.money <= money:
        return
    passed = [
        *_tiers(tx, cycle, customer, subject, units),
        *(
            _of_money(tx, cycle, customer, subject, money)
            if subject.promise.in_money
            else _of_units(tx, customer, subject, units)
        ),
    ]
    for _, event, only in sorted(passed, key=lambda each: each[0]):
        tx.raise_event(event, only=only)
    remember(tx, subject.key, subject.since, max(units, subject.units), max(money, subject.money))


def _tiers(tx: Transaction, cycle: Cycle, customer: Customer, subject: Subject, before: Decimal) -> _Passed:
    told: dict[str, Any] = {
        "date": tx.now,
        "customer_id": customer.id,
        "contract_id": cycle.contract.id,
        "customer_name": customer.name or customer.id,
        "contract_name": contracts.name_of(cycle.contract),
    }
    found: _Passed = [
        (border, TierCrossed(**told, variant_id=f"{subject.product_id}:tier{number}"), None)
        for number, border in tiers_entered(subject.tiers, before, subject.units)
    ]
    if exceeds_final_tier(subject.tiers, before, subject.units):
        final = FinalTierExceeded(
            **told,
            product_id=subject.product_id,
            product_name=subject.name,
            accumulated_units_value=subject.units,
        )
        found.append((subject.tiers[-1].up_to or ZERO, final, None))
    return found


def _of_units(tx: Transaction, customer: Customer, subject: Subject, before: Decimal) -> _Passed:
    committed = subject.promise.units
    if committed <= 0:
        return []
    now = subject.consumption()
    told = now.model_dump(exclude={"exceeded_amount"})
    found: _Passed = []
    for mark, waiting in marks_passed(
        watches(tx, CommitmentUsageCrossed.type), committed, before, subject.units
    ):
        event = CommitmentUsageCrossed(
            date=tx.now,
            customer_id=customer.id,
            threshold=mark,
            pct_usage=now.usage_percentage,
            product_consumption=ProductConsumptionSnapshot(**told),
        )
        found.append((mark, event, waiting))
    if marks_passed([Watch(_WHOLE)], committed, before, subject.units):
        found.append((_WHOLE, CommitmentCrossed(**now.model_dump()), None))
    with localcontext(EXACT):
        return [(mark.scaleb(-2) * committed, event, only) for mark, event, only in found]


def _of_money(
    tx: Transaction, cycle: Cycle, customer: Customer, subject: Subject, before: Decimal
) -> _Passed:
    committed = subject.promise.money
    waiting = watches(tx, CurrencyCommitmentUsageCrossed.type) if committed > 0 else []
    found: _Passed = [
        (
            mark,
            CurrencyCommitmentUsageCrossed(
                date=tx.now,
                product_id=subject.product_id,
                product_name=subject.name,
                customer_id=customer.id,
                threshold=mark,
                pct_usage=percent(subject.money, committed),
                currency=currencies.of(cycle.contract, customer),
                committed_amount=committed,
                consumed_amount=subject.money,
                cycle_start=subject.since,
            ),
            only,
        )
        for mark, only in marks_passed(waiting, committed, before, subject.money)
    ]
    if marks_passed([Watch(_WHOLE)], committed, before, subject.money):
        found.append((_WHOLE, CommitmentCrossed(**subject.consumption().model_dump()), None))
    return found
