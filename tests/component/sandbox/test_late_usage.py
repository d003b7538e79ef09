"""Usage that comes when its cycle is billed. The specification does not say what becomes of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from support.sandbox import START, Running, running
from support.scenarios import STARTED, Customer, cycle, fee, invoice_amounts, invoices, metered

TIERS = [{"upTo": 100, "price": 1}, {"upTo": None, "price": 0.5}]
SEVEN_PERCENT = {"type": "Percentage", "amount": 7}
JANUARY = "2026-01-20T10:00:00Z"
FEBRUARY = "2026-02-20T10:00:00Z"
TO_FEBRUARY = "P21DT13H"  # an hour after the end of January
ACROSS_FEBRUARY = "P28D"


def per_unit(product: str, price: float = 1, **more: Any) -> dict[str, Any]:
    return {"catalogProductId": product, "pricing": {"type": "PerUnit", "price": price}, **more}


def lines(invoice: Any) -> list[tuple[str, float, float]]:
    """Name, units and total of each line."""
    return [
        (each["productName"], each["units"], each["revenueBreakdown"]["total"])
        for each in invoice["lineItems"]
    ]


def set_clock(sandbox: Running, moment: datetime) -> None:
    sandbox.ok("POST", "/_sandbox/clock", {"to": moment.isoformat()})
    sandbox.token = ""  # it may be over


# --- before the invoice is approved -----------------------------------------------------------------


def test_late_usage_rewrites_an_unapproved_invoice(sandbox: Running) -> None:
    acme = Customer.of(sandbox)
    acme.buy(per_unit(metered(sandbox), displayName="Calls"), fee(5))
    acme.use(3)
    sandbox.advance(TO_FEBRUARY)
    (before,) = invoices(sandbox)
    told = sandbox.raised()
    acme.use(7, at="2026-01-31T23:59:59.999999Z")
    (after,) = invoices(sandbox)

    assert sandbox.raised() == told
    assert lines(before)[0] == ("Calls", 3, 3)
    assert lines(after) == [("Calls", 10, 10), *lines(before)[1:]]
    assert (before["amount"], after["amount"], after["revenueBreakdown"]["total"]) == (8, 15, 15)
    kept = ("id", "invoiceNumber", "issuedAt", "billingCycle", "billingStatus", "name")
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}


def test_control_usage_of_the_current_cycle_leaves_the_invoice_unchanged(sandbox: Running) -> None:
    """The control."""
    acme = Customer.of(sandbox)
    acme.buy(per_unit(metered(sandbox)))
    sandbox.advance(TO_FEBRUARY)
    before = invoices(sandbox)
    acme.use(7, at="2026-02-01T00:00:00Z")
    after = invoices(sandbox)
    sandbox.advance(ACROSS_FEBRUARY)

    assert after == before
    assert invoice_amounts(sandbox) == [0, 7]


# --- after that ---------------------------------------------------------------------------------------


def test_what_comes_after_the_approval_is_charged_by_the_next_invoice_once(sandbox: Running) -> None:
    """By the prices of its own cycle: 90 units at 1.00, then 10 at 1.00 and 20 at 0.50."""
    acme, calls = Customer.of(sandbox), metered(sandbox)
    pricing = {"type": "Tiered", "tiers": TIERS}
    acme.buy({"catalogProductId": calls, "displayName": "Calls", "pricing": pricing})
    acme.use(90)
    sandbox.advance("P30D")
    acme.use(10, at=JANUARY)
    acme.use(20, at=JANUARY)
    acme.use(4, at=FEBRUARY)
    sandbox.advance("P60D")
    billed = invoices(sandbox)

    assert [each["amount"] for each in billed] == [90, 24, 0]
    assert lines(billed[1]) == [
        ("Calls", 4, 4),
        ("Calls, late usage of 2026-01-01 to 2026-02-01", 30, 20),
    ]
    assert billed[1]["revenueBreakdown"]["subtotal"] == 24
    assert billed[1]["billingCycle"]["startTime"] == "2026-02-01T00:00:00Z"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_usage_costs_the_same_in_all_whether_it_comes_late_or_not(seed: int) -> None:
    """Tiers, a discount, a group and commitments: 60 events of five months, each up to 60 days late."""
    on_time, late = (total(seed, is_late=is_late) for is_late in (False, True))

    assert late == on_time > 0


def total(seed: int, *, is_late: bool) -> Decimal:
    """What the invoices of eight months come to."""
    chance, events = Random(seed), []
    for number in range(60):
        day, days_late = chance.randrange(150), chance.randrange(60)
        comes = day + (days_late if is_late else 0)
        events.append((comes, number, day, chance.choice(["call", "mail", "disk"]), chance.randrange(1, 30)))
    with running() as sandbox:
        acme = Customer.of(sandbox)
        calls, mails, disks = (metered(sandbox, name) for name in ("call", "mail", "disk"))
        acme.buy(
            {
                "catalogProductId": calls,
                "pricing": {"type": "Tiered", "tiers": TIERS, "discount": SEVEN_PERCENT},
                "commitment": {"units": 150, "price": 90, "scheduling": cycle("Months", 3)},
            },
            productGroups=[
                {
                    "products": [per_unit(mails, 0.37), per_unit(disks, 2)],
                    "commitment": {"units": 40, "price": 9},
                }
            ],
            startDate=STARTED,
        )
        for comes, _, day, name, units in sorted(events):
            set_clock(sandbox, START + timedelta(days=comes, hours=1))
            acme.use(units, name=name, at=(START + timedelta(days=day)).isoformat())
        set_clock(sandbox, START + timedelta(days=240))
        return sum((Decimal(str(each)) for each in invoice_amounts(sandbox)), Decimal(0))


# --- where no invoice of a cycle comes any more ---------------------------------------------------------


def test_the_months_end_bills_late_usage_of_a_contract_that_is_over_once(sandbox: Running) -> None:
    acme, calls = Customer.of(sandbox), metered(sandbox)
    sold = per_unit(calls, displayName="Calls")
    contract_id = acme.buy(sold, endDate="2026-02-01T00:00:00Z", autoRenewContract=False)
    acme.use(3)
    sandbox.advance("P30D")
    acme.use(7, at=JANUARY)
    later = Customer.of(sandbox, "later")  # whose invoice is newer than the usage
    later.buy(
        fee(1), startDate="2026-01-02T00:00:00Z", endDate="2026-02-02T00:00:00Z", autoRenewContract=False
    )
    sandbox.advance("P60D")
    first, second = invoices(sandbox, customerId=acme.id)

    assert (first["amount"], second["amount"]) == (3, 7)
    assert (second["contractId"], second["issuedAt"]) == (contract_id, "2026-03-01T00:00:00Z")
    assert second["billingCycle"] == first["billingCycle"]
    assert lines(second) == [("Calls, late usage of 2026-01-01 to 2026-02-01", 7, 7)]


def test_the_months_end_bills_nothing_to_an_inactive_customer_until_it_is_active(sandbox: Running) -> None:
    acme = Customer.of(sandbox)
    acme.buy(per_unit(metered(sandbox)), endDate="2026-02-01T00:00:00Z", autoRenewContract=False)
    sandbox.advance("P30D")
    acme.use(7, at=JANUARY)
    sandbox.ok("PUT", f"/customers/{acme.id}", {"status": "Inactive"})
    sandbox.advance("P31D")
    meanwhile = invoice_amounts(sandbox)
    sandbox.ok("PUT", f"/customers/{acme.id}", {"status": "Active"})
    sandbox.advance("P31D")

    assert meanwhile == [0]
    assert invoice_amounts(sandbox) == [0, 7]


def test_late_usage_of_a_draft_for_late_usage_is_added_to_it(sandbox: Running) -> None:
    acme = Customer.of(sandbox)
    acme.buy(per_unit(metered(sandbox)), endDate="2026-02-01T00:00:00Z", autoRenewContract=False)
    sandbox.advance("P30D")
    acme.use(7, at=JANUARY)
    set_clock(sandbox, datetime.fromisoformat("2026-03-01T01:00:00Z"))
    acme.use(2, at=JANUARY)
    sandbox.advance("P60D")

    assert invoice_amounts(sandbox) == [0, 9]


def test_control_late_usage_of_a_contract_that_goes_on_waits_for_its_next_invoice(sandbox: Running) -> None:
    """The control."""
    acme = Customer.of(sandbox)
    acme.buy(per_unit(metered(sandbox)))
    sandbox.advance("P30D")
    acme.use(7, at=JANUARY)
    sandbox.advance("P60D")

    assert invoice_amounts(sandbox) == [0, 7, 0]


# --- invoices below zero ----------------------------------------------------------------------------------

CARRIED = "Carried forward to the next invoice"
BROUGHT = "Carried forward from an earlier invoice"


def test_an_invoice_below_zero_is_for_nothing_and_makes_the_next_one_less(sandbox: Running) -> None:
    acme = Customer.of(sandbox)
    acme.buy(per_unit(metered(sandbox), displayName="Calls"), fee(-5))
    acme.use(3)
    acme.use(10, at=FEBRUARY)
    sandbox.advance("P90D")
    first, second, third = invoices(sandbox)

    assert [each["amount"] for each in (first, second, third)] == [0, 3, 0]
    assert [(name, total) for name, _, total in lines(first)] == [("Calls", 3), ("Fee", -5), (CARRIED, 2)]
    assert [(name, total) for name, _, total in lines(second)] == [("Calls", 10), ("Fee", -5), (BROUGHT, -2)]
    assert first["revenueBreakdown"]["total"] == 0
    assert first["billingStatus"] == "Paid"
