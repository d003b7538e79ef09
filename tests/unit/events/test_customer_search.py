"""Which bodies name a customer: every event type that has one, and none that only looks like it."""

from __future__ import annotations

import json

import pytest

from billhook.events import EVENT_TYPES, sample
from billhook.events.inspection import names_customer, search_parts


def has_part(body: bytes, customer: str) -> bool:
    return any(part in body for part in search_parts(customer))


def test_an_event_names_the_customer_of_its_customer_id():
    without = set()
    for name, model in EVENT_TYPES.items():
        body = sample(model).to_json()
        content = json.loads(body)
        customer = content.get("customerId") or (content.get("id") if name == "AnonymousCustomer" else None)
        if customer is None:
            without.add(name)
            continue
        assert names_customer(name, body, customer) is True
        assert has_part(body, customer)
        assert names_customer(name, body, customer[:-1]) is False
        assert names_customer(name, body, customer + "0") is False

    assert without == WITHOUT_CUSTOMER_ID


WITHOUT_CUSTOMER_ID = {
    "UpcomingRenewal", "ContractExpired", "CommitmentCrossed", "PingTest", "InvoiceApproved",
    "InvoicePaymentStatusChanged", "InvoiceSendFailed", "MonthEndReport", "UnchargedEvents",
}  # fmt: skip


def test_a_customer_is_found_wherever_a_field_identifies_it():
    for event_type, body in (
        ("X", '{"customerId": "42"}'),
        ("X", '{"customer_id": "42"}'),
        ("X", '{"a": [{"b": {"customerId": "42"}}]}'),
        ("X", '{"customerIds": ["7", "42"]}'),
        ("X", '{"customerId": 42}'),
        ("X", '{"customer": {"id": "42"}}'),
        ("X", '{"customer": {"externalId": "42"}}'),
        ("X", '{"customers": [{"aliases": ["x", "42"]}]}'),
        ("X", '{"customer": "42"}'),
        ("AnonymousCustomer", '{"id": "42"}'),
        ("CustomerCreated", '{"customerId": "c", "externalId": "42"}'),
        ("X", '{"customerId": "\\u0034\\u0032"}'),
        ("X", '{"customerId": "1", "customerId": "42"}'),
        ("X", '{"customerId": "42", "customerId": "1"}'),
    ):
        assert names_customer(event_type, body.encode(), "42") is True
        assert has_part(body.encode(), "42")


def test_the_same_text_elsewhere_is_another_customers():
    for event_type, body in (
        ("X", '{"customerId": "420"}'),
        ("X", '{"customerId": "142"}'),
        ("X", '{"invoiceNumber": "42"}'),
        ("X", '{"id": "42"}'),
        ("X", '{"contract": {"externalId": "42"}}'),
        ("X", '{"amount": 42}'),
        ("X", '{"customer": {"plan": {"id": "42"}}}'),
        ("X", '{"note": "customerId: 42"}'),
        ("X", '["42"]'),
        ("X", '"42"'),
    ):
        assert names_customer(event_type, body.encode(), "42") is False


def test_of_a_body_that_is_not_json_nothing_can_be_said_if_it_has_the_id():
    for body in (b'{"customerId": "42"', b"\xff 42", b"[" * 100_000 + b'"42"'):
        assert names_customer("X", body, "42") is None
        assert names_customer("X", body, "77") is False
        assert names_customer("X", body, "4") is False


@pytest.mark.parametrize("customer", ["a/b", "Müller", 'a"b', "€"])
def test_an_id_is_found_however_a_sender_escapes_it(customer):
    escaped = json.dumps({"customerId": customer}).replace("/", "\\/").encode()
    plain = json.dumps({"customerId": customer}, ensure_ascii=False).encode()
    wide = json.dumps({"customerId": customer}, ensure_ascii=False).encode("utf-16")

    for body in (escaped, plain, wide):
        assert has_part(body, customer)
        assert names_customer("X", body, customer) is True


def test_without_a_type_which_may_be_in_the_body_and_not_read_yet_an_own_id_leaves_it_open():
    body = b'{"type":"customer.created","id":"42"}'

    assert names_customer("customer.created", body, "42") is True
    assert names_customer("", body, "42") is None
    assert names_customer("", b'{"id":"1","customer":{"id":"42"}}', "42") is True
    assert names_customer("", b'{"id":"1","order":{"id":"42"}}', "42") is False
