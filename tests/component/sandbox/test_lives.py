"""Money and credits together are what was used in force, however usage changes its owner: a random search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from billhook.sandbox.billing.contracts import contracts
from billhook.sandbox.billing.credits import credit_pools
from billhook.sandbox.billing.invoicing import metered_items
from support.lives import Delete, Grant, Life, Measure, Sell, Step, Terms, Use, Wait, random_life
from support.sandbox import fresh_sandbox
from support.usage_owed import mistakes

LIVES = 2000
FEW = (7, 9, 12, 18)
"""Lives in which usage changes its owner after credits have paid for it."""


def lived(steps: list[Step]) -> list[str]:
    with fresh_sandbox() as sandbox:
        life = Life(sandbox)
        life.live(steps)
        return list(mistakes(life))


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(FEW, id="few"),
        *(
            pytest.param(range(first, first + 100), id=f"from {first}", marks=pytest.mark.long)
            for first in range(0, LIVES, 100)
        ),
    ],
)
@pytest.mark.timeout(900)
def test_money_and_credits_are_what_was_used_in_force(seeds: Sequence[int]) -> None:
    found = {seed: each for seed in seeds if (each := lived(random_life(seed)))}

    assert found == {}


ONE = (Terms("call", (1,), consumes=("m", "u")),)
SOLD = Sell("acme", start=0, end=None, cycle_days=7, terms=ONE, is_active=True)
STORIES: dict[str, list[Step]] = {
    "a deletion": [SOLD, Grant("acme", "m", Decimal(9)), Use("acme", "call", 5, 9), Delete(0)],
    "a correction": [
        SOLD, Grant("acme", "u", Decimal(9)), Measure("acme", "call", 0, 9), Measure("acme", "call", 0, 3),
    ],
    "a hand-over": [replace(SOLD, end=36), Measure("acme", "call", 1, 5), Wait(100), SOLD],
}  # fmt: skip
FAULTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "a deletion": (credit_pools, "reverse_cycles", lambda *_: set()),
    "a correction": (metered_items, "reverse_credits", lambda _tx, _cycle, usage: (usage, set())),
    "a hand-over": (contracts, "taken_over", lambda *_: ()),
}
"""What each story needs, and what does without it, as the sandbox once did."""


@pytest.mark.parametrize("story", STORIES)
def test_the_search_finds_what_is_paid_twice(story: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = lived(STORIES[story])
    monkeypatch.setattr(*FAULTS[story])
    wrong = lived(STORIES[story])

    assert (right, bool(wrong)) == ([], True)
