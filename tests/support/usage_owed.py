"""What the steps of a life come to, computed again from them alone, and what the sandbox made of it instead.

It looks at each hour and at each unit, and shares no code with the service. Of each product of each contract
money and credits together are what was used while the contract was in force, at its prices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import select

from billhook.sandbox.storage import tables
from support.business import at
from support.lives import (
    AMPLE,
    CUSTOMERS,
    HORIZON,
    METHODS,
    Activate,
    Delete,
    Grant,
    Life,
    Measure,
    Name,
    Sell,
    Step,
    Terms,
    Use,
    Wait,
)
from support.sandbox import BEGINNING


@dataclass
class Contract:
    """A contract as the steps made it; times are hours."""

    sold: Sell
    in_force_at: int | None = None
    deleted_at: int | None = None

    def cycles(self) -> list[tuple[int, int]]:
        """All cycles up to the horizon."""
        found, begin, length = [], self.sold.start, self.sold.cycle_days * 24
        last = HORIZON if self.sold.end is None else self.sold.end
        while begin < last:
            found.append((begin, begin + length if self.sold.end is None else min(begin + length, last)))
            begin += length
        return found

    def billed_cycles(self) -> list[tuple[int, int]]:
        """The cycles without the one that ran at the deletion, and those after it."""
        deleted = self.deleted_at
        if self.in_force_at is None:
            return []
        if deleted is None or (self.sold.end is not None and deleted >= self.sold.end):
            return [each for each in self.cycles() if each[1] <= HORIZON]
        return [each for each in self.cycles() if each[1] <= deleted]

    def is_in_force(self, hour: int) -> bool:
        """Without an end it goes on after the horizon."""
        if self.in_force_at is not None and self.deleted_at is None and self.sold.end is None:
            return self.sold.start <= hour
        return any(start <= hour < end for start, end in self.billed_cycles())


@dataclass
class Expected:
    """What the steps of a life come to."""

    now: int = 0
    contracts: list[Contract] = field(default_factory=list)
    owners: dict[str, str] = field(default_factory=lambda: {name: name for name in CUSTOMERS})
    """Who has an alias."""
    used: dict[str, list[tuple[Use, int]]] = field(default_factory=lambda: defaultdict(list))
    """The usage of each customer, and of each unknown alias, with the number of its step."""
    measured: dict[tuple[str, str, int], int] = field(default_factory=dict)
    count: int = 0

    def take(self, step: Step) -> None:
        """Take a step that was not refused."""
        self.count += 1
        match step:
            case Sell():
                self.contracts.append(Contract(step, max(step.start, self.now) if step.is_active else None))
            case Activate():
                contract = self.contracts[step.number]
                contract.in_force_at = max(contract.sold.start, self.now)
            case Delete():
                self.contracts[step.number].deleted_at = self.now
            case Use():
                self.used[self.owners.get(step.alias, f"unknown {step.alias}")].append((step, self.count))
            case Measure():
                self.measured[step.customer, step.meter, step.day] = step.units
            case Name():
                self.owners = {name: owner for name, owner in self.owners.items() if owner != step.customer}
                for name in step.aliases:
                    self.owners[name] = step.customer
                    self.used[step.customer] += self.used.pop(f"unknown {name}", [])
            case Wait():
                self.now += step.hours

    def owner(self, customer: str, meter: str, hour: int) -> Contract | None:
        """Whose an hour's usage is: of the contracts in force then, the first that came into force."""
        selling = [
            (each.in_force_at, each.sold.start, number)
            for number, each in enumerate(self.contracts)
            if each.sold.customer == customer
            and each.in_force_at is not None
            and any(terms.meter == meter for terms in each.sold.terms)
            and each.is_in_force(hour)
        ]
        return self.contracts[min(selling)[2]] if selling else None

    def units(self, contract: Contract, meter: str, cycle: tuple[int, int]) -> int:
        """The figure of a meter in a cycle, of what belongs to the contract."""
        customer, found = contract.sold.customer, []
        for (owner, of_meter, day), units in self.measured.items():
            if (owner, of_meter) == (customer, meter):
                hours = range(day * 24 + 23, day * 24 - 1, -1)
                last = next((hour for hour in hours if self.owner(customer, meter, hour)), None)
                is_within = last is not None and cycle[0] <= last < cycle[1]
                if is_within and self.owner(customer, meter, last or 0) is contract:
                    found.append((day * 24, 0, units))
        for step, number in self.used[customer]:
            is_replaced = (customer, meter, step.hour // 24) in self.measured
            is_within = step.meter == meter and cycle[0] <= step.hour < cycle[1]
            if is_within and not is_replaced and self.owner(customer, meter, step.hour) is contract:
                found.append((step.hour, number, step.units))
        values = [units for *_, units in sorted(found)]
        if METHODS[meter] == "sum":
            return max(sum(values), 0)
        figure = max(values, default=0) if METHODS[meter] == "max" else ([0, *values])[-1]
        return max(figure, 0)


Paid = tuple[Decimal, Decimal]
"""Credits of the kinds Monetary and Unit."""


def mistakes(life: Life) -> Iterator[str]:
    """What was paid and should not have been, or the other way round; what of the ledger does not add up."""
    yield from _ledger_mistakes(life)
    expected = Expected()
    for step in life.taken:
        expected.take(step)
    billed, drawn = _billed(life), _drawn(life)
    for contract_id, contract in zip(life.contracts, expected.contracts, strict=True):
        for number, terms in enumerate(contract.sold.terms, 1):
            name, key = f"{contract_id} {terms.meter}", f"{contract_id}/{number}"
            paid = {cycle: amounts for (product_key, cycle), amounts in drawn.items() if product_key == key}
            owed = Decimal(0)
            for cycle in contract.billed_cycles():
                units = expected.units(contract, terms.meter, cycle)
                amounts = paid.pop(cycle[0], (Decimal(0), Decimal(0)))
                price, left = terms.price_of(1, units), _left(terms, units, amounts)
                owed += Decimal(terms.committed) / 2 + left
                if left < 0 or not all(
                    0 <= each <= most for each, most in zip(amounts, (price, units), strict=True)
                ):
                    yield f"{name}: {amounts} were drawn for {units} units, which cost {price}, in {cycle}"
                if left and _is_ample(life, contract):
                    yield f"{name}: {left} were not drawn in {cycle}"
            if any(any(amounts) for amounts in paid.values()):
                yield f"{name}: drawn for cycles that are not billed: {paid}"
            money = billed[contract_id, life.products[terms.meter]]
            # All but the parts of a unit that pay for a rest is a multiple of half a credit.
            if abs(money - owed) > Decimal("0.01"):
                yield f"{name}: {money} was billed, and {owed} owed"


def _is_ample(life: Life, contract: Contract) -> bool:
    return Grant(contract.sold.customer, "m", Decimal(AMPLE)) in life.taken


def _left(terms: Terms, units: int, paid: Paid) -> Decimal:
    """What credits leave to money of so many units: those of kind Unit pay for the last ones."""
    money, by_units = paid
    left = Decimal(terms.price_of(1, units)) - money
    for number in range(units, terms.committed, -1):
        part = min(by_units, Decimal(1))
        left, by_units = left - part * terms.price_of(number, number), by_units - part
    return left if by_units == 0 else Decimal(-1)


def _billed(life: Life) -> dict[tuple[str, str], Decimal]:
    """The money on invoices, by contract and product."""
    found: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    cursor = ""
    while True:
        page = life.call("GET", f"/invoices?limit=1000{cursor}")
        for invoice in page["invoices"]:
            for line in invoice["lineItems"]:
                total = Decimal(line["revenueBreakdown"]["total"])
                found[str(invoice.get("contractId")), str(line.get("productId"))] += total
        if not page["hasMore"]:
            return found
        cursor = f"&cursor={page['nextCursor']}"


def _rows(life: Life, *tables_of: Any) -> Any:
    with life.sandbox.service.transaction(writes=False) as tx:
        return [tx.connection.execute(select(each).order_by(each.c.seq)).all() for each in tables_of]


def _drawn(life: Life) -> dict[tuple[str, int], Paid]:
    """The credits drawn for usage, Monetary and Unit, by product key and first hour of the cycle."""
    entries, pools = _rows(life, tables.ledger_entry, tables.credit_pool)
    kinds = {pool.id: pool.kind for pool in pools}
    found: dict[tuple[str, int], Paid] = defaultdict(lambda: (Decimal(0), Decimal(0)))
    for entry in entries:
        if entry.product_key is not None:
            key = entry.product_key, (entry.cycle_start - BEGINNING) // timedelta(hours=1)
            money, units = found[key]
            is_money = kinds[entry.pool_id] == "Monetary"
            found[key] = (money - entry.amount, units) if is_money else (money, units - entry.amount)
    return found


def _ledger_mistakes(life: Life) -> Iterator[str]:
    entries, pools, lots = _rows(life, tables.ledger_entry, tables.credit_pool, tables.credit_lot)
    for pool in pools:
        balance = Decimal(0)
        for entry in (each for each in entries if each.pool_id == pool.id):
            balance += entry.amount
            if not 0 <= balance == entry.balance_after:
                yield f"{entry.id}: the balance is {entry.balance_after} and not {balance}"
        left = sum((lot.remaining for lot in lots if lot.pool_id == pool.id), Decimal(0))
        if not left == balance == pool.balance:
            yield f"{pool.id}: lots of {left}, entries of {balance}, a balance of {pool.balance}"
        over = [lot for lot in lots if lot.pool_id == pool.id and lot.remaining and lot.expires_at]
        if any(lot.expires_at <= at(HORIZON) for lot in over):
            yield f"{pool.id}: lots that are over have credits left"
