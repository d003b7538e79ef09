"""The client and the sandbox were each written from the specification: all 28 operations between them."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from billhook.client import OPERATIONS, BillingClient
from billhook.errors import InvalidRequest, ResourceNotFound
from support.sandbox import API_TOKEN, Running, running

USED = 7


class Asked:
    """A client's operations by name; remembers which were called."""

    def __init__(self, client: BillingClient) -> None:
        self._client = client
        self.names: set[str] = set()

    def __call__(self, name: str, *arguments: Any, **named: Any) -> Any:
        assert name in OPERATIONS
        self.names.add(name)
        group, method = name.split(".")
        return getattr(getattr(self._client, group), method)(*arguments, **named)


@pytest.fixture
def service():
    with running() as sandbox:
        yield sandbox


def event(service: Running, number: int, **more: Any) -> dict[str, Any]:
    at = service.sandbox.clock.now() + timedelta(seconds=number)
    return {"name": "call", "timestamp": at, "customerAlias": "acme", "ref": f"ref-{number}", **more}


def test_each_operation_does_what_the_specification_says(service: Running) -> None:
    own = service.sandbox.call
    integration = {"type": "Salesforce", "id": "0015g/1", "name": "Acme"}
    wanted = {"name": "Acme", "externalId": "acme", "externalIntegration": [integration]}
    acme = own("POST", "/_sandbox/customers", wanted)["customer"]["id"]
    plan_id = own("POST", "/_sandbox/plans", {"name": "Growth"})["plan"]["id"]
    now = service.sandbox.clock.now()
    with BillingClient(service.url, "sandbox", API_TOKEN, clock=service.real) as client:
        ask = Asked(client)
        ask("auth.login")
        product = ask("catalog_products.create", {"name": "API calls", "externalId": "sku-1"})
        assert [one.id for one in ask("catalog_products.list")] == [product.id]
        assert ask("catalog_products.update", product.id, {"description": "Calls"}).name == "API calls"
        assert ask("catalog_products.get", product.id).description == "Calls"
        meter = {"name": "Calls", "eventName": "call", "aggregationMethod": "count", "key": "calls"}
        meter_id = own("POST", "/_sandbox/meters", {**meter, "catalogProductId": product.id})["meter"]["id"]
        sold = {"catalogProductId": product.id, "pricing": {"type": "PerUnit", "price": 2}}
        contract = ask(
            "contracts.create",
            {"customerId": acme, "name": "Use", "startDate": now, "externalId": "agr/7", "products": [sold]},
        )
        assert [one.id for one in ask("contracts.list", customer_external_id="acme")] == [contract.id]
        assert client.contracts.get("agr/7") == client.contracts.get(contract.id)
        assert client.contracts.get(contract.id).name == "Use"

        ask("webhooks.subscribe", "http://127.0.0.1:9/hook", "CommitmentUsageCrossed", threshold=80)
        tried = ask("events.dry_run", [event(service, 0)])
        assert [one.matched_customer for one in tried.events] == [acme]
        assert list(ask("events.query", now, now + timedelta(days=1))) == []
        assert len(ask("events.submit_v1", [event(service, n) for n in range(3)]).valid_events) == 3
        taken = ask("events.submit", [event(service, n) for n in range(2, USED)])
        assert [one.event.ref for one in taken.invalid_events] == ["ref-2"]
        assert len(list(ask("events.query", now, now + timedelta(days=1), limit=2))) == USED
        period = {"startTime": now, "endTime": now + timedelta(days=1)}
        keys = [{"key": "calls", "eventName": "call"}]
        added = ask(
            "events.aggregate",
            {"customerId": acme, "period": period, "meters": keys, "groupBy": "customer"},
        )
        assert [one.values for one in added.data_points] == [{"calls": USED}]
        for found in (
            ask("customers.products_consumptions", acme),
            ask("customers.products_consumptions_by_alias", "acme"),
        ):
            assert [one.consumed_amount for one in found] == [USED]
        day = {"year": now.year, "month": now.month, "day": now.day}
        corrected = {"customerId": acme, "meterId": meter_id, "usageDate": day, "value": 9}
        assert ask("measurements.create", corrected).value == 9

        grant = {"name": "Pack", "creditProductId": "crp_1", "balanceKind": "Monetary", "grantAmount": 100}
        topped = ask("credits.top_up", acme, {**grant, "schedule": "Once", "price": 90})
        assert ask("invoices.get", topped.invoice_id).amount == 90
        own("POST", f"/_sandbox/invoices/{topped.invoice_id}/approve", {})
        ask("credits.deduct", acme, 25)
        assert [one.balance_after_entry for one in ask("credits.list", acme)] == [100, 75]

        changed = ask(
            "customers.update",
            acme,
            {"customFields": [{"customFieldName": "region", "valueType": "String", "value": "EU"}]},
        )
        assert [one.value for one in changed.custom_field_values] == ["EU"]
        assert ask("customers.get_by_integration", "Salesforce", "0015g/1").id == acme
        assert ask("plans.get", plan_id).name == "Growth"
        (field,) = ask("custom_fields.list")
        assert ask("custom_fields.get", field.id).custom_field_name == "region"
        ask("cloud_usage.submit", {"productCode": "API-1", "results": [{"idempotencyKey": "k-1"}]})

        own("POST", "/_sandbox/clock", {"advance": "P33D"})
        billed = [one for one in ask("invoices.list", customer_id=acme) if one.contract_id == contract.id]
        assert [one.amount for one in billed] == [Decimal(18)]
        assert ask("contracts.delete", "agr/7").deleted_at is not None

    assert ask.names == set(OPERATIONS)


def test_each_error_of_the_specification_is_the_exception_of_its_row(service: Running) -> None:
    with BillingClient(service.url, "sandbox", API_TOKEN, clock=service.real) as client:
        with pytest.raises(ResourceNotFound, match="there is no such invoice"):
            client.invoices.get("inv_none")
        acme = service.sandbox.call("POST", "/_sandbox/customers", {"name": "Acme"})["customer"]["id"]
        period = {"startTime": "2026-01-01", "endTime": "2026-01-02"}
        meters = [{"key": "calls", "eventName": "call"}]
        with pytest.raises(InvalidRequest, match="groupBy") as caught:
            client.events.aggregate(
                {"customerId": acme, "period": period, "meters": meters, "groupBy": "moon"}
            )
        assert caught.value.param == "groupBy"
