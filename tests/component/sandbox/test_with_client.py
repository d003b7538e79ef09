"""The typed client, against the sandbox's entities. Source: spec, "Endpoints"; "Authentication", rule 4."""

from __future__ import annotations

import pytest

from billhook.client import BillingClient
from billhook.errors import AuthenticationFailed, ResourceNotFound
from support.sandbox import API_TOKEN, running


def test_the_client_reads_what_the_entities_answer_and_logs_in_again_when_its_token_is_over() -> None:
    with running() as sandbox:
        sandbox.ok("POST", "/_sandbox/customFields", {"customFieldName": "region"})
        plan = sandbox.ok("POST", "/_sandbox/plans", {"name": "Growth"})["plan"]
        entry = {"type": "S F", "id": "a/b?#"}
        body = {"name": "Acme", "externalIntegration": [entry]}
        made = sandbox.ok("POST", "/_sandbox/customers", body)["customer"]
        with BillingClient(sandbox.url, "sandbox", API_TOKEN, clock=sandbox.real) as client:
            fields = [{"customFieldName": "region", "value": "EMEA"}]
            changed = client.customers.update(made["id"], {"legalName": "Acme plc", "customFields": fields})
            sandbox.real.advance(seconds=7200)
            found = client.customers.get_by_integration("S F", "a/b?#")
            read = client.plans.get(plan["id"])
            defined = list(client.custom_fields.list())
            client.cloud_usage.submit({"results": [{"idempotencyKey": "k"}], "productCode": "API-1"})
            with pytest.raises(ResourceNotFound, match="there is no such plan"):
                client.plans.get("pln_none")

    assert found == changed
    assert [(each.field_name, each.value) for each in changed.custom_field_values or []] == [
        ("region", "EMEA")
    ]
    assert read.name == "Growth"
    assert [each.custom_field_name for each in defined] == ["region"]


def test_the_client_is_told_when_its_api_token_was_replaced() -> None:
    """Source: spec, "Authentication", rule 3."""
    with (
        running() as sandbox,
        BillingClient(sandbox.url, "sandbox", API_TOKEN, clock=sandbox.real) as client,
    ):
        before = list(client.catalog_products.list())
        sandbox.ok("POST", "/_sandbox/tokens")
        within_the_hour = list(client.catalog_products.list())
        sandbox.real.advance(seconds=3600)
        with pytest.raises(AuthenticationFailed, match="not the API token that is active"):
            list(client.catalog_products.list())

    assert before == within_the_hour == []
