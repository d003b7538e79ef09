"""The end of a month. Source: spec, "Events", MonthEndReport and UnchargedEvents."""

from __future__ import annotations

from typing import Any

from support.sandbox import Running
from support.scenarios import Customer, contract, customer, dates, fee, metered


def reports(sandbox: Running, event_type: str) -> list[Any]:
    """What the reports of these events say."""
    ids = [body["reportId"] for _, body in sandbox.raised(event_type)]
    return [sandbox.ok("GET", f"/_sandbox/reports/{each}")["report"] for each in ids]


def test_the_month_end_report_has_the_months_totals(sandbox: Running) -> None:
    owner = customer(sandbox)
    contract(sandbox, owner, products=[fee(10)])
    contract(sandbox, owner, products=[fee(2.5)], currency="EUR")
    contract(sandbox, owner, products=[fee(5)])
    sandbox.advance("P2M")
    january, february = reports(sandbox, "MonthEndReport")
    whens = dates(sandbox, "MonthEndReport")

    assert whens == ["2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"]
    assert january.pop("id").startswith("rep_")
    assert january == {
        "type": "MonthEnd",
        "startTime": "2026-01-01T00:00:00Z",
        "endTime": "2026-02-01T00:00:00Z",
        "events": 0,
        "unchargedEvents": 0,
        "newCustomers": 1,
        "newContracts": 3,
        "billed": [],
    }
    assert (february["newCustomers"], february["newContracts"]) == (0, 0)
    assert february["billed"] == [
        {"currency": "EUR", "invoices": 1, "amount": 2.5},
        {"currency": "USD", "invoices": 2, "amount": 15},
    ]


def test_uncharged_events_lists_unmetered_usage(sandbox: Running) -> None:
    """Source: spec, "Events", UnchargedEvents: events exist not counted against any meter."""
    acme = Customer.of(sandbox)
    acme.buy({"catalogProductId": metered(sandbox)})
    acme.use(1, 1)
    acme.use(1, 1, name="unheard")
    acme.use(1, name="unheard", at="2025-12-31T23:59:59Z")
    sandbox.advance("P1M")
    (month_end,) = reports(sandbox, "MonthEndReport")
    (uncharged,) = reports(sandbox, "UnchargedEvents")

    assert (month_end["events"], month_end["unchargedEvents"], uncharged["type"]) == (5, 3, "UnchargedEvents")
    assert uncharged["uncharged"] == [{"customerId": acme.id, "name": "unheard", "events": 3}]
