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


FOUND = [
    '{"customerId": "42"}', '{"customer_id": "42"}', '{"a": [{"b": {"customerId": "42"}}]}',
    '{"customerIds": ["7", "42"]}', '{"customerId": 42}', '{"customer": {"id": "42"}}',
    '{"customer": {"externalId": "42"}}', '{"customers": [{"aliases": ["x", "42"]}]}', '{"customer": "42"}',
    '{"customerId": "\\u0034\\u0032"}', '{"customerId": "1", "customerId": "42"}',
    '{"customerId": "42", "customerId": "1"}',
]  # fmt: skip
ELSEWHERE = [
    '{"customerId": "420"}', '{"customerId": "142"}', '{"invoiceNumber": "42"}', '{"id": "42"}',
    '{"contract": {"externalId": "42"}}', '{"amount": 42}', '{"customer": {"plan": {"id": "42"}}}',
    '{"note": "customerId: 42"}', '["42"]', '"42"',
]  # fmt: skip


def test_a_customer_is_found_wherever_a_field_identifies_it_and_nowhere_else():
    for event_type, body in (
        ("AnonymousCustomer", '{"id": "42"}'),
        ("CustomerCreated", '{"customerId": "c", "externalId": "42"}'),
        *(("X", body) for body in FOUND),
    ):
        assert names_customer(event_type, body.encode(), "42") is True
        assert has_part(body.encode(), "42")
    for body in ELSEWHERE:
        assert names_customer("X", body.encode(), "42") is False


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
