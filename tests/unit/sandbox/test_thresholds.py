"""What usage passes: tiers, commitments and percentages, each told once in a cycle."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from billhook.sandbox.billing.usage.money import ZERO
from billhook.sandbox.billing.usage.rating import Tier
from billhook.sandbox.billing.usage.thresholds import (
    MAX_RECURRING_AT_ONCE,
    ThresholdRule,
    exceeds_final_tier,
    percent,
    thresholds_crossed,
    tiers_entered,
)

TIERS = (Tier(Decimal(10), ZERO), Tier(Decimal(20), ZERO), Tier(Decimal(30), ZERO))
whole_units = st.integers(0, 500).map(Decimal)


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
