"""Usage that comes when its cycle is billed. The specification does not say what becomes of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from support.sandbox import START, Running, running
from support.scenarios import STARTED, Customer, cycle, invoice_amounts, metered

TIERS = [{"upTo": 100, "price": 1}, {"upTo": None, "price": 0.5}]
SEVEN_PERCENT = {"type": "Percentage", "amount": 7}


def per_unit(product: str, price: float = 1, **more: Any) -> dict[str, Any]:
    return {"catalogProductId": product, "pricing": {"type": "PerUnit", "price": price}, **more}


def set_clock(sandbox: Running, moment: datetime) -> None:
    sandbox.ok("POST", "/_sandbox/clock", {"to": moment.isoformat()})
    sandbox.token = ""  # it may be over


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_usage_costs_the_same_in_all_whether_it_comes_late_or_not(seed: int) -> None:
    """Tiers, a discount, a group and commitments: 60 events of five months, each up to 60 days late."""
    on_time, late = (total(seed, is_late=is_late) for is_late in (False, True))

    assert late == on_time > 0


def total(seed: int, *, is_late: bool) -> Decimal:
    """What the invoices of eight months come to."""
    chance, events = Random(seed), []
    for number in range(60):
        day, days_late = chance.randrange(150), chance.randrange(60)
        comes = day + (days_late if is_late else 0)
        events.append((comes, number, day, chance.choice(["call", "mail", "disk"]), chance.randrange(1, 30)))
    with running() as sandbox:
        acme = Customer.of(sandbox)
        calls, mails, disks = (metered(sandbox, name) for name in ("call", "mail", "disk"))
        acme.buy(
            {
                "catalogProductId": calls,
                "pricing": {"type": "Tiered", "tiers": TIERS, "discount": SEVEN_PERCENT},
                "commitment": {"units": 150, "price": 90, "scheduling": cycle("Months", 3)},
            },
            productGroups=[
                {
                    "products": [per_unit(mails, 0.37), per_unit(disks, 2)],
                    "commitment": {"units": 40, "price": 9},
                }
            ],
            startDate=STARTED,
        )
        for comes, _, day, name, units in sorted(events):
            set_clock(sandbox, START + timedelta(days=comes, hours=1))
            acme.use(units, name=name, at=(START + timedelta(days=day)).isoformat())
        set_clock(sandbox, START + timedelta(days=240))
        return sum((Decimal(str(each)) for each in invoice_amounts(sandbox)), Decimal(0))
