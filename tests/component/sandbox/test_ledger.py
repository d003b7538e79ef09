"""The credit ledger adds up, whatever happens, in whatever order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billhook.errors import SandboxError
from support.sandbox import Running
from support.scenarios import metered

cents = st.integers(1, 50_000).map(lambda amount: Decimal(amount) / 100)
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("grant"),
            cents,
            st.sampled_from(["crp_a", "crp_b"]),
            st.sampled_from(["Monetary", "Unit"]),
            st.none() | st.integers(1, 20),
        ),
        st.tuples(st.just("deduct"), cents),
        st.tuples(st.just("measure"), st.integers(0, 2000)),
        st.tuples(st.just("wait"), st.integers(1, 20)),
    ),
    min_size=1,
    max_size=14,
)
ONE_OF_EACH: list[tuple[Any, ...]] = [
    ("grant", Decimal(50), "crp_a", "Monetary", 3),
    ("measure", 20),
    ("deduct", Decimal(1)),
    ("wait", 4),
]


class Account:
    """A new customer with a contract for one product, whose usage credits may pay for."""

    def __init__(self, sandbox: Running, product: str) -> None:
        self._sandbox, self._product = sandbox.sandbox, product
        self.id = self._sandbox.call("POST", "/_sandbox/customers", {"name": "Acme"})["customer"]["id"]
        self.deducted = Decimal(0)
        sold = {"catalogProductId": product, "pricing": {"type": "PerUnit", "price": Decimal("0.35")}}
        wanted = {"name": "Annual", "customerId": self.id, "startDate": self._day()}
        products = [{**sold, "consumesCreditProductIds": ["crp_b", "crp_a"]}]
        self._sandbox.call("POST", "/contracts", {**wanted, "products": products})

    def _day(self, later: int = 0) -> str:
        return f"{self._sandbox.clock.now() + timedelta(days=later):%Y-%m-%d}"

    def grant(self, amount: Decimal, product: str, kind: str, days: int | None) -> None:
        wanted = {"customerId": self.id, "creditAmount": amount, "creditProductId": product}
        ends = {} if days is None else {"expirationDate": self._day(days)}
        self._sandbox.call("POST", "/_sandbox/credits/grant", {**wanted, "balanceKind": kind, **ends})

    def deduct(self, amount: Decimal) -> None:
        with suppress(SandboxError):  # there may be less
            self._sandbox.call("POST", "/credits/deduct", {"customerId": self.id, "creditAmount": amount})
            self.deducted += amount

    def measure(self, value: int) -> None:
        year, month, day = (int(part) for part in self._day().split("-"))
        wanted = {"customerId": self.id, "meterId": self._product, "value": value}
        date = {"year": year, "month": month, "day": day}
        self._sandbox.call("POST", "/measurements", {**wanted, "usageDate": date})

    def wait(self, days: int) -> None:
        self._sandbox.call("POST", "/_sandbox/clock", {"advance": f"P{days}D"})

    def ledger(self) -> list[dict[str, Any]]:
        listed = self._sandbox.call("GET", f"/credits?customerId={self.id}&limit=1000")
        return list(listed["entries"])


def assert_adds_up(entries: Sequence[dict[str, Any]]) -> None:
    """Each entry's balance is the one before and its amount, and never below zero."""
    balances: dict[str, Decimal] = defaultdict(Decimal)
    for entry in entries:
        pool = entry["creditPoolId"]
        assert entry["amount"] != 0
        assert (entry["amount"] > 0) is (entry["type"] == "Grant")
        assert entry["balanceAfterEntry"] == balances[pool] + entry["amount"]
        assert entry["balanceAfterEntry"] >= 0
        balances[pool] = entry["balanceAfterEntry"]


def test_the_ledger_adds_up_after_any_sequence_of_grants_usage_deductions_and_expiries(
    sandbox: Running,
) -> None:
    """Source: spec, "Resources and their fields", Credit ledger entry, balanceAfterEntry."""
    product = metered(sandbox)

    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(steps)
    def check(sequence: list[tuple[Any, ...]]) -> None:
        account = Account(sandbox, product)
        for name, *facts in [*ONE_OF_EACH, *sequence]:
            getattr(account, name)(*facts)
        entries = account.ledger()

        assert_adds_up(entries)
        deductions = sum(entry["amount"] for entry in entries if entry["type"] == "Deduction")
        assert deductions == -account.deducted
        assert {entry["type"] for entry in entries} == {"Grant", "Usage", "Deduction", "Expiry"}

    check()
