"""Rating against a slow and obvious second computation, which looks at each unit by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from billhook.sandbox.billing.usage.rating import (
    CommitmentTerms,
    PricedUsage,
    PriceTerms,
    Tier,
    UsageAmount,
    apply_commitment,
    rate,
)

CLOSE = Decimal("1e-6")  # what a Currency commitment includes of a unit is a fraction, and rounded


@dataclass(frozen=True)
class Product:
    """A product: the number of units used of it, those before this cycle, and what each unit costs."""

    used: int
    before: int
    ends: tuple[int, ...]
    prices: tuple[int, ...]

    def price_of(self, number: int) -> int:
        """The price of the unit with this number, counted from 1, by the tier that it lies in."""
        for end, price in zip(self.ends, self.prices, strict=False):
            if number <= end:
                return price
        return self.prices[-1]

    def priced(self) -> PricedUsage:
        last = Tier(None, Decimal(self.prices[-1]))
        tiers = [
            Tier(Decimal(end), Decimal(price)) for end, price in zip(self.ends, self.prices, strict=False)
        ]
        return PricedUsage(
            terms=PriceTerms(tiers=(*tiers, last)),
            units=Decimal(self.used),
            units_before=Decimal(self.before),
        )


@st.composite
def products(draw: st.DrawFn) -> Product:
    ends = draw(st.sets(st.integers(1, 30), max_size=3))
    prices = draw(st.lists(st.integers(0, 5), min_size=len(ends) + 1, max_size=len(ends) + 1))
    used = draw(st.integers(0, 40))
    return Product(used, draw(st.integers(0, used)), tuple(sorted(ends)), tuple(prices))


COMMITMENTS = st.one_of(
    st.just(CommitmentTerms()),
    st.builds(
        lambda units, blocks: CommitmentTerms(units=Decimal(units), blocks=blocks),
        st.integers(1, 40),
        st.booleans(),
    ),
    st.builds(
        lambda money, blocks: CommitmentTerms(money=Decimal(money), in_money=True, blocks=blocks),
        st.integers(1, 60),
        st.booleans(),
    ),
)


@dataclass
class Unit:
    """What is beyond the commitment of one unit: a share of it, and the money for that."""

    share: Fraction
    money: Fraction


def units_beyond(product: Product, committed: CommitmentTerms, left: Fraction) -> tuple[list[Unit], Fraction]:
    """Each unit beyond a commitment of which so much is left; and what is left of that afterwards.

    Behind a unit that it does not wholly include, it includes none, not even one at a price of 0.
    """
    units: list[Unit] = []
    for number in range(1, product.used + 1):
        price = Fraction(product.price_of(number))
        need = price if committed.in_money else Fraction(1)
        is_included = need <= left and not any(unit.share for unit in units)
        share = Fraction(0) if is_included else 1 - (left / need if need else 0)
        left -= min(need, left)
        units.append(Unit(share, Fraction(0) if committed.blocks else price * share))
    return units, left


def owed(
    product: Product, units: list[Unit], committed: CommitmentTerms, unit_credits: int, money_credits: int
) -> Fraction:
    """What a cycle's units cost after credits: those of kind Unit pay for the last ones."""
    mine = units[product.before :]
    if committed.blocks:
        return Fraction(0)
    left = Fraction(unit_credits)
    for unit in reversed(mine):
        drawn = min(unit.share, left)
        left -= drawn
        if unit.share:
            unit.money -= unit.money * drawn / unit.share
            unit.share -= drawn
    cost = sum((unit.money for unit in mine), Fraction(0))
    return max(cost - money_credits, Fraction(0))


def draw(part: PricedUsage, unit_credits: int, money_credits: int) -> PricedUsage:
    units = min(rate(part).due.units, Decimal(unit_credits))
    part = replace(part, covered=part.covered.plus(UsageAmount(units=units)))
    money = min(rate(part).due.money, Decimal(money_credits))
    return replace(part, covered=part.covered.plus(UsageAmount(money=money)))


@given(products(), COMMITMENTS, st.integers(0, 30), st.integers(0, 60))
@example(Product(10, 0, (2,), (1, 1)), CommitmentTerms(money=Decimal(3), in_money=True), 10, 0)
def test_a_cycle_costs_what_its_units_cost(
    product: Product, committed: CommitmentTerms, unit_credits: int, money_credits: int
) -> None:
    """The cycle may be a later one of a commitment that lasts for several."""
    (part,) = apply_commitment([product.priced()], committed)
    whole = Fraction(committed.money if committed.in_money else committed.units)
    units, _ = units_beyond(product, committed, whole)

    rated = rate(draw(part, unit_credits, money_credits))

    gross = owed(product, units_beyond(product, committed, whole)[0], committed, 0, 0)
    assert abs(rated.usage - Decimal(gross.numerator) / gross.denominator) < CLOSE
    expected = owed(product, units, committed, unit_credits, money_credits)
    assert abs(rated.usage - rated.credits_used - Decimal(expected.numerator) / expected.denominator) < CLOSE


@given(st.lists(products(), min_size=1, max_size=3), COMMITMENTS, st.integers(0, 30), st.integers(0, 60))
@example([Product(2, 0, (1,), (2, 0))], CommitmentTerms(money=Decimal(1), in_money=True), 1, 0)
@example([Product(1, 0, (), (1,))] * 2, CommitmentTerms(units=Decimal(1)), 0, 0)
@example([Product(1, 0, (), (1,))] * 2, CommitmentTerms(money=Decimal(1), in_money=True), 0, 0)
def test_products_use_up_a_commitment_one_after_the_other(
    sold: list[Product], committed: CommitmentTerms, unit_credits: int, money_credits: int
) -> None:
    first = [Product(each.used, 0, each.ends, each.prices) for each in sold]
    left = Fraction(committed.money if committed.in_money else committed.units)

    for product, part in zip(
        first, apply_commitment([each.priced() for each in first], committed), strict=True
    ):
        units, left = units_beyond(product, committed, left)
        rated = rate(draw(part, unit_credits, money_credits))

        expected = owed(product, units, committed, unit_credits, money_credits)
        assert (
            abs(rated.usage - rated.credits_used - Decimal(expected.numerator) / expected.denominator) < CLOSE
        )
