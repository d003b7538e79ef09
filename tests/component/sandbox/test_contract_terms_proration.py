"""Fees of cycles that are shorter than their period.

Source: spec, "Resources and their fields", Contract, shouldProRateInvoices: deprecated, false by default;
Plan, billingData.proRated. What is pro-rated, and by what, is not shown: fees are, by days.
"""

from __future__ import annotations

from typing import Any

import pytest

from support.sandbox import Running, running
from support.scenarios import Customer, contract, cycle, fee, invoice_amounts, invoices, metered

MID_MONTH = "2026-01-10T12:00:00Z"
"""When contracts begin here: in January 22 days are left, that one and 21 more."""


def sold(sandbox: Running, **terms: Any) -> Any:
    """A contract that is pro-rated; by the calendar, if nothing else is said."""
    terms.setdefault("products", [fee(31, isCalendarAligned=True)])
    return contract(sandbox, **{"shouldProRateInvoices": True, **terms})


def test_a_first_cycle_that_is_short_costs_its_share_of_the_days(sandbox_url) -> None:
    with running(database_url=sandbox_url) as sandbox:
        sold(sandbox, products=[fee(100, isCalendarAligned=True)])
        sandbox.advance("P2M")
        billed = invoice_amounts(sandbox)

    assert billed == [70.97, 100]  # 22 of 31 days


@pytest.mark.parametrize("said", [None, False])
def test_a_short_cycle_is_not_pro_rated_by_default(said: bool | None) -> None:
    """Source: spec, "Resources and their fields", Contract, shouldProRateInvoices: defaults to false."""
    with running() as sandbox:
        sold(sandbox, shouldProRateInvoices=said)
        sandbox.advance("P2M")
        billed = invoice_amounts(sandbox)

    assert billed == [31, 31]


@pytest.mark.parametrize(
    ("product", "first"),
    [
        (fee(310, scheduling={"billingDay": 15}), 50),  # 5 of the 31 days from 15 December on
        (fee(280, scheduling={"billingDay": 15, **cycle("Months", 3)}), 199.11),  # 64 of 90 days
        (fee(365, scheduling=cycle("Years", 1), isCalendarAligned=True), 356),
        (fee(70, scheduling=cycle("Weeks", 1), isCalendarAligned=True), 20),  # Saturday and Sunday
        (fee(70, scheduling=cycle("Days", 3), isCalendarAligned=True), 70),  # that day counts whole
        (fee(70), 70),
    ],
)
def test_the_pro_rated_share_is_that_of_the_period(product: dict[str, Any], first: float) -> None:
    with running() as sandbox:
        sold(sandbox, products=[product])
        sandbox.advance("P12M")
        billed = invoice_amounts(sandbox)

    assert billed[0] == first


@pytest.mark.parametrize(
    ("end", "last"),
    [
        ("2026-03-25T12:00:00Z", 160),  # from the 10th to the 25th: 16 of 31 days
        ("2026-03-25T23:59:59Z", 160),
        ("2026-03-25T00:00:00Z", 150),  # the 25th is no day of it
        ("2026-03-10T18:00:00Z", 10),
        ("2026-04-10T11:59:59Z", 310),
        ("2026-04-10T12:00:00Z", 310),
    ],
)
def test_a_last_cycle_that_is_cut_by_the_contracts_end_costs_its_share_of_the_days(
    end: str, last: float
) -> None:
    """Source: spec, "Resources and their fields", Contract, endDate."""
    with running() as sandbox:
        sold(sandbox, endDate=end, autoRenewContract=False, products=[fee(310)])
        sandbox.advance("P1Y")
        billed = invoice_amounts(sandbox)

    assert billed == [310, 310, last]


def test_a_cycle_that_is_cut_on_both_sides_costs_the_days_between() -> None:
    with running() as sandbox:
        sold(sandbox, endDate="2026-01-20T12:00:00Z", autoRenewContract=False)
        sandbox.advance("P3M")
        billed = invoice_amounts(sandbox)

    assert billed == [11]


def test_an_end_at_which_a_contract_is_renewed_cuts_nothing() -> None:
    """Source: spec, "Resources and their fields", Contract, autoRenewContract."""
    with running() as sandbox:
        sold(sandbox, endDate="2026-02-20T12:00:00Z")
        sandbox.advance("P3M")
        billed = invoice_amounts(sandbox)

    assert billed == [22, 31, 31]


def test_a_day_on_which_one_contract_follows_another_is_charged_once() -> None:
    """Usage of that day is counted once, too."""
    with running() as sandbox:
        owner = Customer.of(sandbox).id
        border = "2026-01-20T12:00:00Z"
        sold(sandbox, customer_id=owner, endDate=border, autoRenewContract=False)
        sold(sandbox, customer_id=owner, startDate=border)
        sandbox.advance("P30D")
        billed = invoice_amounts(sandbox)

    assert billed == [10, 12]


@pytest.mark.parametrize(
    "terms",
    [
        {"products": [fee(31)]},
        {"products": [{"commitment": {"units": 10, "price": 31}}]},
        {"products": [{"commitment": {"type": "Currency", "price": 31}}]},
        {"products": [fee(11, commitment={"units": 10, "price": 20})]},
        {"productGroups": [{"baseAmount": 31}]},
        {"productGroups": [{"commitment": {"units": 10, "price": 31}}]},
        {"productGroups": [{"products": [fee(31)]}]},
        {"productGroups": [{"baseAmount": 10, "products": [fee(11), fee(10)]}]},
    ],
)
def test_flat_prices_base_amounts_and_prices_of_commitments_are_pro_rated(terms: dict[str, Any]) -> None:
    """Source: spec, "Resources and their fields", ContractProduct, ProductGroup and Commitment."""
    groups = [{"isCalendarAligned": True}, *terms.get("productGroups", [])]
    with running() as sandbox:
        sold(sandbox, products=terms.get("products", []), productGroups=groups)
        sandbox.advance("P2M")
        billed = invoice_amounts(sandbox)

    assert billed == [22, 31]


def test_usage_and_the_units_of_a_commitment_are_not_pro_rated() -> None:
    """Source: spec, "Resources and their fields", Commitment. 15 units, of which 10 are for 31.00."""
    with running() as sandbox:
        acme, calls = Customer.of(sandbox), metered(sandbox)
        pricing = {"type": "PerUnit", "price": 2}
        product = {"catalogProductId": calls, "pricing": pricing, "commitment": {"units": 10, "price": 31}}
        sold(sandbox, customer_id=acme.id, products=[{**product, "isCalendarAligned": True}])
        acme.use(15, at="2026-01-20T09:00:00Z")
        acme.use(15, at="2026-02-20T09:00:00Z")
        (consumed,) = acme.consumptions()
        sandbox.advance("P2M")
        billed = [each["revenueBreakdown"] for each in invoices(sandbox)]

    assert (consumed["provisionedAmount"], consumed["exceededAmount"]) == (10, 5)
    assert [(each["subtotal"], each["overage"]) for each in billed] == [(32, 10), (41, 10)]


def test_the_money_of_a_commitment_is_not_pro_rated() -> None:
    """Source: spec, "Events", CurrencyCommitmentUsageCrossed. 40.00 are used, 31.00 committed."""
    with running() as sandbox:
        acme, calls = Customer.of(sandbox), metered(sandbox)
        pricing, promise = {"type": "PerUnit", "price": 2}, {"type": "Currency", "price": 31}
        product = {"catalogProductId": calls, "pricing": pricing, "commitment": promise}
        sold(sandbox, customer_id=acme.id, products=[{**product, "isCalendarAligned": True}])
        acme.use(20, at="2026-01-20T09:00:00Z")
        sandbox.advance("P1M")
        (billed,) = [each["revenueBreakdown"] for each in invoices(sandbox)]

    assert (billed["subtotal"], billed["overage"]) == (31, 9)


@pytest.mark.parametrize(
    ("discount", "billed"),
    [({"type": "Percentage", "amount": 50}, [11, 15.5]), ({"type": "Amount", "amount": 2}, [20, 29])],
)
def test_a_discount_is_a_percentage_of_the_pro_rated_fee_or_a_full_amount(
    discount: dict[str, Any], billed: list[float]
) -> None:
    """Source: spec, "Resources and their fields", pricing, discount."""
    pricing = {"type": "Flat", "price": 31, "discount": discount}
    with running() as sandbox:
        sold(sandbox, products=[{"pricing": pricing, "isCalendarAligned": True}])
        sandbox.advance("P2M")
        found = invoice_amounts(sandbox)

    assert found == billed


def test_credits_that_a_contract_grants_cost_what_they_cost() -> None:
    """Source: spec, "Resources and their fields", CreditGrant, price."""
    grant = {"name": "Start", "creditProductId": "crp-start", "grantAmount": 5, "price": 31}
    with running() as sandbox:
        sold(sandbox, creditGrants=[grant])
        sandbox.advance("P1M")
        billed = invoice_amounts(sandbox)

    assert billed == [22 + 31]


def test_shares_are_exact_until_their_line_is_rounded() -> None:
    """Three times 7.0967 are 21.29; rounded one by one they were 21.30."""
    group = {"isCalendarAligned": True, "products": [fee(10)] * 3}
    with running() as sandbox:
        sold(sandbox, products=[], productGroups=[group])
        sandbox.advance("P1M")
        billed = invoice_amounts(sandbox)

    assert billed == [21.29]


@pytest.mark.parametrize(
    ("own", "of_plan", "first"),
    [
        (None, True, 22),
        (None, False, 31),
        (None, None, 31),
        (True, False, 22),
        (False, True, 31),
    ],
)
def test_a_plans_pro_rated_applies_without_the_contracts_own(
    own: bool | None, of_plan: bool | None, first: int
) -> None:
    """Source: spec, "Resources and their fields", Plan, billingData.proRated."""
    billing = {} if of_plan is None else {"proRated": of_plan}
    wanted = {"name": "Growth", "billingData": billing, "products": [fee(31, isCalendarAligned=True)]}
    with running() as sandbox:
        plan = sandbox.ok("POST", "/_sandbox/plans", wanted)["plan"]
        made = contract(sandbox, name=None, planId=plan["id"], shouldProRateInvoices=own)
        sandbox.advance("P2M")
        billed = invoice_amounts(sandbox)

    assert made["startDate"] == MID_MONTH
    assert billed == [first, 31]


def test_credits_are_drawn_once_for_what_a_discount_leaves_of_a_short_cycle() -> None:
    """Source: spec, "Resources and their fields", CreditGrant. 22/31 of 10.00, and 100.00."""
    pricing = {"type": "PerUnit", "price": 2, "discount": {"type": "Percentage", "amount": 50}}
    promise = {"units": 1, "price": 10}
    grant = {"creditProductId": "crp-start", "balanceKind": "Monetary", "grantAmount": 3000}
    with running() as sandbox:
        acme, calls = Customer.of(sandbox), metered(sandbox)
        product = {"catalogProductId": calls, "pricing": pricing, "commitment": promise}
        drawn = {"consumesCreditProductIds": ["crp-start"], "isCalendarAligned": True}
        sold(sandbox, customer_id=acme.id, products=[{**product, **drawn}], creditGrants=[grant])
        acme.use(51, at="2026-01-20T09:00:00Z")
        sandbox.advance("P1M")
        kinds = [kind for kind, _, _ in acme.changes()]
        (billed,) = [each["revenueBreakdown"] for each in invoices(sandbox)]

    assert kinds == ["Grant", "Usage"]
    assert (billed["subtotal"], billed["creditsUsed"], billed["total"]) == (107.1, 53.55, 0)
