"""Custom fields. Source: spec, "Resources and their fields", Custom-field definition; "Endpoints"."""

from __future__ import annotations

from typing import Any

from support.sandbox import Answer, Running

REGION = {
    "customFieldName": "region",
    "valueType": "String",
    "fieldPath": "Region__c",
    "integrationSource": "Salesforce",
    "integrationEntityType": "Account",
}


def given(sandbox: Running, *inputs: Any, customer_id: str | None = None) -> Answer:
    """What a customer, a new one unless it is said, gets for these customFields."""
    if customer_id is None:
        customer_id = sandbox.ok("POST", "/_sandbox/customers", {"name": "Acme"})["customer"]["id"]
    return sandbox.call("PUT", f"/customers/{customer_id}", {"customFields": list(inputs)})


def values(answer: Answer) -> dict[str, str]:
    """The values of a customer's fields by their names."""
    assert answer.status == 200, answer.body
    return {each["fieldName"]: each["value"] for each in answer.json["customer"]["customFieldValues"]}


def test_an_input_with_name_and_type_defines_a_field_that_is_listed_and_read(sandbox: Running) -> None:
    """Source: spec, "Endpoints", GET /customFields and GET /customFields/{customFieldId}."""
    set_so = values(given(sandbox, {**REGION, "value": "EMEA"}))
    listed = sandbox.ok("GET", "/customFields")
    (made,) = listed["customFields"]
    read = sandbox.ok("GET", f"/customFields/{made['id']}")["customField"]

    assert set_so == {"region": "EMEA"}
    assert {**REGION, "entity": "Customer"}.items() <= made.items()
    assert read == made
    assert (listed["total"], listed["hasMore"], listed["nextCursor"]) == (1, False, None)


def test_a_custom_field_value_of_the_right_type_is_stored_as_text(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Customer, customFieldValues: strings."""
    good: list[tuple[str, Any, str]] = [
        ("String", "EMEA", "EMEA"),
        ("String", "", ""),
        ("Number", 5, "5"),
        ("Number", -1.25, "-1.25"),
        ("Boolean", True, "true"),
        ("Boolean", False, "false"),
        ("Date", "2026-01-15", "2026-01-15"),
        ("Date", "2026-01-15T09:30:00+01:00", "2026-01-15T09:30:00+01:00"),
    ]
    kinds = ("String", "Number", "Boolean", "Date")
    given(sandbox, *({"customFieldName": kind, "valueType": kind} for kind in kinds))
    kept = [
        values(given(sandbox, {"customFieldName": value_type, "value": value}))
        for value_type, value, _ in good
    ]

    assert kept == [{value_type: text} for value_type, _, text in good]
