"""Contracts. Source: spec, "Resources and their fields", Contract; "Endpoints", Contracts."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from support.sandbox import INVALID, NOT_FOUND, TAKEN, Running, running
from support.scenarios import STARTED, contract, customer, cycle, fee, invoices


def plan(sandbox: Running, **fields: Any) -> str:
    """A new plan; its id."""
    made = sandbox.ok("POST", "/_sandbox/plans", {"name": "Growth", **fields})
    return str(made["plan"]["id"])


def listed(sandbox: Running, query: str = "") -> list[str]:
    return [each["id"] for each in sandbox.ok("GET", f"/contracts{query}")["contracts"]]


def params(answer: Any) -> list[str]:
    return [each["param"] for each in answer.json.get("params", [])] or [answer.json.get("param")]


def test_a_contract_is_created_with_an_id_and_timestamps(sandbox: Running) -> None:
    """Source: spec, "Endpoints", POST /contracts."""
    whole = {
        "startDate": "2026-02-01T00:00:00Z",
        "name": "Acme annual",
        "crmOpportunityId": "opp-1",
        "endDate": "2027-01-31T00:00:00Z",
        "signatureDate": "2026-01-14T00:00:00Z",
        "products": [fee(10, description="Every month", paymentTerm="Net30")],
        "productGroups": [{"displayName": "Support", "products": [fee(5)], "baseAmount": 3}],
        "creditGrants": [{"name": "Start", "creditProductId": "crp_1", "grantAmount": 5}],
        "accountManager": "Ada",
        "shouldProRateInvoices": False,
        "autoRenewContract": False,
        "status": "InReview",
        "purchaseOrder": "PO-1",
        "currency": "EUR",
        "isTrial": True,
        "externalId": "agr-77",
        "notInTheSpecification": {"kept": True},
    }
    owner = customer(sandbox)
    made = contract(sandbox, owner, **whole)
    read = sandbox.ok("GET", f"/contracts/{made['id']}")["contract"]

    assert {name: made[name] for name in whole} == whole
    assert made["customerId"] == owner
    assert made["id"].startswith("con_")
    assert (made["createdAt"], made["updatedAt"]) == (STARTED, STARTED)
    assert set(made) == {*whole, "customerId", "id", "createdAt", "updatedAt"}
    assert read == made


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


@pytest.fixture(scope="module")
def standing() -> Any:
    """A sandbox for requests that are refused, and a customer in it."""
    with running() as sandbox:
        yield sandbox, customer(sandbox)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"customerId": "cus_none"}, "customerId"),
    ({"name": None}, "name"),
    ({"name": None, "planId": "pln_none"}, "planId"),
    ({"status": "Expired"}, "status"),
    ({"currency": "dollars"}, "currency"),
    ({"externalId": " "}, "externalId"),
    ({"externalId": "x" * 256}, "externalId"),
    ({"startDate": "9100-01-01"}, "startDate"),
    ({"startDate": None}, "startDate"),
    ({"endDate": STARTED}, "endDate"),
    ({"endDate": "2026-01-10T12:00:01Z"}, "endDate"),
    ({"endDate": "2226-01-01"}, "endDate"),
    ({"products": [{"catalogProductId": "cat_none"}]}, "products.0.catalogProductId"),
    (
        {"productGroups": [{}, {"products": [fee(1), {"catalogProductId": "cat_none"}]}]},
        "productGroups.1.products.1.catalogProductId",
    ),
    (
        {"products": [fee(1), fee(1, scheduling=cycle("Fortnights", 1))]},
        "products.1.scheduling.duration.unit",
    ),
    (  # charged each month, the price of a year would be charged twelve times
        {"products": [fee(1, scheduling=cycle("Months", 1)), fee(12, scheduling=cycle("Years", 1))]},
        "products.1.scheduling.duration",
    ),
    (
        {
            "products": [fee(12, scheduling=cycle("Years", 1))],
            "productGroups": [{"products": [fee(1), fee(1, scheduling=cycle("Months", 1))]}],
        },
        "productGroups.0.products.1.scheduling.duration",
    ),
    ({"products": [fee(1, scheduling=cycle("Days", 1.5))]}, "products.0.scheduling.duration.value"),
    ({"products": [fee(1, scheduling=cycle("Years", 101))]}, "products.0.scheduling.duration.value"),
    ({"products": [fee(1, scheduling={"billingDay": 0})]}, "products.0.scheduling.billingDay"),
    (
        {"productGroups": [{"products": [fee(1), fee(1, scheduling={"billingDay": 1.5})]}]},
        "productGroups.0.products.1.scheduling.billingDay",
    ),
    ({"creditGrants": [{"grantAmount": -1}]}, "creditGrants.0.grantAmount"),
    ({"customFields": [{"customFieldName": "unknown", "value": 1}]}, "customFields.0"),
]
KINDS: list[tuple[dict[str, Any], str]] = [
    ({"products": [{"pricing": {"type": "Tier"}}]}, "products.0.pricing.type"),
    (
        {"products": [{"pricing": {"discount": {"type": "percentage", "amount": 5}}}]},
        "products.0.pricing.discount.type",
    ),
    ({"products": [{"commitment": {"type": "Money"}}]}, "products.0.commitment.type"),
    (
        {"products": [{"commitment": {"overageStrategy": "block"}}]},
        "products.0.commitment.overageStrategy",
    ),
    ({"productGroups": [{"commitment": {"type": "x"}}]}, "productGroups.0.commitment.type"),
    (
        {"creditGrants": [{"creditProductId": "c", "grantAmount": 1, "schedule": "monthly"}]},
        "creditGrants.0.schedule",
    ),
]
"""Values that decide about money, of which the specification shows none."""


def test_a_contract_that_cannot_be_is_refused(standing: Any) -> None:
    sandbox, owner = standing
    body = {"customerId": owner, "startDate": STARTED, "name": "Deal"}

    rows = [*KINDS, *WRONG]
    answers = [sandbox.call("POST", "/contracts", {**body, **fields}) for fields, _ in rows]

    assert [answer.error() for answer in answers] == [INVALID] * len(rows)
    assert [params(answer) for answer in answers] == [[param] for _, param in rows]
    assert all("must be one of" in answer.json["message"] for answer in answers[: len(KINDS)])
    assert listed(sandbox) == []


def test_an_external_id_is_one_contracts_at_a_time(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Contract, externalId."""
    owner = customer(sandbox)
    contract(sandbox, owner, externalId="agr-77")
    body = {"customerId": owner, "startDate": STARTED, "name": "Deal", "externalId": "agr-77"}
    again = sandbox.call("POST", "/contracts", body)
    sandbox.ok("DELETE", "/contracts/agr-77")
    after_deletion = sandbox.call("POST", "/contracts", body)

    assert again.error() == TAKEN
    assert params(again) == ["externalId"]
    assert after_deletion.status == 200


def test_contract_created_has_the_contract_and_its_customer(sandbox: Running) -> None:
    """Source: spec, "Events", ContractCreated."""
    owner = customer(sandbox, externalId="crm-1", aliases=["acme"])
    with_end = contract(sandbox, owner, endDate="2027-01-10T12:00:00Z", status="InReview")
    without = contract(sandbox, owner)
    told = [body for _, body in sandbox.raised("ContractCreated")]

    assert told[0] == {
        "date": STARTED,
        "contractId": with_end["id"],
        "customerId": owner,
        "contractName": "Deal",
        "status": "InReview",
        "startDate": STARTED,
        "endDate": "2027-01-10T12:00:00Z",
        "customer": {
            "date": STARTED,
            "customerId": owner,
            "name": "Acme",
            "externalId": "crm-1",
            "aliases": ["acme"],
            "integrationEntities": [],
        },
    }
    assert told[1]["contractId"] == without["id"]
    assert told[1]["status"] == "Active"
    assert told[1]["endDate"] is None


def test_at_most_one_of_customer_id_and_customer_external_id(standing: Any) -> None:
    """Source: spec, "Endpoints", GET /contracts."""
    sandbox, owner = standing

    answer = sandbox.call("GET", f"/contracts?customerId={owner}&customerExternalId=crm-1")

    assert answer.error() == INVALID
    assert params(answer) == ["customerId", "customerExternalId"]


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
