"""What many ask for at one time: each rule holds as if they had come one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from support.sandbox import Answer, running
from support.scenarios import Customer, customer

MANY = 20


def at_once(act: Callable[[int], Any]) -> list[Any]:
    """What `act` gives for each number, all at the same time."""
    with ThreadPoolExecutor(MANY) as pool:
        return list(pool.map(act, range(MANY)))


def outcomes(answers: list[Answer]) -> Counter[str]:
    """How many were done, and how many refused with which code."""
    return Counter("done" if each.status == 200 else each.json["code"] for each in answers)


def test_of_many_contracts_with_one_external_id_one_is_made() -> None:
    """Source: spec, "Resources and their fields", Contract, externalId."""
    with running() as sandbox:
        acme = customer(sandbox)
        wanted = {"customerId": acme, "name": "Deal", "startDate": "2026-01-10", "externalId": "deal-1"}
        answers = at_once(lambda _: sandbox.call("POST", "/contracts", wanted))
        kept = sandbox.ok("GET", "/contracts")["total"]
        told = sandbox.raised("ContractCreated")

    assert outcomes(answers) == {"done": 1, "already_exists": MANY - 1}
    assert (kept, len(told)) == (1, 1)


def test_of_many_deductions_as_many_are_done_as_there_are_credits() -> None:
    """Source: spec, "Endpoints", POST /credits/deduct."""
    with running() as sandbox:
        acme = Customer.of(sandbox)
        sandbox.ok("POST", "/_sandbox/credits/grant", {"customerId": acme.id, "creditAmount": 50})
        body = {"customerId": acme.id, "creditAmount": 10}
        answers = at_once(lambda _: sandbox.call("POST", "/credits/deduct", body))
        balances = [balance for _, _, balance in acme.changes()]

    assert outcomes(answers) == {"done": 5, "insufficient_credits": MANY - 5}
    assert balances == [50, 40, 30, 20, 10, 0]
