"""Credits: granted, drawn by usage, deducted, expired, and always adding up."""

from __future__ import annotations

from typing import Any

from support.sandbox import Answer, Running
from support.scenarios import Customer, top_up


def grant(customer: Customer, amount: float, product: str = "crp_a", **fields: Any) -> dict[str, Any]:
    """Grant credits directly; the ledger's entry."""
    wanted = {"customerId": customer.id, "creditAmount": amount, "creditProductId": product, **fields}
    return dict(customer.sandbox.ok("POST", "/_sandbox/credits/grant", wanted)["entry"])


def deduct(customer: Customer, amount: float) -> Answer:
    wanted = {"customerId": customer.id, "creditAmount": amount}
    return customer.sandbox.call("POST", "/credits/deduct", wanted)


def test_credits_lists_the_ledger_of_a_customer_page_by_page(sandbox: Running) -> None:
    """Source: spec, "Endpoints", GET /credits."""
    acme, other = Customer.of(sandbox), Customer.of(sandbox, "other")
    for amount in (10, 20, 30):
        grant(acme, amount)
    grant(other, 99)

    first = sandbox.ok("GET", f"/credits?customerId={acme.id}&limit=2")
    rest = sandbox.ok("GET", f"/credits?customerId={acme.id}&limit=2&cursor={first['nextCursor']}")

    assert (first["total"], first["hasMore"], rest["hasMore"]) == (3, True, False)
    entries = [*first["entries"], *rest["entries"]]
    assert [(each["amount"], each["balanceAfterEntry"]) for each in entries] == [(10, 10), (20, 30), (30, 60)]
    assert {each["type"] for each in entries} == {"Grant"}
    assert all(each["id"].startswith("cle_") for each in entries)


def test_credits_deduct_refuses_more_than_there_is_and_takes_nothing(sandbox: Running) -> None:
    """Source: spec, "Errors": the error for deducting more credits than available is not shown."""
    acme = Customer.of(sandbox)
    grant(acme, 10)

    refused = deduct(acme, 10.01)

    assert refused.error() == (400, "invalid_request_error", "insufficient_credits")
    assert refused.json["param"] == "creditAmount"
    assert acme.changes() == [("Grant", 10, 10)]
    assert deduct(acme, 10).status == 200


def test_amounts_of_credits_are_above_zero_and_of_a_customer(sandbox: Running) -> None:
    acme, nobody = Customer.of(sandbox), Customer(sandbox, "cus_0")

    wrong = [(acme, 0, "creditAmount"), (acme, -5, "creditAmount"), (nobody, 1, "customerId")]
    for owner, amount, param in wrong:
        body = {"customerId": owner.id, "creditAmount": amount}
        given = sandbox.call("POST", "/_sandbox/credits/grant", body)
        topped_up = top_up(sandbox, owner.id, grantAmount=amount)
        assert [answer.status for answer in (given, topped_up, deduct(owner, amount))] == [400] * 3
        assert given.json["param"] == deduct(owner, amount).json["param"] == param
    assert acme.ledger() == []


def test_credits_top_up_needs_a_whole_grant_that_can_be_made(sandbox: Running) -> None:
    """Source: spec, "Endpoints", POST /credits/top-up: what the grant needs."""
    acme = Customer.of(sandbox)
    needed = ("name", "creditProductId", "balanceKind", "grantAmount", "schedule")
    wrong = [
        *((field, None) for field in needed),
        ("balanceKind", "Gold"),
        ("price", -1),
        ("price", 10**300),
        ("grantAmount", 10**101),
        ("expirationDate", "2026-01-10T12:00:00Z"),
        ("creditProductId", " "),
    ]

    answers = [top_up(sandbox, acme.id, **{field: value}) for field, value in wrong]

    assert [(answer.status, answer.json["param"]) for answer in answers] == [
        (400, f"creditGrant.{field}") for field, _ in wrong
    ]


def test_contract_credit_grants_that_cannot_be_made_are_refused(sandbox: Running) -> None:
    wanted = {"customerId": Customer.of(sandbox).id, "name": "Odd", "startDate": "2026-01-01T00:00:00Z"}

    for given, param in (
        ({"grantAmount": 0}, "grantAmount"),
        ({"grantAmount": 5, "balanceKind": "Gold"}, "balanceKind"),
    ):
        answer = sandbox.call("POST", "/contracts", {**wanted, "creditGrants": [{"grantAmount": 1}, given]})

        assert (answer.status, answer.json["param"]) == (400, f"creditGrants.1.{param}")


def test_credit_products_are_made_and_listed(sandbox: Running) -> None:
    """Source: spec, "Endpoints", Credits: listing credit products; path and shape are not shown."""
    made = [
        sandbox.ok("POST", "/_sandbox/creditProducts", {"name": name, **kind})["creditProduct"]
        for name, kind in (("Calls", {"balanceKind": "Unit"}), ("Money", {}))
    ]

    page = sandbox.ok("GET", "/_sandbox/creditProducts?limit=1")

    assert [each["balanceKind"] for each in made] == ["Unit", "Monetary"]
    assert (page["creditProducts"], page["total"], page["hasMore"]) == ([made[0]], 2, True)
