"""The credit ledger adds up, whatever happens, in whatever order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from billhook.errors import SandboxError
from billhook.resources import CustomerUpdate, NewContract, NewMeasurement
from billhook.sandbox.billing import contract_lifecycle, customers, ingestion
from billhook.sandbox.billing.contracts.cycles import ContractRecord, cycle_at
from billhook.sandbox.billing.credits import credit_pools
from billhook.sandbox.billing.credits.credit_grants import deduct, expire_lot, grant
from billhook.sandbox.billing.invoices.statements import statement
from billhook.sandbox.billing.line_items import ContractCycle
from billhook.sandbox.storage.tables import billing
from billhook.sandbox.storage.transaction import Transaction
from support.sandbox import START, Running
from support.scenarios import metered

PRICE = Decimal("0.35")
cents = st.integers(1, 50_000).map(lambda amount: Decimal(amount) / 100)
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("grant"),
            cents,
            st.sampled_from(["crp_a", "crp_b"]),
            st.sampled_from(["Monetary", "Unit"]),
            st.none() | st.integers(1, 400),
            st.booleans(),
        ),
        st.tuples(st.just("deduct"), cents),
        st.tuples(st.just("measure"), st.integers(0, 2000), st.integers(1, 31)),
        st.tuples(st.just("expire")),
        st.tuples(st.just("bill")),
    ),
    min_size=1,
    max_size=14,
)


class Account:
    """A new customer with a contract for one product, whose usage credits may pay for."""

    def __init__(self, sandbox: Running, product: str) -> None:
        self._sandbox, self._product = sandbox, product
        sold = {
            "catalogProductId": product,
            "pricing": {"type": "PerUnit", "price": PRICE},
            "consumesCreditProductIds": ["crp_b", "crp_a"],
        }
        with sandbox.sandbox.service.transaction(writes=True) as tx:
            self.id = customers.create(tx, CustomerUpdate(name="Acme")).id
            wanted = NewContract(
                customer_id=self.id, name="Annual", start_date=START.replace(day=1, hour=0), products=[sold]
            )
            self.contract: ContractRecord = contract_lifecycle.create(tx, wanted)

    def do(self, step: tuple[Any, ...]) -> None:
        """One step, in a transaction of its own as over HTTP; what is refused changes nothing."""
        name, *facts = step
        try:
            with self._sandbox.sandbox.service.transaction(writes=True) as tx:
                getattr(self, name)(tx, *facts)
        except SandboxError as refusal:
            if refusal.code != "insufficient_credits":
                raise

    def grant(
        self, tx: Transaction, amount: Decimal, product: str, kind: str, days: int | None, automatic: bool
    ) -> None:
        expires_at = None if days is None else tx.now + timedelta(days=days)
        grant(
            tx, self.id, amount,
            credit_product_id=product, kind=kind, expires_at=expires_at, automatic=automatic,
        )  # fmt: skip

    def deduct(self, tx: Transaction, amount: Decimal) -> None:
        deduct(tx, self.id, amount)

    def measure(self, tx: Transaction, value: int, day: int) -> None:
        date: Any = {"year": 2026, "month": 1, "day": day}
        given = NewMeasurement(
            customer_id=self.id, meter_id=self._product, usage_date=date, value=Decimal(value)
        )
        ingestion.set_measurement(tx, given)

    def expire(self, tx: Transaction) -> None:
        there = select(billing.credit_lot.c.id).join(billing.credit_pool).where(_pools_of(self.id))
        lot_id = tx.connection.execute(there.limit(1)).scalar_one_or_none()
        expire_lot(tx, lot_id or "lot_0")

    def bill(self, tx: Transaction) -> None:
        cycle = ContractCycle(self.contract, *cycle_at(self.contract, tx.now))
        charges = [item.charge for item in statement(tx, cycle)]
        assert charges == [item.charge for item in statement(tx, cycle)]
        assert all(charge.total >= 0 for charge in charges)


def _pools_of(customer_id: str) -> Any:
    return billing.credit_pool.c.customer_id == customer_id


def assert_adds_up(entries: Sequence[dict[str, Any]]) -> dict[str, Decimal]:
    """Each entry's balance is the one before and its amount, and never below zero; the last of each pool."""
    balances: dict[str, Decimal] = defaultdict(Decimal)
    for entry in entries:
        pool = entry["creditPoolId"]
        assert entry["amount"] != 0
        assert (entry["amount"] > 0) is (entry["type"] == "Grant")
        assert entry["balanceAfterEntry"] == balances[pool] + entry["amount"]
        assert entry["balanceAfterEntry"] >= 0
        balances[pool] = entry["balanceAfterEntry"]
    return dict(balances)


def told(tx: Transaction, customer_id: str) -> list[dict[str, Any]]:
    page = credit_pools.ledger_page(tx, customer_id, 1000, None)
    return [entry.model_dump(by_alias=True) for entry in page.entries]


def test_the_ledger_adds_up_after_any_sequence_of_grants_usage_deductions_and_expiries(
    sandbox: Running,
) -> None:
    """Source: spec, "Resources and their fields", Credit ledger entry, balanceAfterEntry."""
    product = metered(sandbox)

    @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
    @given(steps)
    def check(sequence: list[tuple[Any, ...]]) -> None:
        account = Account(sandbox, product)
        for step in sequence:
            account.do(step)

        with sandbox.sandbox.service.transaction(writes=False) as tx:
            entries = told(tx, account.id)
            balances = assert_adds_up(entries)
            assert _pool_balances(tx, account.id) == _lot_balances(tx, account.id) == balances
            assert _covered(tx, account.contract) == _drawn(tx, entries)

    check()


def _pool_balances(tx: Transaction, customer_id: str) -> dict[str, Decimal]:
    rows = tx.connection.execute(select(billing.credit_pool).where(_pools_of(customer_id)))
    return {row.id: row.balance for row in rows}


def _lot_balances(tx: Transaction, customer_id: str) -> dict[str, Decimal]:
    """What is left of the grants of each pool, added up."""
    balances = dict.fromkeys(_pool_balances(tx, customer_id), Decimal(0))
    lots = select(billing.credit_lot).join(billing.credit_pool).where(_pools_of(customer_id))
    for lot in tx.connection.execute(lots):
        balances[lot.pool_id] += lot.remaining
    return balances


def _covered(tx: Transaction, contract: ContractRecord) -> tuple[Decimal, Decimal]:
    """Units and money that count as paid for by credits."""
    rows = tx.connection.execute(
        select(billing.credit_cover).where(billing.credit_cover.c.subject == f"{contract.id}/1")
    ).all()
    return sum((row.units for row in rows), Decimal(0)), sum((row.money for row in rows), Decimal(0))


def _drawn(tx: Transaction, entries: Sequence[dict[str, Any]]) -> tuple[Decimal, Decimal]:
    """The same by the ledger."""
    kinds = {row.id: row.kind for row in tx.connection.execute(select(billing.credit_pool))}
    drawn = {"Unit": Decimal(0), "Monetary": Decimal(0)}
    for entry in entries:
        if entry["type"] == "Usage":
            drawn[kinds[entry["creditPoolId"]]] -= entry["amount"]
    return drawn["Unit"], drawn["Monetary"]


BROKEN = [
    [("Grant", 5, 5), ("Usage", -2, 2)],
    [("Grant", 5, 5), ("Usage", -6, -1)],
    [("Usage", -1, -1)],
    [("Usage", 1, 1)],
    [("Grant", 0, 0)],
]


def test_a_ledger_that_does_not_add_up_would_be_found() -> None:
    for entries in BROKEN:
        broken = [
            {"creditPoolId": "pool_1", "type": kind, "amount": amount, "balanceAfterEntry": balance}
            for kind, amount, balance in entries
        ]
        with pytest.raises(AssertionError):
            assert_adds_up(broken)
