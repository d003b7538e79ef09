"""Which contract usage belongs to, against a look at every hour of some days."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from billhook.sandbox.billing.contracts.contracts import Seller, last_days, owned_spans

DAYS = 4
MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
PRODUCT = "cat_1"


def at(hour: int) -> datetime:
    return MIDNIGHT + timedelta(hours=hour)


@st.composite
def contracts(draw: st.DrawFn) -> list[tuple[int, int, bool]]:
    """First and last hour of each contract, and whether it sells the product, by their claims."""
    hours = st.integers(0, DAYS * 24)
    return draw(st.lists(st.tuples(hours, hours, st.booleans()), min_size=1, max_size=4))


@given(contracts())
def test_each_hour_belongs_to_the_first_contract_that_sells_it_then(
    terms: list[tuple[int, int, bool]],
) -> None:
    sellers = sellers_of(terms)
    owned = {
        seller.contract_id: owned_spans(sellers, seller.contract_id, PRODUCT, (seller.start, seller.end))
        for seller in sellers
        if PRODUCT in seller.product_ids and seller.start < seller.end
    }
    found = [
        [number for number in owned if any(start <= at(hour) < end for start, end in owned[number])]
        for hour in range(DAYS * 24)
    ]

    assert found == [owners[:1] for owners in owners_by_hour(terms)]


@given(contracts())
def test_each_measured_day_belongs_to_the_contract_of_its_last_hour_that_is_sold(
    terms: list[tuple[int, int, bool]],
) -> None:
    sellers, owners = sellers_of(terms), owners_by_hour(terms)
    for day in range(DAYS):
        of_day = [each[0] for each in owners[day * 24 : day * 24 + 24] if each]
        found = []
        for seller in sellers:
            if PRODUCT in seller.product_ids and seller.start < seller.end:
                spans = owned_spans(sellers, seller.contract_id, PRODUCT, (seller.start, seller.end))
                at_end = any(start < at(day * 24 + 24) <= end for start, end in spans)
                if at_end or at(day * 24) in last_days(sellers, PRODUCT, spans):
                    found.append(seller.contract_id)

        assert found == of_day[-1:]


def sellers_of(terms: list[tuple[int, int, bool]]) -> list[Seller]:
    return [
        Seller(str(number), at(start), at(end), {PRODUCT} if sells else {"cat_2"})
        for number, (start, end, sells) in enumerate(terms)
    ]


def owners_by_hour(terms: list[tuple[int, int, bool]]) -> list[list[str]]:
    """The contracts that sell the product in each hour, the one with the first claim at the beginning."""
    return [
        [str(number) for number, (start, end, sells) in enumerate(terms) if sells and start <= hour < end]
        for hour in range(DAYS * 24)
    ]
