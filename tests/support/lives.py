"""Random lives of two customers in a sandbox: steps in which usage changes its owner in every way there is.

Contracts are made, activated, deleted and follow each other within a day, aliases move and are claimed, usage
comes late and is corrected, and credits of both kinds pay for it. `usage_owed` says what a life comes to.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from billhook.errors import SandboxError
from billhook.sandbox import Sandbox
from support.business import at

DAYS = 16
HORIZON = 33 * 24
"""The hour at which a life is over, and all of it is billed: a month ends after its last step."""
CUSTOMERS = ("acme", "bolt")
METHODS = {"call": "sum", "mail": "sum", "seat": "last", "peak": "max"}
AMPLE = 10**9
"""Credits that pay for all usage of a life."""


@dataclass(frozen=True)
class Terms:
    """What a contract sells one product for: tiers, the last price being that of all further units."""

    meter: str
    prices: tuple[int, ...]
    ends: tuple[int, ...] = ()
    committed: int = 0
    """Units included in each cycle, for half of their number in money."""
    consumes: tuple[str, ...] = ()

    def product(self, ids: dict[str, str], days: int) -> dict[str, Any]:
        tiers = [
            {"upTo": end, "price": price} for end, price in zip((*self.ends, None), self.prices, strict=True)
        ]
        found: dict[str, Any] = {
            "catalogProductId": ids[self.meter],
            "pricing": {"type": "Tiered", "tiers": tiers} if self.ends else {"price": self.prices[0]},
            "scheduling": {"duration": {"unit": "Days", "value": days}},
            "consumesCreditProductIds": list(self.consumes),
        }
        if self.committed:
            found["commitment"] = {"units": self.committed, "price": Decimal(self.committed) / 2}
        return found

    def price_of(self, first: int, last: int) -> int:
        """What the units from `first` to `last`, counted from 1, cost: a look at each of them."""
        return sum(
            next(
                (price for end, price in zip(self.ends, self.prices, strict=False) if n <= end),
                self.prices[-1],
            )
            for n in range(max(first, self.committed + 1), last + 1)
        )


@dataclass(frozen=True)
class Sell:
    """A contract from an hour to another, None for no end; `grants` are credits that it comes with."""

    customer: str
    start: int
    end: int | None
    cycle_days: int
    terms: tuple[Terms, ...]
    is_active: bool
    grants: tuple[dict[str, Any], ...] = ()

    def take(self, life: Life) -> None:
        body = {
            "customerId": life.customers[self.customer],
            "name": f"contract {len(life.taken)}",
            "startDate": at(self.start).isoformat(),
            "endDate": None if self.end is None else at(self.end).isoformat(),
            "autoRenewContract": False,
            "status": "Active" if self.is_active else "InReview",
            "products": [each.product(life.products, self.cycle_days) for each in self.terms],
            "creditGrants": list(self.grants),
        }
        life.contracts.append(life.call("POST", "/contracts", body)["contract"]["id"])


@dataclass(frozen=True)
class Delete:
    """The deletion of the contract with this number."""

    number: int

    def take(self, life: Life) -> None:
        life.call("DELETE", f"/contracts/{life.contracts[self.number]}")


@dataclass(frozen=True)
class Activate:
    """The activation of the contract with this number."""

    number: int

    def take(self, life: Life) -> None:
        life.call("POST", f"/_sandbox/contracts/{life.contracts[self.number]}/activate")


@dataclass(frozen=True)
class Use:
    """Units of a meter at an hour, under an alias; below 0 they correct others."""

    alias: str
    meter: str
    hour: int
    units: int

    def take(self, life: Life) -> None:
        number = len(life.taken)
        # Each at a second of its own, so that of two events one is the last.
        moment = (at(self.hour) + timedelta(seconds=number)).isoformat()
        event = {"name": self.meter, "timestamp": moment, "customerAlias": self.alias, "ref": f"ref-{number}"}
        life.call("POST", "/v2/events", {"events": [{**event, "data": {"units": self.units}}]})


@dataclass(frozen=True)
class Measure:
    """A day's usage of a meter with the method sum."""

    customer: str
    meter: str
    day: int
    units: int

    def take(self, life: Life) -> None:
        day = at(self.day * 24)
        body = {"customerId": life.customers[self.customer], "meterId": life.products[self.meter]}
        date = {"year": day.year, "month": day.month, "day": day.day}
        life.call("POST", "/measurements", {**body, "usageDate": date, "value": self.units})


@dataclass(frozen=True)
class Name:
    """A customer's aliases from now on; taken from the other customer, if it has them."""

    customer: str
    aliases: tuple[str, ...]

    def take(self, life: Life) -> None:
        # First the other one, which may lose some.
        for name in sorted(CUSTOMERS, key=lambda each: each == self.customer):
            own = {name for name in life.aliases[name] if name not in self.aliases}
            life.aliases[name] = set(self.aliases) if name == self.customer else own
            body = {"aliases": sorted(life.aliases[name])}
            life.call("PUT", f"/customers/{life.customers[name]}", body)


@dataclass(frozen=True)
class Grant:
    """Credits of the product `m` (Monetary) or `u` (Unit), until an hour; None for no end."""

    customer: str
    product: str
    amount: Decimal
    expires: int | None = None

    def take(self, life: Life) -> None:
        body = {"customerId": life.customers[self.customer], "creditAmount": self.amount}
        expires = {} if self.expires is None else {"expirationDate": at(self.expires).isoformat()}
        kind = {"creditProductId": self.product, "balanceKind": KINDS[self.product]}
        life.call("POST", "/_sandbox/credits/grant", {**body, **kind, **expires})


@dataclass(frozen=True)
class Deduct:
    """A deduction of credits of any kind."""

    customer: str
    amount: int

    def take(self, life: Life) -> None:
        body = {"customerId": life.customers[self.customer], "creditAmount": self.amount}
        life.call("POST", "/credits/deduct", body)


@dataclass(frozen=True)
class Wait:
    """Some hours that pass."""

    hours: int

    def take(self, life: Life) -> None:
        life.call("POST", "/_sandbox/clock", {"advance": f"PT{self.hours}H"})


Step = Sell | Delete | Activate | Use | Measure | Name | Grant | Deduct | Wait
KINDS = {"m": "Monetary", "u": "Unit"}


def random_life(seed: int) -> list[Step]:
    """Return the life with this number. In every third one, credits pay for all usage."""
    chance = random.Random(seed)
    is_ample = seed % 3 == 0
    steps: list[Step] = []
    if is_ample:
        steps += [Grant(each, "m", Decimal(AMPLE)) for each in CUSTOMERS]
    else:
        steps += [Grant("acme", kind, Decimal(chance.choice([0, 2, 9, 40]) or 1)) for kind in "mu"]
    # Most is of one customer and one meter: things must meet.
    steps += [_random_contract(chance, "acme", is_ample=is_ample) for _ in range(2)]
    for _ in range(chance.randint(6, 24)):
        steps += _random_steps(chance, _rarely(chance, *CUSTOMERS), steps, is_ample=is_ample)
    return steps


def _rarely(chance: random.Random, mostly: str, *others: str) -> str:
    return mostly if chance.random() < 0.85 else chance.choice(others)


def hours_waited(steps: Iterable[Step]) -> int:
    return sum(step.hours for step in steps if isinstance(step, Wait))


def _random_steps(
    chance: random.Random, customer: str, steps: list[Step], *, is_ample: bool
) -> Iterator[Step]:
    sold = sum(isinstance(step, Sell) for step in steps)
    weights = {"sell": 2, "use": 8, "measure": 2.5, "credit": 2.5, "wait": 3, "delete": 2,
               "name": 1, "activate": 1}  # fmt: skip
    hour = _random_hour(chance)
    match chance.choices(list(weights), list(weights.values()))[0]:
        case "sell":
            yield _random_contract(chance, customer, is_ample=is_ample)
        case "use":
            alias, meter = _rarely(chance, customer, "x", "y"), _rarely(chance, *METHODS)
            yield Use(alias, meter, hour, chance.choice([1, 2, 5, 9, 12, -3]))
        case "measure":
            yield Measure(customer, _rarely(chance, "call", "mail"), hour // 24, chance.randrange(9))
        case "credit" if not is_ample:
            amount = Decimal(chance.choice([1, 3, 8, 20, 50, 100])) / chance.choice([1, 1, 2])
            yield Grant(customer, chance.choice("mu"), amount, chance.choice([None, None, hour]))
            if chance.random() < 0.2:
                yield Deduct(customer, chance.choice([1, 4]))
        case "wait" if hours_waited(steps) < DAYS * 24:
            yield Wait(chance.choice([1, 5, 13, 24, 50, 100, 200]))
        case "name":
            yield Name(customer, (customer, *(name for name in ("x", "y") if chance.random() < 0.6)))
        case "delete" if sold:
            yield Delete(chance.randrange(sold))
        case "activate" if sold:
            yield Activate(chance.randrange(sold))


def _random_hour(chance: random.Random) -> int:
    """Most of the first days, on which contracts meet."""
    return chance.randrange(chance.choice([24, 48, 96, DAYS * 24]))


def _random_contract(chance: random.Random, customer: str, *, is_ample: bool) -> Sell:
    # Often at the same hour as others, and often with an end within a day.
    start = chance.choice([0, 0, 36, _random_hour(chance)])
    end = start + chance.choice([36, 36, 60, 24 * 9, 24 * 15])
    meters = chance.choice(
        [["call"]] * 9 + [["mail"], ["seat"], ["peak"], ["call", "mail"], ["call", "seat"]]
    )
    consumes = (
        ("m",)
        if is_ample
        else chance.choice([(), ("m",), ("m",), ("u",), ("m", "u"), ("u", "m"), ("m", "u")])
    )
    terms = []
    for meter in meters:
        ends = tuple(sorted(chance.sample(range(1, 12), chance.choice([0, 0, 1, 2]))))
        prices = tuple(chance.choice([0, 1, 1, 2, 2, 3, 5]) for _ in range(len(ends) + 1))
        terms.append(Terms(meter, prices, ends, chance.choice([0, 0, 4]), consumes))
    grant = {
        "creditProductId": "m",
        "balanceKind": "Monetary",
        "grantAmount": 6,
        "price": chance.choice([None, 5]),
    }
    return Sell(
        customer=customer,
        start=start,
        end=chance.choice([end, end, None]),
        cycle_days=chance.choice([2, 3, 7]),
        terms=tuple(terms),
        is_active=chance.random() < 0.75,
        grants=({**grant, "schedule": chance.choice(["Once", "Monthly"])},) if chance.random() < 0.3 else (),
    )


class Life:
    """The two customers in a sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox, self.call = sandbox, sandbox.call
        self.taken: list[Step] = []
        """The steps that were not refused."""
        self.aliases = {name: {name} for name in CUSTOMERS}
        self.customers: dict[str, str] = {}
        self.contracts: list[str] = []
        self.products: dict[str, str] = {}
        for name, method in METHODS.items():
            made = self.call("POST", "/catalogProducts", {"name": name})["catalogProduct"]["id"]
            meter = {"name": name, "eventName": name, "aggregationMethod": method, "property": "units"}
            self.call("POST", "/_sandbox/meters", {**meter, "catalogProductId": made})
            self.products[name] = made
        for name in CUSTOMERS:
            body = {"name": name, "aliases": [name]}
            self.customers[name] = self.call("POST", "/_sandbox/customers", body)["customer"]["id"]

    def live(self, steps: list[Step]) -> None:
        """Take the steps, without those that are refused, and wait until all is billed."""
        for step in steps:
            with suppress(SandboxError):
                step.take(self)
                self.taken.append(step)
        Wait(HORIZON - hours_waited(self.taken)).take(self)
