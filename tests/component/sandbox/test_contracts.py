"""Contracts. Source: spec, "Resources and their fields", Contract; "Endpoints", Contracts."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from support.sandbox import NOT_FOUND, Running
from support.scenarios import STARTED, contract, customer, cycle, fee, invoices


def plan(sandbox: Running, **fields: Any) -> str:
    """A new plan; its id."""
    made = sandbox.ok("POST", "/_sandbox/plans", {"name": "Growth", **fields})
    return str(made["plan"]["id"])


def listed(sandbox: Running, query: str = "") -> list[str]:
    return [each["id"] for each in sandbox.ok("GET", f"/contracts{query}")["contracts"]]


def test_a_contract_with_a_plan_ignores_products_and_groups(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Contract, planId: they "are ignored"."""
    plan_id = plan(sandbox, products=[fee(7)])
    body = {"customerId": customer(sandbox), "startDate": STARTED, "planId": plan_id}
    made = sandbox.ok("POST", "/contracts", {**body, "products": [fee(1)], "productGroups": ["none"]})
    read = sandbox.ok("GET", f"/contracts/{made['contract']['id']}")["contract"]
    sandbox.advance("P1M")
    billed = invoices(sandbox)

    assert {"products", "productGroups"} & set(read) == set()
    assert [each["amount"] for each in billed] == [7]


def test_the_sandboxs_internal_contract_fields_are_neither_shown_nor_accepted(sandbox: Running) -> None:
    made = contract(
        sandbox,
        id="mine",
        createdAt="1999-01-01",
        deletedAt=STARTED,
        cycleMonths=7,
        cycleAnchor="2026-01-05",
        cycleBillingDay=5,
        proRates=True,
        paymentDays=1,
    )
    sandbox.advance("P1M")
    (invoice,) = invoices(sandbox)

    assert made["id"] != "mine"
    assert made["createdAt"] == STARTED
    assert not {"deletedAt", "cycleMonths", "cycleDays", "cycleAnchor", "firstEndDate"} & set(made)
    assert not {"cycleBillingDay", "proRates", "paymentDays"} & set(made)
    assert invoice["billingCycle"] == {"startTime": STARTED, "endTime": "2026-02-10T12:00:00Z"}


def test_contract_created_has_the_contract_and_its_customer(sandbox: Running) -> None:
    """Source: spec, "Events", ContractCreated."""
    owner = customer(sandbox, externalId="crm-1", aliases=["acme"])
    with_end = contract(sandbox, owner, endDate="2027-01-10T12:00:00Z", status="InReview")
    without = contract(sandbox, owner)
    told = [body for _, body in sandbox.raised("ContractCreated")]
    [(_, created)] = sandbox.raised("CustomerCreated")

    assert told[0] == {
        "date": STARTED,
        "contractId": with_end["id"],
        "customerId": owner,
        "contractName": "Deal",
        "status": "InReview",
        "startDate": STARTED,
        "endDate": "2027-01-10T12:00:00Z",
        "customer": created,
    }
    changed = {"contractId": without["id"], "status": "Active", "endDate": None}
    assert told[1] == {**told[0], **changed}


def test_a_deleted_contract_has_deleted_at_and_is_404_afterwards(sandbox: Running) -> None:
    """Source: spec, "Endpoints", DELETE /contracts/{contractId}."""
    made = contract(sandbox)
    sandbox.advance("P1D")
    deleted = sandbox.ok("DELETE", f"/contracts/{made['id']}")["contract"]
    again = sandbox.call("DELETE", f"/contracts/{made['id']}")
    read = sandbox.call("GET", f"/contracts/{made['id']}")
    left = listed(sandbox)

    assert deleted["deletedAt"] == "2026-01-11T12:00:00Z"
    assert deleted["id"] == made["id"]
    assert again.error() == read.error() == NOT_FOUND
    assert left == []


EXTERNAL_IDS = ["agr-77", "agr/2026/77", "/agr//77/", "agr/activate", "Angebot%20Ä", "two\nlines"]


def test_an_external_id_stands_for_the_id_in_every_path(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Contract, externalId."""
    owner = customer(sandbox)
    for external_id in EXTERNAL_IDS:
        made = contract(sandbox, owner, externalId=external_id, status="InReview")
        address = f"/_sandbox/contracts/{quote(external_id, safe='')}"

        assert sandbox.ok("GET", f"/contracts/{quote(external_id, safe='')}")["contract"] == made
        active = sandbox.ok("POST", f"{address}/activate")["contract"]
        assert (active["id"], active["status"]) == (made["id"], "Active")
        deleted = sandbox.ok("DELETE", f"/contracts/{quote(external_id)}")["contract"]
        assert deleted["id"] == made["id"]


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
