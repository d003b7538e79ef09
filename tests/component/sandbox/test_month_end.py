"""The end of a month. Source: spec, "Events", MonthEndReport and UnchargedEvents."""

from __future__ import annotations

from support.sandbox import Running
from support.scenarios import Customer, dates, metered


def test_each_month_has_a_report_of_its_own(sandbox: Running) -> None:
    sandbox.advance("P2M")
    ids = {body["reportId"] for _, body in sandbox.raised("MonthEndReport")}

    assert dates(sandbox, "MonthEndReport") == ["2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"]
    assert len(ids) == 2
    assert all(each.startswith("rep_") for each in ids)


def test_uncharged_events_is_raised_for_usage_that_no_meter_counted_since_the_report_before(
    sandbox: Running,
) -> None:
    """Source: spec, "Events", UnchargedEvents: events exist not counted against any meter."""
    acme = Customer.of(sandbox)
    acme.buy({"catalogProductId": metered(sandbox)})
    acme.use(1)
    sandbox.advance("P1M")
    counted = dates(sandbox, "UnchargedEvents")
    acme.use(1, name="unheard", at="2025-12-31T23:59:59Z")
    sandbox.advance("P1M")
    late = dates(sandbox, "UnchargedEvents")
    sandbox.advance("P1M")
    told_once = dates(sandbox, "UnchargedEvents")
    acme.use(1, name="unheard", at="2026-04-10T12:00:00Z")
    sandbox.advance("P1M")

    assert counted == []
    assert late == told_once == ["2026-03-01T00:00:00Z"]
    assert dates(sandbox, "UnchargedEvents") == ["2026-03-01T00:00:00Z", "2026-05-01T00:00:00Z"]
