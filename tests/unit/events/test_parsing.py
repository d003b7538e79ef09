"""parse_event: from a header and bytes to an event, an UnknownEvent or a PayloadError."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from billhook.errors import InvalidJSON, InvalidPayload
from billhook.events import (
    EVENT_TYPES,
    AnonymousCustomer,
    UnknownEvent,
    parse_event,
    sample,
)


def body_of(event_type: str) -> dict[str, object]:
    return json.loads(sample(EVENT_TYPES[event_type]).to_json())


def test_an_unknown_type_keeps_its_name_and_its_data():
    for event_type in ("VoucherIssued", "invoiceApproved", "UnknownEvent", "Event", "_CreditPoolEvent", ""):
        event = parse_event(event_type, b'{"type":"x","amount":1.10,"list":[1]}')

        assert isinstance(event, UnknownEvent)
        assert event.type == event_type
        assert event.data == {"type": "x", "amount": Decimal("1.10"), "list": [1]}
        assert event.signal_name == "unknown_event"
        assert event.to_json() == b'{"type":"x","amount":1.10,"list":[1]}'
    assert "UnknownEvent" not in EVENT_TYPES


def test_json_that_is_no_object_is_an_invalid_payload():
    for event_type in ("InvoiceApproved", "VoucherIssued"):
        for body in (b"[]", b"null", b'"{}"', b"1", b"true"):
            with pytest.raises(InvalidPayload, match=r"^the body is JSON, but not an object$") as caught:
                parse_event(event_type, body)
            assert caught.value.details == []


@pytest.mark.parametrize("event_type", ["InvoiceApproved", "VoucherIssued"])
def test_a_body_that_is_not_strict_json_is_invalid_json(event_type: str):
    with pytest.raises(InvalidJSON, match="same key twice"):
        parse_event(event_type, b'{"invoiceId":"a","invoiceId":"b"}')


def test_the_details_place_every_mistake_and_repeat_no_value():
    body = body_of("ContractCreated")
    body |= {"date": "hunter2", "status": ["hunter2"], "startDate": 1_700_000_000}
    body["customer"] |= {"aliases": ["ok", {"x": "hunter2"}, 7], "integrationEntities": [{"syncStatus": 42}]}

    with pytest.raises(
        InvalidPayload, match="valid ContractCreated, because of date, status, startDate, cust"
    ) as caught:
        parse_event("ContractCreated", json.dumps(body).encode())

    first = ("customer", "integrationEntities", 0)
    assert [detail["loc"] for detail in caught.value.details] == [
        ("date",), ("status",), ("startDate",), ("customer", "aliases", 1),
        *((*first, name) for name in ("integrationProvider", "integrationExternalId", "syncStatus")),
    ]  # fmt: skip
    assert {frozenset(detail) for detail in caught.value.details} == {frozenset({"loc", "msg", "type"})}
    assert "hunter2" not in f"{caught.value} {json.dumps(caught.value.details)}"
    assert "1700000000" not in f"{caught.value} {json.dumps(caught.value.details)}"


def test_the_wire_has_one_spelling_and_another_name_is_that_of_an_extra_field():
    with pytest.raises(InvalidPayload, match=r"because of invoiceId$"):
        parse_event("InvoiceApproved", b'{"date":"2026-01-15T09:30:00Z","invoice_id":"inv_1"}')
    event = parse_event(
        "InvoiceApproved", b'{"date":"2026-01-15T09:30:00Z","invoice_id":"twin","invoiceId":"inv_1"}'
    )

    assert event.invoice_id == "inv_1"
    assert event.model_extra == {"invoice_id": "twin"}


def test_a_body_may_well_have_a_field_called_type():
    event = parse_event(
        "AnonymousCustomer", b'{"id":"c","name":"n","aliases":[],"type":"x","signal_name":1,"to_json":2}'
    )

    assert event.type == AnonymousCustomer.type == "AnonymousCustomer"
    assert event.signal_name == "anonymous_customer"
    assert event.model_extra == {"type": "x", "signal_name": 1, "to_json": 2}
    assert json.loads(event.to_json())["type"] == "x"
