"""Random histories come out as they did: a digest tells that billing has changed, not which one is right."""

from __future__ import annotations

import json
from collections import defaultdict
from decimal import Decimal

import pytest

from support.histories import DIGESTS, digest, history

KNOWN = dict(line.split() for line in DIGESTS.read_text().splitlines())
FEW = 3


@pytest.mark.parametrize("seed", [int(seed) for seed in KNOWN][:FEW])
def test_a_history_comes_out_as_before_and_its_ledgers_add_up(seed: int) -> None:
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", [int(seed) for seed in KNOWN][FEW:])
def test_each_of_many_histories_comes_out_as_before(seed: int) -> None:
    check(seed)


def check(seed: int) -> None:
    told = history(seed)
    ledgers = [
        json.loads(line.removeprefix("ledger ")) for line in told.splitlines() if line[:7] == "ledger "
    ]

    assert len(ledgers) == 2
    for entries in ledgers:
        balances = defaultdict[str, Decimal](Decimal)
        for entry in entries:
            balances[entry["creditPoolId"]] += Decimal(entry["amount"])
            assert Decimal(entry["balanceAfterEntry"]) == balances[entry["creditPoolId"]] >= 0
    assert digest(told) == KNOWN[f"{seed:04}"]
