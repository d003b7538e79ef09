"""When the invoices of a contract are due.

Source: spec, "Resources and their fields", ContractProduct, paymentTerm, and Plan, billingData.paymentTerm:
enumerations whose values are not shown. `Net30` is ours.
"""

from __future__ import annotations

from typing import Any

import pytest

from support.sandbox import Running
from support.scenarios import approve, contract, customer, fee, invoices, top_up


def due(sandbox: Running, *wanted: tuple[str, dict[str, Any]]) -> list[list[str]]:
    """The days on which the first invoices of new contracts are due, that were approved on 10 February."""
    made = [contract(sandbox, owner, **terms)["id"] for owner, terms in wanted]
    sandbox.advance("P1M")
    found: dict[str, list[str]] = {each: [] for each in made}
    for each in invoices(sandbox):
        approved = approve(sandbox, each)
        assert approved["approvedAt"] == "2026-02-10T12:00:00Z"
        found[each["contractId"]].append(approved["dueDate"].removesuffix("T12:00:00Z"))
    return list(found.values())


TERMS: list[tuple[list[str | None], str | None, str]] = [
    (["Net10"], None, "2026-02-20"),
    (["Net10"], "14", "2026-02-20"),
    (["Net0"], "14", "2026-02-10"),
    (["Net365"], "14", "2027-02-10"),
    ([None, "Net10", "Net20"], "14", "2026-02-20"),
    (["EndOfMonth", "Net7"], "14", "2026-02-17"),
    ([None], "14", "2026-02-24"),
    (["EndOfMonth"], "14", "2026-02-24"),
    (["EndOfMonth"], None, "2026-03-12"),
]


def test_the_first_payment_term_that_is_understood_goes_before_the_customers_due_days(
    sandbox: Running,
) -> None:
    """Source: spec, "Resources and their fields", Customer, dueDays."""
    made = []
    for terms, due_days, _ in TERMS:
        products = [fee(1) if term is None else fee(1, paymentTerm=term) for term in terms]
        made.append((customer(sandbox, dueDays=due_days), {"products": products}))
    found = due(sandbox, *made)

    assert found == [[expected] for *_, expected in TERMS]


def test_a_payment_term_is_for_all_invoices_of_the_contract_and_for_no_others(sandbox: Running) -> None:
    apart = {"pricing": {"price": 7, "issuedSeparately": True}, "paymentTerm": "Net10"}
    owner = customer(sandbox, dueDays="14")
    [found] = due(sandbox, (owner, {"products": [fee(1), apart]}))
    assert top_up(sandbox, owner).status == 200
    topped_up = approve(sandbox, invoices(sandbox)[-1])
    shown = invoices(sandbox)

    assert found == ["2026-02-20", "2026-02-20"]
    assert topped_up["dueDate"] == "2026-02-24T12:00:00Z"
    assert not any("paymentDays" in each for each in shown)


PLANS = [
    ("Net20", fee(1), "2026-03-02"),
    ("Net20", fee(1, paymentTerm="Net10"), "2026-02-20"),
    ("EndOfMonth", fee(1), "2026-02-24"),
    ("Net20", fee(1, paymentTerm="EndOfMonth"), "2026-03-02"),
]


@pytest.mark.slow
def test_the_payment_term_of_a_plan_is_for_products_that_have_none(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Plan, billingData.paymentTerm."""
    owner, made = customer(sandbox, dueDays="14"), []
    for term, product, _ in PLANS:
        plan = {"name": "Growth", "billingData": {"paymentTerm": term}, "products": [product]}
        plan_id = sandbox.ok("POST", "/_sandbox/plans", plan)["plan"]["id"]
        made.append((owner, {"name": None, "planId": plan_id}))
    found = due(sandbox, *made)

    assert found == [[expected] for *_, expected in PLANS]
