"""The forms of operations: what is filled in comes back as it was, whatever the operation's models are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from billhook.fields import sample, strict_json
from billhook.sandbox.operations import Operation
from billhook.sandbox.pages.forms import OTHER, FormField, make_fields, nest, read_fields
from billhook.sandbox.pages.operation_views import OWN_FIELDS
from billhook.sandbox.sandbox import GROUPS

OPERATIONS = {one.key: one for group in GROUPS for one in group.operations}
WITH_BODY = sorted(key for key, one in OPERATIONS.items() if one.has_body)
ADDRESS = {"city": "London", "country": "United Kingdom"}


def no_options(_: str) -> list[tuple[str, str]]:
    return []


def sent(fields: Sequence[FormField]) -> Iterator[tuple[str, str]]:
    """What a browser sends: each field by its place, empty ones too."""
    for one in fields:
        if one.kind in ("object", "list"):
            yield from sent(one.parts)
        else:
            yield one.place, one.text


def again(operation: Operation, values: Any) -> Any:
    """What comes back from the form that is filled with `values`."""
    shown = make_fields(operation, values, no_options)
    return read_fields(make_fields(operation, nest(sent(shown)), no_options))


@pytest.mark.parametrize("key", WITH_BODY)
def test_a_request_comes_back_from_its_form_as_it_was(key: str) -> None:
    operation = OPERATIONS[key]
    assert operation.takes is not None
    request = strict_json.loads(sample(operation.takes).to_request())
    assert isinstance(request, dict)
    path = dict.fromkeys(operation.path_names, "id-1")

    assert again(operation, {**path, **request}) == path | {
        name: value for name, value in request.items() if value not in ({}, [], None)
    }


def test_fields_that_no_model_lists_are_kept() -> None:
    tiers = [{"upTo": 100, "price": 1}]
    request = {"name": "x", "products": [{"pricing": {"type": "Tiered", "tiers": tiers}}]}

    assert again(OPERATIONS["POST /contracts"], {**request, OTHER: {"note": "n"}}) == {
        **request,
        OTHER: {"note": "n"},
    }


def test_what_is_no_number_and_no_json_stays_as_it_was_typed() -> None:
    grant = again(OPERATIONS["POST /_sandbox/credits/grant"], {"customerId": "c", "creditAmount": "many"})
    event = again(OPERATIONS["PUT /events"], {"events": [{"name": "a", "data": "{broken"}]})

    assert grant == {"customerId": "c", "creditAmount": "many"}
    assert event == {"events": [{"name": "a", "data": "{broken"}]}


def test_required_fields_are_those_of_the_model_and_of_entries_that_are_there() -> None:
    fields = make_fields(OPERATIONS["POST /_sandbox/meters"], {"filters": [{}]}, no_options)
    required = {one.name for one in fields if one.required}
    [filters] = [one for one in fields if one.name == "filters"]
    methods = next(one.options for one in fields if one.name == "aggregationMethod")

    assert required == {"name", "eventName", "aggregationMethod"}
    assert {one.name for one in filters.parts[0].parts if one.required} == {"property", "operator"}
    assert [value for value, _ in methods] == ["count", "sum", "max", "last", "unique"]


def test_a_value_that_is_not_offered_can_still_be_chosen() -> None:
    operation = OPERATIONS["POST /credits/deduct"]
    offered = {"customerId": [("cus_1", "Acme")]}
    fields = make_fields(operation, {"customerId": "cus_2"}, lambda name: offered.get(name, []))

    assert next(one.options for one in fields if one.name == "customerId") == [
        ("cus_1", "Acme"),
        ("cus_2", "cus_2"),
    ]


def test_read_only_fields_are_not_offered() -> None:
    names = {one.name for one in make_fields(OPERATIONS["PUT /customers/{customerId}"], {}, no_options)}

    assert {"customerId", "name", "currency"} <= names
    assert not {"paidAmount", "customFieldValues", "id"} & names


def test_fields_that_contradict_each_other_do_no_harm() -> None:
    assert nest([("a", "1"), ("a.b", "2"), ("a.b.c", "3")]) == {"a": "1"}
    assert nest([("a.b", "2"), ("a", "1")]) == {"a": "1"}
    assert nest([("a", "  "), ("b.c", "")]) == {}
    assert nest([(".".join("a" * 100_000), "1"), ("b", "2")]) == {"b": "2"}
    assert again(OPERATIONS["POST /contracts"], {"products": "x", "creditGrants": {"y": "z"}}) == {}


def test_no_operation_has_a_field_with_a_name_of_the_forms_own() -> None:
    found = {
        field.name
        for operation in OPERATIONS.values()
        for field in make_fields(operation, {}, no_options)
        if not (operation.has_body and field.name == OTHER)
    }

    assert found & {*OWN_FIELDS, OTHER} == set()
    assert not any("." in name for name in found)
