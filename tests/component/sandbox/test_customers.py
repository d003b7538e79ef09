"""Customers. Source: spec, "Resources and their fields", Customer; "Endpoints", Customers."""

from __future__ import annotations

from typing import Any

from support.sandbox import NOT_FOUND, Running
from support.scenarios import contract


def made(sandbox: Running, **fields: Any) -> Any:
    """A new customer."""
    answer = sandbox.ok("POST", "/_sandbox/customers", {"name": "Acme Ltd", **fields})
    return answer["customer"]


def test_a_customer_is_found_by_its_counterpart_at_another_provider(sandbox: Running) -> None:
    """Source: spec, "Endpoints", GET /customers/integration/{integrationType}/{integrationId}."""
    entries = [{"type": "Salesforce", "id": "a/b c"}, {"type": "NetSuite", "id": "4711"}]
    entries.append({"type": "Odd", "id": "/a"})
    made(sandbox)
    customer = made(sandbox, externalIntegration=entries)
    found = [
        sandbox.ok("GET", f"/customers/integration/{path}")["customer"]
        for path in ("Salesforce/a%2Fb%20c", "Salesforce/a/b%20c", "NetSuite/4711", "Odd/%2Fa")
    ]
    missing = [
        sandbox.call("GET", f"/customers/integration/{path}").error()
        for path in ("NetSuite/a%2Fb%20c", "netsuite/4711", "NetSuite/471", "NetSuite/%FF")
    ]

    assert found == [customer] * 4
    assert set(missing) == {NOT_FOUND}


def test_a_new_customer_is_active_and_raises_customer_created(sandbox: Running) -> None:
    """Source: spec, "States and transitions", customer status; "Events", CustomerCreated."""
    customer = made(
        sandbox,
        aliases=["a"],
        externalId="x",
        externalIntegration=[{"type": "Salesforce", "id": "0015g"}],
    )
    raised = sandbox.raised()

    assert customer["status"] == "Active"
    assert raised == [
        (
            "CustomerCreated",
            {
                "date": "2026-01-10T12:00:00Z",
                "customerId": customer["id"],
                "name": "Acme Ltd",
                "externalId": "x",
                "aliases": ["a"],
                "integrationEntities": [
                    {
                        "integrationProvider": "Salesforce",
                        "integrationExternalId": "0015g",
                        "syncStatus": "Synced",
                    }
                ],
            },
        )
    ]


def test_a_customer_with_a_contract_raises_no_new_customer_without_contract(sandbox: Running) -> None:
    """Source: spec, "Events", NewCustomerWithoutContract."""
    contract(sandbox, made(sandbox)["id"], status="InReview")
    without = made(sandbox, name="Other")["id"]
    sandbox.advance("P8D")
    told = [body for _, body in sandbox.raised("NewCustomerWithoutContract")]

    assert told == [{"date": "2026-01-17T12:00:00Z", "customerId": without, "customerName": "Other"}]
