"""Custom fields. Source: spec, "Resources and their fields", Custom-field definition; "Endpoints"."""

from __future__ import annotations

from typing import Any

from support.sandbox import Running

REGION = {
    "customFieldName": "region",
    "valueType": "String",
    "fieldPath": "Region__c",
    "integrationSource": "Salesforce",
    "integrationEntityType": "Account",
}


def test_a_custom_field_is_defined_listed_and_read_and_values_are_stored_as_text(sandbox: Running) -> None:
    """Source: spec, "Endpoints", GET /customFields and GET /customFields/{customFieldId}; Customer."""
    owner = sandbox.ok("POST", "/_sandbox/customers", {"name": "Acme"})["customer"]["id"]

    def values(field: dict[str, Any]) -> list[str]:
        made = sandbox.ok("PUT", f"/customers/{owner}", {"customFields": [field]})["customer"]
        return [each["value"] for each in made["customFieldValues"] if each["fieldName"] in field.values()]

    assert values({**REGION, "value": "EMEA"}) == ["EMEA"]
    (made,) = sandbox.ok("GET", "/customFields")["customFields"]
    assert {**REGION, "entity": "Customer"}.items() <= made.items()
    assert sandbox.ok("GET", f"/customFields/{made['id']}")["customField"] == made
    for kind, value, text in (
        ("String", "", ""),
        ("Number", 5, "5"),
        ("Number", -1.25, "-1.25"),
        ("Boolean", True, "true"),
        ("Boolean", False, "false"),
        ("Date", "2026-01-15", "2026-01-15"),
        ("Date", "2026-01-15T09:30:00+01:00", "2026-01-15T09:30:00+01:00"),
    ):
        assert values({"customFieldName": kind, "valueType": kind, "value": value}) == [text]
