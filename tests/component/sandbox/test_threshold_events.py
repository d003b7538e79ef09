"""What usage passes: tiers, commitments and percentages, each told once in a cycle."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billhook.sandbox.billing.money import ZERO
from billhook.sandbox.billing.rating import Tier
from billhook.sandbox.billing.thresholds import (
    MAX_RECURRING_AT_ONCE,
    ThresholdRule,
    exceeds_final_tier,
    percent,
    thresholds_crossed,
    tiers_entered,
)
from support.sandbox import Running
from support.scenarios import STARTED, Customer, metered, sent_to

TIERS = (Tier(Decimal(10), ZERO), Tier(Decimal(20), ZERO), Tier(Decimal(30), ZERO))
BY_TIER = {
    "type": "Tiered",
    "tiers": [{"upTo": 10, "price": 3}, {"upTo": 20, "price": 2}, {"upTo": 30, "price": 1}],
}
whole_units = st.integers(0, 500).map(Decimal)


# --- what lies between two states -----------------------------------------------------------------


ENTERED = [
    (0, 10, [], False),
    (0, 11, [2], False),
    (10, 20, [2], False),
    (5, 31, [2, 3], True),
    (31, 99, [], False),
]


def test_a_tier_is_entered_by_the_first_unit_above_the_previous_tier() -> None:
    for before, after, entered, final in ENTERED:
        was, now = Decimal(before), Decimal(after)

        assert [number for number, _ in tiers_entered(TIERS, was, now)] == entered
        assert exceeds_final_tier(TIERS, was, now) is final


def test_a_last_tier_without_an_end_is_never_exceeded() -> None:
    endless = (Tier(Decimal(10), ZERO), Tier(None, ZERO))

    assert not exceeds_final_tier(endless, ZERO, Decimal(10**12))
    assert not exceeds_final_tier((), ZERO, Decimal(10**12))


@given(st.lists(whole_units, min_size=1), st.integers(1, 150), st.integers(0, 40))
def test_marks_are_the_same_whether_usage_comes_at_once_or_bit_by_bit(
    steps: list[Decimal], threshold: int, recurring: int
) -> None:
    watch, committed = ThresholdRule(Decimal(threshold), Decimal(recurring) or None), Decimal(1000)
    total = min(sum(steps), Decimal(2000))

    told, stood = [], ZERO
    for step in steps:
        stands = min(stood + step, total)
        told += [mark for mark, _ in thresholds_crossed([watch], committed, stood, stands)]
        stood = stands

    at_once = [mark for mark, _ in thresholds_crossed([watch], committed, ZERO, total)]
    assert at_once == told[-MAX_RECURRING_AT_ONCE:]
    assert told == sorted(set(told))
    assert all(mark * 10 <= total for mark in told)


@given(whole_units, whole_units, st.integers(1, 300))
def test_a_mark_is_passed_exactly_when_its_share_is_reached(
    one: Decimal, other: Decimal, threshold: int
) -> None:
    before, after, committed = min(one, other), max(one, other), Decimal(150)

    passed = thresholds_crossed([ThresholdRule(Decimal(threshold))], committed, before, after)

    assert bool(passed) is (before * 100 < threshold * committed <= after * 100)


def test_only_the_last_of_many_recurring_thresholds_are_raised() -> None:
    passed = thresholds_crossed(
        [ThresholdRule(Decimal(80), Decimal("0.001"))], Decimal(1), ZERO, Decimal(10**9)
    )

    assert len(passed) == MAX_RECURRING_AT_ONCE
    assert passed[-1][0] == 10**11


def test_a_share_is_rounded_down_so_that_it_never_shows_a_mark_not_reached() -> None:
    assert percent(Decimal("79.9999"), Decimal(100)) == Decimal("79.99")
    assert percent(Decimal(1), Decimal(3)) == Decimal("33.33")
    assert percent(Decimal(5), ZERO) == 0


# --- over HTTP ------------------------------------------------------------------------------------


def subscribe(sandbox: Running, event_type: str, number: int, **thresholds: float) -> str:
    url = f"http://127.0.0.1:9/{number}"
    sandbox.ok("POST", "/webhook", {"callbackUrl": url, "eventType": event_type, **thresholds})
    return url


def test_a_threshold_is_a_percentage_above_zero(sandbox: Running) -> None:
    """Source: spec, "Endpoints", POST /webhook: their values are not shown."""
    wanted = {"callbackUrl": "http://127.0.0.1:9/", "eventType": "CreditPoolThresholdCrossed"}
    for field in ("threshold", "recurringThreshold"):
        refused = sandbox.call("POST", "/webhook", {**wanted, field: 0})
        taken = sandbox.call("POST", "/webhook", {**wanted, field: 0.5})

        assert (refused.status, refused.json["param"], taken.status) == (400, field, 200)


def told(sandbox: Running, event_type: str, field: str) -> list[Any]:
    return [body[field] for _, body in sandbox.raised(event_type)]


def of(acme: Customer, contract: str) -> dict[str, Any]:
    """What events of tiers say of a contract."""
    contract_fields = {"contractId": contract, "contractName": "Annual"}
    return {"date": STARTED, "customerId": acme.id, "customerName": "Acme", **contract_fields}


def test_tier_crossed_is_raised_once_in_a_cycle_for_each_tier_in_rising_order(sandbox: Running) -> None:
    """Source: spec, "Events", TierCrossed."""
    product = metered(sandbox)
    acme = Customer.of(sandbox)
    contract = acme.buy({"catalogProductId": product, "pricing": BY_TIER})

    acme.use(10)
    at_the_border = sandbox.raised("TierCrossed")
    acme.use(4, 4, 5)
    acme.use(1)

    first, second = (body for _, body in sandbox.raised("TierCrossed"))

    assert at_the_border == []
    assert [first["variantId"], second["variantId"]] == [f"{product}:tier2", f"{product}:tier3"]
    assert {**first, "variantId": ""} == {**of(acme, contract), "variantId": ""}


@pytest.mark.slow
def test_tier_crossed_is_raised_again_in_the_next_cycle(sandbox: Running) -> None:
    product = metered(sandbox)
    acme = Customer.of(sandbox)
    acme.buy({"catalogProductId": product, "pricing": BY_TIER})
    acme.use(11)

    sandbox.advance("P1M")
    acme.use(9, at="2026-02-10T09:00:00Z")
    quiet = told(sandbox, "TierCrossed", "date")
    acme.use(9, at="2026-02-10T09:00:00Z")

    assert quiet == ["2026-01-10T12:00:00Z"]
    assert told(sandbox, "TierCrossed", "date") == ["2026-01-10T12:00:00Z", "2026-02-10T12:00:00Z"]


def test_final_tier_exceeded_is_raised_after_the_tiers_below_it(sandbox: Running) -> None:
    """Source: spec, "Events", FinalTierExceeded."""
    product = metered(sandbox)
    acme = Customer.of(sandbox)
    contract = acme.buy({"catalogProductId": product, "pricing": BY_TIER})

    acme.use(31)

    raised = [name for name, _ in sandbox.raised()][-3:]
    _, body = sandbox.raised("FinalTierExceeded")[0]

    assert raised == ["TierCrossed", "TierCrossed", "FinalTierExceeded"]
    assert body == {
        **of(acme, contract),
        "productId": product,
        "productName": "calls",
        "accumulatedUnitsValue": 31,
    }


def test_commitment_crossed_is_raised_when_all_of_it_is_used(sandbox: Running) -> None:
    """Source: spec, "Events", CommitmentCrossed."""
    product = metered(sandbox)
    acme = Customer.of(sandbox)
    acme.buy({"catalogProductId": product, "commitment": {"units": 100, "price": 10}})

    acme.use(99.5)
    before = sandbox.raised("CommitmentCrossed")
    acme.use(25.5)
    acme.use(1)

    bodies = [body for _, body in sandbox.raised("CommitmentCrossed")]

    assert before == []
    assert bodies == [
        {
            "productId": product,
            "productName": "calls",
            "provisionedAmount": 100,
            "consumedAmount": 125,
            "usagePercentage": 125,
            "hasAccess": True,
            "remainingAmount": 0,
            "exceededAmount": 25,
        }
    ]


def test_commitment_usage_crossed_is_at_80_percent_if_nothing_else_is_set(sandbox: Running) -> None:
    """Source: spec, "Events", CommitmentUsageCrossed; "Endpoints", POST /webhook, threshold."""
    product = metered(sandbox)
    acme = Customer.of(sandbox)
    acme.buy({"catalogProductId": product, "commitment": {"units": 1000}})

    acme.use(799)
    before = sandbox.raised("CommitmentUsageCrossed")
    acme.use(13)

    bodies = [body for _, body in sandbox.raised("CommitmentUsageCrossed")]

    assert before == []
    assert bodies == [
        {
            "date": "2026-01-10T12:00:00Z",
            "customerId": acme.id,
            "threshold": 80,
            "pctUsage": 81.2,
            "productConsumption": {
                "productId": product,
                "productName": "calls",
                "provisionedAmount": 1000,
                "consumedAmount": 812,
                "usagePercentage": 81.2,
                "hasAccess": True,
                "remainingAmount": 188,
            },
        }
    ]


def test_a_threshold_event_goes_only_to_the_subscriptions_that_set_it(sandbox: Running) -> None:
    """Source: spec, "Endpoints", POST /webhook, threshold and recurringThreshold."""
    product = metered(sandbox)
    acme = Customer.of(sandbox)
    acme.buy({"catalogProductId": product, "commitment": {"units": 100}})
    event_type = "CommitmentUsageCrossed"
    half = subscribe(sandbox, event_type, 1, threshold=50)
    also_half = subscribe(sandbox, event_type, 2, threshold=50)
    usual = subscribe(sandbox, event_type, 3)
    often = subscribe(sandbox, event_type, 4, threshold=60, recurringThreshold=15)
    only_often = subscribe(sandbox, event_type, 5, recurringThreshold=25)

    acme.use(55)
    acme.use(36)

    marks = told(sandbox, event_type, "threshold")
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


def test_a_threshold_is_raised_once_however_often_measurements_pass_it(sandbox: Running) -> None:
    product = metered(sandbox)
    subscribe(sandbox, "CommitmentUsageCrossed", 1, threshold=10, recurringThreshold=30)
    acme = Customer.of(sandbox)
    acme.buy({"catalogProductId": product, "commitment": {"units": 100}})
    for value in (45, 5, 75, 0, 80, 200):
        acme.measure(product, value)

    assert told(sandbox, "CommitmentUsageCrossed", "threshold") == [10, 40, 70, 100, 130, 160, 190]


def test_currency_commitment_usage_crossed_has_the_money_used(sandbox: Running) -> None:
    """Source: spec, "Events", CurrencyCommitmentUsageCrossed."""
    product = metered(sandbox)
    acme = Customer.of(sandbox)
    acme.buy(
        {
            "catalogProductId": product,
            "pricing": {"type": "PerUnit", "price": 2.5},
            "commitment": {"type": "Currency", "price": 1000},
        },
        currency="EUR",
    )
    subscribe(sandbox, "CurrencyCommitmentUsageCrossed", 1, threshold=75)

    acme.use(299)
    before = sandbox.raised("CurrencyCommitmentUsageCrossed")
    acme.use(26)

    bodies = [body for _, body in sandbox.raised("CurrencyCommitmentUsageCrossed")]
    of_units = sandbox.raised("CommitmentUsageCrossed")
    early = sandbox.raised("CommitmentCrossed")
    acme.use(75)
    ((_, crossed),) = sandbox.raised("CommitmentCrossed")

    assert before == of_units == early == []
    assert (crossed["provisionedAmount"], crossed["consumedAmount"]) == (1000, 1000)
    assert bodies == [
        {
            "date": "2026-01-10T12:00:00Z",
            "productId": product,
            "productName": "calls",
            "customerId": acme.id,
            "threshold": 75,
            "pctUsage": 81.25,
            "currency": "EUR",
            "committedAmount": 1000,
            "consumedAmount": 812.5,
            "cycleStart": "2026-01-01T00:00:00Z",
        }
    ]
