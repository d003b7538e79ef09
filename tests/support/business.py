"""A customer for tests of billing, and what it buys, uses and changes as strategies of hypothesis."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from hypothesis import strategies as st

from billhook.sandbox import Sandbox
from support.sandbox import BEGINNING

DAYS = 12
HOURS = st.integers(0, DAYS * 24)


@dataclass(frozen=True)
class Sold:
    """A contract that sells a meter's units at 1.00 each, by the week, from an hour to another."""

    start: int
    end: int
    meter: str
    status: str = "Active"
    tiers: tuple[tuple[int, int], ...] = ()
    """Their ends and prices; beyond the last one a unit costs 1."""
    committed: int = 0
    """Units, for half of their number in money; or the least that is paid, if the commitment is in money."""
    in_money: bool = False

    def terms(self) -> dict[str, object]:
        tiers = [{"upTo": end, "price": price} for end, price in self.tiers]
        pricing = {"type": "Tiered", "tiers": [*tiers, {"upTo": None, "price": 1}]}
        found: dict[str, object] = {"pricing": pricing if tiers else {"price": 1}}
        if self.committed and self.in_money:
            found["commitment"] = {"type": "Currency", "price": self.committed}
        elif self.committed:
            found["commitment"] = {"units": self.committed, "price": Decimal(self.committed) / 2}
        return found

    def price_of(self, units: int) -> Decimal:
        """What a week with so many units costs: a look at each of them."""
        prices = [
            next((price for end, price in self.tiers if number <= end), 1) for number in range(1, units + 1)
        ]
        if self.in_money:
            return Decimal(max(sum(prices), self.committed))
        return Decimal(self.committed) / 2 + sum(prices[self.committed :])


@dataclass(frozen=True)
class Used:
    """Units of the meter `call`, used at an hour."""

    hour: int
    units: int


@dataclass(frozen=True)
class Measured:
    """A day's usage of the meter `call`, as it was measured."""

    day: int
    units: int


@dataclass(frozen=True)
class Waited:
    """Some hours that pass."""

    hours: int


Step = Sold | Used | Measured | Waited

SOLD = st.builds(
    lambda start, length, meter, status: Sold(start, start + length, meter, status),
    HOURS,
    st.sampled_from([24, 36, 60, 24 * 9]),
    st.sampled_from(["call", "call", "call", "other"]),
    st.sampled_from(["Active", "Active", "Active", "InReview"]),
)
USED = st.builds(Used, HOURS, st.integers(1, 9))
MEASURED = st.builds(Measured, st.integers(0, DAYS - 1), st.integers(0, 9))


def at(hour: int) -> datetime:
    return BEGINNING + timedelta(hours=hour)


class Business:
    """One customer of a sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.call = sandbox.call
        self.customer = self.call("POST", "/_sandbox/customers", {"name": "Acme", "aliases": ["acme"]})
        self.id = self.customer["customer"]["id"]
        self.products = {name: self._product(name) for name in ("call", "other")}
        self.count = 0

    def _product(self, name: str) -> str:
        made = self.call("POST", "/catalogProducts", {"name": name})["catalogProduct"]["id"]
        meter = {"name": name, "eventName": name, "aggregationMethod": "sum", "property": "units"}
        self.call("POST", "/_sandbox/meters", {**meter, "catalogProductId": made})
        return str(made)

    def take(self, step: Step) -> None:
        self.count += 1
        match step:
            case Sold():
                week = {"scheduling": {"duration": {"unit": "Weeks", "value": 1}}, **step.terms()}
                contract = {
                    "customerId": self.id,
                    "name": f"contract {self.count}",
                    "startDate": at(step.start).isoformat(),
                    "endDate": at(step.end).isoformat(),
                    "autoRenewContract": False,
                    "status": step.status,
                    "products": [{"catalogProductId": self.products[step.meter], **week}],
                }
                self.call("POST", "/contracts", contract)
            case Used():
                event = {"name": "call", "timestamp": at(step.hour).isoformat(), "customerAlias": "acme"}
                whole = {**event, "ref": f"ref-{self.count}", "data": {"units": step.units}}
                self.call("POST", "/v2/events", {"events": [whole]})
            case Measured():
                day = at(step.day * 24)
                date = {"year": day.year, "month": day.month, "day": day.day}
                usage = {"customerId": self.id, "meterId": self.products["call"], "usageDate": date}
                self.call("POST", "/measurements", {**usage, "value": step.units})
            case Waited():
                self.call("POST", "/_sandbox/clock", {"advance": f"PT{step.hours}H"})

    def billed(self) -> tuple[Decimal, Decimal]:
        """The units on all invoices, and their amounts."""
        self.take(Waited(24 * 70))
        invoices = self.call("GET", "/invoices?limit=1000")["invoices"]
        units = [line["units"] for invoice in invoices for line in invoice["lineItems"]]
        amounts = [invoice["amount"] for invoice in invoices]
        return sum(map(Decimal, units), Decimal(0)), sum(map(Decimal, amounts), Decimal(0))


WEEKS = 3
PRICED = st.builds(
    lambda ends, prices, committed, in_money: Sold(
        0, WEEKS * 168, "call", tiers=tuple(zip(sorted(ends), prices, strict=False)),
        committed=committed, in_money=in_money,
    ),
    st.sets(st.integers(1, 15), max_size=2), st.lists(st.integers(0, 5), min_size=2, max_size=2),
    st.integers(0, 12), st.booleans(),
)  # fmt: skip
LATER = st.builds(Used, st.integers(0, WEEKS * 168 - 1), st.integers(1, 9))
