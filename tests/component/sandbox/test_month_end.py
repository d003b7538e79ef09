"""The end of a month. Source: spec, "Events", MonthEndReport and UnchargedEvents."""

from __future__ import annotations

from typing import Any

from support.sandbox import NOT_FOUND, Running
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
        "unsoldEvents": 0,
        "unsold": [],
        "newCustomers": 1,
        "newContracts": 3,
        "billed": [],
    }
    assert (february["newCustomers"], february["newContracts"]) == (0, 0)
    assert february["billed"] == [
        {"currency": "EUR", "invoices": 1, "amount": 2.5},
        {"currency": "USD", "invoices": 2, "amount": 15},
    ]


def test_uncharged_events_lists_unmetered_and_unsold_usage(sandbox: Running) -> None:
    """Source: spec, "Events", UnchargedEvents."""
    acme, other = Customer.of(sandbox), Customer.of(sandbox, "other")
    sold = {"catalogProductId": metered(sandbox)}
    metered(sandbox, "storage")
    acme.buy(sold)
    other.buy(sold, status="InReview")
    acme.use(1, 1)
    acme.use(1, name="storage")
    acme.use(1, 1, name="unheard")
    acme.use(1, name="unheard", at="2025-12-31T23:59:59Z")
    other.use(1)
    sandbox.advance("P1M")
    month_end = reports(sandbox, "MonthEndReport")[0]
    uncharged = reports(sandbox, "UnchargedEvents")
    kinds = [kind for kind, body in sandbox.raised() if "reportId" in body]
    ids = {body["reportId"] for _, body in sandbox.raised() if "reportId" in body}

    assert kinds == ["MonthEndReport", "UnchargedEvents"]
    assert len(ids) == 2
    assert (month_end["events"], month_end["unchargedEvents"], month_end["unsoldEvents"]) == (7, 3, 2)
    assert uncharged[0]["type"] == "UnchargedEvents"
    assert uncharged[0]["uncharged"] == [{"customerId": acme.id, "name": "unheard", "events": 3}]
    for report in (month_end, uncharged[0]):
        assert sorted(report["unsold"], key=lambda each: each["customerId"] != acme.id) == [
            {"customerId": acme.id, "name": "storage", "events": 1},
            {"customerId": other.id, "name": "call", "events": 1},
        ]


def test_control_a_fully_charged_month_raises_no_uncharged_events(sandbox: Running) -> None:
    """The control of the test above."""
    acme = Customer.of(sandbox)
    acme.buy({"catalogProductId": metered(sandbox)})
    acme.use(1)
    sandbox.advance("P1M")
    month_end = reports(sandbox, "MonthEndReport")[0]
    uncharged = sandbox.raised("UnchargedEvents")

    assert (month_end["events"], month_end["unchargedEvents"]) == (1, 0)
    assert uncharged == []


def test_a_report_that_is_not_there_is_not_found(sandbox: Running) -> None:
    answer = sandbox.call("GET", "/_sandbox/reports/rep_none")

    assert answer.error() == NOT_FOUND
