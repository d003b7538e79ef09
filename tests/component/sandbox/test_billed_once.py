"""All usage is billed once and at its price, whatever the contracts and the order in which things happen."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.business import (
    DAYS,
    LATER,
    MEASURED,
    PRICED,
    SOLD,
    USED,
    WEEKS,
    Business,
    Measured,
    Sold,
    Step,
    Used,
    Waited,
)  # fmt: skip
from support.sandbox import fresh_sandbox


def due(steps: list[Step]) -> int:
    """What should be billed, by a look at every hour: each is sold or not, and a measurement is of a day."""
    sellers = [each for each in steps if isinstance(each, Sold) and each.meter == "call"]
    active = [each for each in sellers if each.status == "Active"]
    sold = [any(each.start <= hour < each.end for each in active) for hour in range((DAYS + 1) * 24)]
    measured = {each.day: each.units for each in steps if isinstance(each, Measured)}
    events = [each for each in steps if isinstance(each, Used) and each.hour // 24 not in measured]
    by_events = sum(each.units for each in events if sold[each.hour])
    by_day = sum(units for day, units in measured.items() if any(sold[day * 24 : day * 24 + 24]))
    return by_events + by_day


@pytest.mark.slow
@settings(max_examples=20)
@given(
    st.lists(SOLD | USED | USED | MEASURED | st.builds(Waited, st.sampled_from([5, 30, 100])), max_size=14)
)
@example([Sold(0, 24, "call"), Waited(100), Used(0, 1), Sold(24, 48, "call")])
def test_usage_and_contracts_in_any_order_are_billed_once(steps: list[Step]) -> None:
    with fresh_sandbox() as sandbox:
        business = Business(sandbox)
        for step in steps:
            business.take(step)

        assert business.billed()[0] == due(steps)


@pytest.mark.slow
@settings(max_examples=30)
@given(PRICED, st.lists(LATER | LATER | st.builds(Waited, st.sampled_from([30, 100, 200])), max_size=12))
@example(
    Sold(0, WEEKS * 168, "call", tiers=((3, 5),), committed=4),
    [Used(1, 2), Waited(200), Used(2, 4), Used(170, 9), Waited(200), Used(0, 9)],
)
def test_each_week_costs_what_its_units_cost_whenever_they_arrive(sold: Sold, steps: list[Step]) -> None:
    used = [step for step in steps if isinstance(step, Used)]
    weeks = [sum(each.units for each in used if each.hour // 168 == week) for week in range(WEEKS)]
    with fresh_sandbox() as sandbox:
        business = Business(sandbox)
        for step in [sold, *steps]:
            business.take(step)

        assert business.billed()[1] == sum(map(sold.price_of, weeks))
