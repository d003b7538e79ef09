"""What usage passes: tiers, commitments and percentages, each told once in a cycle."""

from __future__ import annotations

from support.receivers import subscribe
from support.sandbox import Running
from support.scenarios import Customer, metered, sent_to


def test_a_threshold_event_goes_only_to_the_subscriptions_that_set_it(sandbox: Running) -> None:
    """Source: spec, "Endpoints", POST /webhook, threshold and recurringThreshold."""
    product = metered(sandbox)
    acme = Customer.of(sandbox)
    acme.buy({"catalogProductId": product, "commitment": {"units": 100}})
    event_type = "CommitmentUsageCrossed"

    def address(number: int, **thresholds: float) -> str:
        subscribe(sandbox, event_type, url := f"http://127.0.0.1:9/{number}", **thresholds)
        return url

    half = address(1, threshold=50)
    also_half = address(2, threshold=50)
    usual = address(3)
    often = address(4, threshold=60, recurringThreshold=15)
    only_often = address(5, recurringThreshold=25)

    acme.use(55)
    acme.use(36)

    marks = [body["threshold"] for _, body in sandbox.raised(event_type)]
    sent = sent_to(sandbox, event_type)

    ids = list(dict.fromkeys(raised_id for _, raised_id in sent))
    by_mark = {
        mark: {url for url, each in sent if each == raised_id}
        for mark, raised_id in zip(marks, ids, strict=True)
    }
    assert by_mark == {
        25: {only_often},
        50: {half, also_half, only_often},
        60: {often},
        75: {often, only_often},
        80: {usual},
        90: {often},
    }
