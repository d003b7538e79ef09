"""Credits: granted, drawn by usage, deducted, expired, and always adding up."""

from __future__ import annotations

from typing import Any

import pytest

from support.sandbox import Answer, Running
from support.scenarios import Customer, invoices, metered, sent_to, top_up

PREPAID = {"pricing": {"type": "PerUnit", "price": 2}, "consumesCreditProductIds": ["crp_a", "crp_b"]}


def grant(customer: Customer, amount: float, product: str = "crp_a", **fields: Any) -> dict[str, Any]:
    """Grant credits directly; the ledger's entry."""
    wanted = {"customerId": customer.id, "creditAmount": amount, "creditProductId": product, **fields}
    return dict(customer.sandbox.ok("POST", "/_sandbox/credits/grant", wanted)["entry"])


def deduct(customer: Customer, amount: float) -> Answer:
    wanted = {"customerId": customer.id, "creditAmount": amount}
    return customer.sandbox.call("POST", "/credits/deduct", wanted)


def told_of(customer: Customer, entry: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What an event says of the pool of this entry, on the first day."""
    pool = {"creditPoolId": entry["creditPoolId"], "creditTypeId": "crp_a", "creditKind": "Monetary"}
    return {"date": "2026-01-10T12:00:00Z", "customerId": customer.id, **pool, **more}


def last_total(sandbox: Running) -> Any:
    return sandbox.ok("GET", "/invoices?limit=1000")["invoices"][-1]["revenueBreakdown"]


# --- the ledger -----------------------------------------------------------------------------------


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


def test_credit_pool_increased_has_both_balances(sandbox: Running) -> None:
    """Source: spec, "Events", CreditPoolIncreased."""
    acme = Customer.of(sandbox)
    grant(acme, 187.5)
    entry = grant(acme, 500)

    first, second = (body for _, body in sandbox.raised("CreditPoolIncreased"))

    assert (first["previousBalance"], first["balance"]) == (0, 187.5)
    assert second == told_of(acme, entry, grantedAmount=500, previousBalance=187.5, balance=687.5)


# --- deducting ------------------------------------------------------------------------------------


def test_credits_deduct_subtracts_from_what_expires_first(sandbox: Running) -> None:
    """Source: spec, "Endpoints", POST /credits/deduct; which credits go first is not shown."""
    acme = Customer.of(sandbox)
    grant(acme, 10, "crp_a")
    grant(acme, 10, "crp_b", expirationDate="2026-03-01T00:00:00Z")
    grant(acme, 10, "crp_a", expirationDate="2026-02-01T00:00:00Z")

    answer = deduct(acme, 24)

    assert (answer.status, answer.json) == (200, {})
    taken = [entry for entry in acme.ledger() if entry["type"] == "Deduction"]
    assert [(each["creditProductId"], each["amount"]) for each in taken] == [("crp_a", -14), ("crp_b", -10)]


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


# --- topping up -----------------------------------------------------------------------------------


def test_credits_top_up_grants_when_its_invoice_is_approved_and_once(sandbox: Running) -> None:
    """Source: spec, "Endpoints", POST /credits/top-up; "States and transitions", the moves shown."""
    acme = Customer.of(sandbox)

    answer = top_up(sandbox, acme.id)

    invoice = answer.json["invoiceId"]
    assert answer.json["customerId"] == acme.id
    assert last_total(sandbox)["total"] == 450
    assert acme.ledger() == []
    sandbox.ok("POST", f"/_sandbox/invoices/{invoice}/approve", {})
    sandbox.advance("P10D")
    (entry,) = acme.ledger()
    assert (entry["amount"], entry["invoiceId"]) == (500, invoice)


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


# --- contracts ------------------------------------------------------------------------------------


def test_contract_credit_grants_come_by_their_schedule(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", CreditGrant, schedule: its values are our choice."""
    wanted = {
        "Once": ["2026-01-10"],
        None: ["2026-01-10"],
        # of October, November and December at once: their cycles are billed now
        "Monthly": ["2026-01-10"] * 3 + ["2026-01-31", "2026-02-28", "2026-03-31"],
        "Quarterly": ["2026-01-10", "2026-01-31"],
        "Yearly": ["2026-01-10"],
    }
    owners = {schedule: Customer.of(sandbox, f"of-{schedule}") for schedule in wanted}
    contracts = {}
    for schedule, owner in owners.items():
        given = {"creditProductId": "crp_a", "grantAmount": 5, "schedule": schedule}
        contracts[schedule] = {owner.buy(startDate="2025-10-31T00:00:00Z", creditGrants=[given])}

    sandbox.advance("P85D")
    ledgers = {schedule: owner.ledger() for schedule, owner in owners.items()}
    sandbox.advance("P215D")
    yearly = [entry["createdAt"][:10] for entry in owners["Yearly"].ledger()]

    found = {schedule: [each["createdAt"][:10] for each in entries] for schedule, entries in ledgers.items()}
    assert found == wanted
    assert {name: {each["contractId"] for each in entries} for name, entries in ledgers.items()} == contracts
    assert yearly == ["2026-01-10", "2026-10-31"]
    assert len(owners["Once"].ledger()) == 1


@pytest.mark.slow
def test_contract_credit_grants_stop_at_the_contracts_end(sandbox: Running) -> None:
    monthly = [{"grantAmount": 5, "schedule": "Monthly"}]
    acme, other = Customer.of(sandbox), Customer.of(sandbox, "other")
    acme.buy(creditGrants=monthly, endDate="2026-02-01T00:00:00Z", autoRenewContract=False)
    sandbox.ok("DELETE", f"/contracts/{other.buy(creditGrants=monthly)}")

    sandbox.advance("P90D")

    assert acme.changes() == [("Grant", 5, 5)]
    assert other.changes() == [("Grant", 5, 5), ("Expiry", -5, 0)]


@pytest.mark.slow
def test_contract_credit_grants_expire_at_their_expiration_date(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", CreditGrant, expirationDate."""
    acme = Customer.of(sandbox)
    given = {"grantAmount": 5, "schedule": "Monthly", "expirationDate": "2026-02-15T00:00:00Z"}
    acme.buy(creditGrants=[given])
    grant(acme, 3, "crp_a")
    deduct(acme, 1)

    sandbox.advance("P90D")

    pools: dict[str, list[Any]] = {}
    for entry in acme.ledger():
        pools.setdefault(entry["creditProductId"], []).append((entry["type"], entry["amount"]))
    first, own = pools.values()
    assert first == [("Grant", 5), ("Deduction", -1), ("Grant", 5), ("Expiry", -4), ("Expiry", -5)]
    assert own == [("Grant", 3)]
    assert len(sandbox.raised("CreditPoolDepleted")) == 1


def test_contract_credit_grants_that_cannot_be_made_are_refused(sandbox: Running) -> None:
    wanted = {"customerId": Customer.of(sandbox).id, "name": "Odd", "startDate": "2026-01-01T00:00:00Z"}

    for given, param in (
        ({"grantAmount": 0}, "grantAmount"),
        ({"grantAmount": 5, "balanceKind": "Gold"}, "balanceKind"),
    ):
        answer = sandbox.call("POST", "/contracts", {**wanted, "creditGrants": [{"grantAmount": 1}, given]})

        assert (answer.status, answer.json["param"]) == (400, f"creditGrants.1.{param}")


@pytest.mark.slow
def test_contract_credit_grants_are_charged_in_the_cycle_in_which_they_are_made(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", CreditGrant, price."""
    acme = Customer.of(sandbox)
    given = {"name": "Pack", "grantAmount": 5, "price": 4.5}
    acme.buy(creditGrants=[{**given, "schedule": "Once"}, {**given, "price": 2, "schedule": "Monthly"}])

    sandbox.advance("P2M")

    invoices = sandbox.ok("GET", "/invoices")["invoices"]
    assert [invoice["amount"] for invoice in invoices] == [6.5, 2]


# --- usage draws ----------------------------------------------------------------------------------


def test_usage_draws_monetary_credits_by_its_price_and_the_rest_is_billed(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Contract, creditGrants: usage products draw them down."""
    acme = Customer.of(sandbox)
    contract = acme.buy({"catalogProductId": metered(sandbox), **PREPAID})
    grant(acme, 100)

    acme.use(10, 20)
    acme.use(30)

    used = [entry for entry in acme.ledger() if entry["type"] == "Usage"]
    sandbox.advance("P1M")
    breakdown = last_total(sandbox)
    assert [(each["amount"], each["balanceAfterEntry"]) for each in used] == [(-60, 40), (-40, 0)]
    assert {each["contractId"] for each in used} == {contract}
    assert (breakdown["subtotal"], breakdown["creditsUsed"], breakdown["total"]) == (120, 100, 20)


def test_usage_draws_unit_credits_by_the_unit(sandbox: Running) -> None:
    """Source: spec, "Events", creditKind: Monetary or Unit."""
    acme = Customer.of(sandbox)
    acme.buy({"catalogProductId": metered(sandbox), **PREPAID})
    grant(acme, 25, balanceKind="Unit")

    acme.use(10)
    acme.use(20)

    assert [amount for kind, amount, _ in acme.changes() if kind == "Usage"] == [-10, -15]
    sandbox.advance("P1M")
    breakdown = last_total(sandbox)
    assert (breakdown["subtotal"], breakdown["creditsUsed"], breakdown["total"]) == (60, 50, 10)


def test_usage_draws_the_credit_products_in_the_order_of_the_contract(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", ContractProduct, consumesCreditProductIds."""
    acme = Customer.of(sandbox)
    acme.buy({"catalogProductId": metered(sandbox), **PREPAID})
    grant(acme, 10, "crp_c")
    grant(acme, 10, "crp_b")
    grant(acme, 4, "crp_a", balanceKind="Unit")

    acme.use(6)

    used = [(each["creditProductId"], each["amount"]) for each in acme.ledger() if each["type"] == "Usage"]
    assert used == [("crp_a", -4), ("crp_b", -4)]


@pytest.mark.slow
def test_usage_draws_no_credits_that_are_not_applied_automatically(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", CreditGrant, applyAutomatically."""
    acme = Customer.of(sandbox)
    acme.buy({"catalogProductId": metered(sandbox), **PREPAID})
    grant(acme, 100, applyAutomatically=False)
    grant(acme, 6)

    acme.use(5)

    assert acme.changes()[-1] == ("Usage", -6, 100)
    assert deduct(acme, 100).status == 200


# --- what is told of pools ------------------------------------------------------------------------


def test_credit_pool_threshold_crossed_has_the_used_share(sandbox: Running) -> None:
    """Source: spec, "Events", CreditPoolThresholdCrossed; "Endpoints", POST /webhook, threshold."""
    acme = Customer.of(sandbox)
    entry = grant(acme, 1000)
    urls = [f"http://127.0.0.1:9/{number}" for number in range(2)]
    event_type = "CreditPoolThresholdCrossed"
    for url, threshold in zip(urls, ({"threshold": 50}, {}), strict=True):
        sandbox.ok("POST", "/webhook", {"callbackUrl": url, "eventType": event_type, **threshold})

    deduct(acme, 499)
    before = sandbox.raised(event_type)
    deduct(acme, 313.5)

    first, second = (body for _, body in sandbox.raised(event_type))
    assert before == []
    assert (first["threshold"], second["threshold"]) == (50, 80)
    assert [url for url, _ in sent_to(sandbox, event_type)] == urls
    assert second == told_of(acme, entry, threshold=80, pctUsage=81.25, balance=187.5)


def test_credit_pool_depleted_is_raised_when_nothing_is_left(sandbox: Running) -> None:
    """Source: spec, "Events", CreditPoolDepleted."""
    acme = Customer.of(sandbox)
    acme.buy({"catalogProductId": metered(sandbox), **PREPAID})
    entry = grant(acme, 20)

    acme.use(9)
    before = sandbox.raised("CreditPoolDepleted")
    acme.use(5)
    acme.use(5)

    bodies = [body for _, body in sandbox.raised("CreditPoolDepleted")]
    assert before == []
    assert bodies == [told_of(acme, entry, balance=0)]


# --- credit products ------------------------------------------------------------------------------


def test_credit_products_are_made_and_listed(sandbox: Running) -> None:
    """Source: spec, "Endpoints", Credits: listing credit products; path and shape are not shown."""
    made = [
        sandbox.ok("POST", "/_sandbox/creditProducts", {"name": name, **kind})["creditProduct"]
        for name, kind in (("Calls", {"balanceKind": "Unit"}), ("Money", {}))
    ]

    page = sandbox.ok("GET", "/_sandbox/creditProducts?limit=1")

    assert [each["balanceKind"] for each in made] == ["Unit", "Monetary"]
    assert (page["creditProducts"], page["total"], page["hasMore"]) == ([made[0]], 2, True)


def test_an_unknown_credit_product_is_created_by_its_first_grant(sandbox: Running) -> None:
    acme = Customer.of(sandbox)
    grant(acme, 5, "crp_from_the_dashboard", balanceKind="Unit")
    sandbox.ok("POST", "/_sandbox/credits/grant", {"customerId": acme.id, "creditAmount": 1})

    listed = sandbox.ok("GET", "/_sandbox/creditProducts")["creditProducts"]

    assert [(each["id"], each["balanceKind"]) for each in listed] == [("crp_from_the_dashboard", "Unit")]
    assert acme.changes() == [("Grant", 5, 5), ("Grant", 1, 6)]


# --- what becomes of them at borders ----------------------------------------------------------------


def test_unit_credits_are_drawn_beyond_a_minimum_charge(sandbox: Running) -> None:
    """A minimum of 100.00, 150 units at 1.00: 50 of them are beyond it."""
    acme, calls = Customer.of(sandbox), metered(sandbox)
    minimum = {"commitment": {"type": "Currency", "units": 100}, "pricing": {"type": "PerUnit", "price": 1}}
    acme.buy({**PREPAID, **minimum, "catalogProductId": calls})
    grant(acme, 60, balanceKind="Unit")
    acme.use(150)
    sandbox.advance("P30D")

    assert acme.changes()[1:] == [("Usage", -50, 10)]
    assert last_total(sandbox)["total"] == 100


def test_units_in_tiers_beyond_a_minimum_charge_are_drawn_at_the_end(sandbox: Running) -> None:
    """100 units at 1.00 and 20 at 0.50 make the minimum of 110.00, so 30 units are beyond it."""
    acme, calls = Customer.of(sandbox), metered(sandbox)
    tiers = [{"upTo": 100, "price": 1}, {"upTo": None, "price": 0.5}]
    minimum = {"type": "Currency", "units": 110}
    pricing = {"type": "Tiered", "tiers": tiers}
    acme.buy({**PREPAID, "pricing": pricing, "commitment": minimum, "catalogProductId": calls})
    grant(acme, 60, balanceKind="Unit")
    acme.use(150)
    sandbox.advance("P30D")

    assert acme.changes()[1:] == [("Usage", -30, 30)]
    assert last_total(sandbox)["total"] == 110


def test_usage_that_a_flat_price_pays_for_draws_no_credits(sandbox: Running) -> None:
    acme, calls = Customer.of(sandbox), metered(sandbox)
    acme.buy({**PREPAID, "pricing": {"type": "Flat", "price": 9}, "catalogProductId": calls})
    grant(acme, 60, balanceKind="Unit")
    acme.use(10)
    sandbox.advance("P30D")

    assert acme.changes() == [("Grant", 60, 60)]
    assert last_total(sandbox)["total"] == 9


PACK = {"name": "Pack", "creditProductId": "crp_a", "grantAmount": 100, "price": 90, "schedule": "Once"}


def test_a_deleted_contract_takes_back_what_is_left_of_its_credits(sandbox: Running) -> None:
    """Source: spec, "Endpoints", DELETE /contracts/{contractId}; what becomes of credits is not shown."""
    acme, calls = Customer.of(sandbox), metered(sandbox)
    grant(acme, 7)
    made = acme.buy({**PREPAID, "catalogProductId": calls}, creditGrants=[PACK])
    acme.use(10)
    sandbox.ok("DELETE", f"/contracts/{made}")
    taken = acme.ledger()[-1]
    sandbox.advance("P30D")

    assert acme.changes() == [
        ("Grant", 7, 7),
        ("Grant", 100, 107),
        ("Usage", -20, 87),
        ("Expiry", -87, 0),
    ]
    assert taken["contractId"] == made
    assert invoices(sandbox) == []


def test_a_top_up_whose_credits_have_expired_is_not_approved(sandbox: Running) -> None:
    """Source: spec, "States and transitions". The automatic approval comes a day after the invoice."""
    acme = Customer.of(sandbox)
    made = top_up(sandbox, acme.id, expirationDate="2026-01-11T00:00:00Z").json["invoiceId"]
    sandbox.advance("P2D")
    answers = [
        sandbox.call("POST", f"/_sandbox/invoices/{made}/approve"),
        sandbox.call("POST", f"/_sandbox/invoices/{made}/payments", {"outcome": "paid"}),
    ]

    assert [answer.error()[2] for answer in answers] == ["credits_expired", "not_approved"]
    assert acme.changes() == []
    assert [each["billingStatus"] for each in invoices(sandbox)] == ["None"]


def test_a_share_that_an_expiry_has_raised_is_told_by_the_next_use(sandbox: Running) -> None:
    """76.2 % of 105; 94.1 % of 85 after an expiry, which tells nothing; then 98.8 %, past 80."""
    acme = Customer.of(sandbox)
    grant(acme, 100, expirationDate="2026-01-12T00:00:00Z")
    grant(acme, 5, expirationDate="2026-01-22T00:00:00Z")
    deduct(acme, 80)
    sandbox.advance("P3D")
    before = sandbox.raised("CreditPoolThresholdCrossed")
    deduct(acme, 4)
    deduct(acme, 0.5)
    told = [(each["threshold"], each["pctUsage"]) for _, each in sandbox.raised("CreditPoolThresholdCrossed")]

    assert before == []
    assert told == [(80, 98.82)]
