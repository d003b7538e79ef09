"""Whose usage it is: by the moment, by the commitment's period, by the older contract, once in a contract."""

from __future__ import annotations

import pytest

from support.sandbox import Running
from support.scenarios import contract, customer, cycle, fee, invoices


def test_a_commitment_that_is_for_no_whole_number_of_cycles_is_refused(sandbox: Running) -> None:
    owner = customer(sandbox)
    body = {"customerId": owner, "startDate": "2026-01-10T12:00:00Z", "name": "Deal"}
    answers = [
        sandbox.call("POST", "/contracts", {**body, "products": [fee(1, **terms)]})
        for terms in (
            {"commitment": {"units": 1, "scheduling": cycle("Weeks", 1)}},
            {"scheduling": cycle("Months", 2), "commitment": {"scheduling": cycle("Months", 3)}},
            {"commitment": {"units": 1, "scheduling": cycle("months", 1)}},
        )
    ]

    param = "products.0.commitment.scheduling.duration"
    assert [(each.status, each.json.get("param")) for each in answers] == [(400, param)] * 3


@pytest.mark.slow
def test_more_than_400_cycles_that_are_over_are_refused(sandbox: Running) -> None:
    daily = {"products": [fee(1, scheduling=cycle("Days", 1))], "name": "Deal"}
    owner = customer(sandbox)
    body = {**daily, "customerId": owner, "startDate": "2024-12-06T12:00:00Z"}
    answer = sandbox.call("POST", "/contracts", {**body, "startDate": "2024-12-05T12:00:00Z"})
    contract(sandbox, owner, **body)
    count = len(invoices(sandbox))

    assert (answer.status, answer.json["param"]) == (400, "startDate")
    assert count == 400
