"""A body sent under a type that it is not: all 506 pairs of types, and what must not be taken for one."""

from __future__ import annotations

import json
from itertools import permutations

import pytest

from billhook.errors import InvalidPayload, PayloadError
from billhook.events import EVENT_TYPES, Event, parse_event, sample

SAMPLES = {name: sample(model).to_json() for name, model in EVENT_TYPES.items()}
PAIRS = list(permutations(EVENT_TYPES, 2))
ALIKE = {
    # The same fields: the header alone tells them apart.
    ("MonthEndReport", "UnchargedEvents"),
    ("UnchargedEvents", "MonthEndReport"),
    ("UpcomingRenewal", "ContractExpired"),
    ("ContractExpired", "UpcomingRenewal"),
    # A failure to send may lack the invoice's number, and then says as much as an approval.
    ("InvoiceApproved", "InvoiceSendFailed"),
}


def readable(pairs, **how):
    found = set()
    for sent, told in pairs:
        try:
            parse_event(told, SAMPLES[sent], **how)
        except PayloadError:
            continue
        found.add((sent, told))
    return found


def changed(event_type, **more):
    return json.dumps(json.loads(SAMPLES[event_type]) | more).encode()


def test_only_types_with_the_same_fields_accept_each_others_bodies():
    assert len(PAIRS) == 506
    assert readable(PAIRS) == ALIKE


def test_without_the_comparison_32_more_would_pass():
    """The control, and what an operator who names a type has: the model alone decides."""
    passing = readable(PAIRS, as_named=True)

    assert len(passing) == 37
    assert passing >= ALIKE | {("PaymentFailed", "InvoiceApproved"), ("Overage", "PingTest")}


def test_every_type_is_read_as_itself_with_and_without_news_of_the_service():
    for name, model in EVENT_TYPES.items():
        assert parse_event(name, SAMPLES[name]) == sample(model)
        assert parse_event(name, changed(name, somethingNew=1)).model_extra == {"somethingNew": 1}


@pytest.mark.parametrize("more", [{}, {"somethingNew": 1}])
def test_a_look_alike_names_the_type_it_looks_like(more):
    with pytest.raises(
        InvalidPayload, match=r"the body looks like PaymentFailed: it has fields .* InvoiceApproved"
    ):
        parse_event("InvoiceApproved", changed("PaymentFailed", **more))


def test_a_field_of_another_type_alone_is_news_too():
    event = parse_event("InvoiceApproved", changed("InvoiceApproved", customerId="cus_1"))

    assert event.model_extra == {"customerId": "cus_1"}


@pytest.mark.parametrize(("body", "good"), [(b"{}", 1), (b'{"now":1}', 1), (b'{"reportId":"r"}', 0)])
def test_a_ping_is_empty_but_for_fields_of_no_other_type(body, good):
    if good:
        assert parse_event("PingTest", body).type == "PingTest"
    else:
        with pytest.raises(InvalidPayload, match=r"looks like (MonthEndReport|UnchargedEvents)"):
            parse_event("PingTest", body)


def test_types_of_users_are_compared_with_no_type():
    class OrderCreated(Event):
        order_id: str

    class OrderPaid(Event):
        order_id: str
        amount: int

    class Note(Event):
        amount: int | None = None
        invoice_id: str | None = None

    assert parse_event("OrderCreated", b'{"orderId":"1","amount":3}').type == "OrderCreated"
    assert parse_event("OrderCreated", b'{"orderId":"1","reportId":"r"}').type == "OrderCreated"
    assert parse_event("InvoiceApproved", changed("InvoiceApproved", amount=3, orderId="1"))
    assert parse_event("PingTest", b'{"orderId":"1"}').type == "PingTest"
    with pytest.raises(InvalidPayload, match="looks like PaymentFailed"):
        parse_event("InvoiceApproved", changed("PaymentFailed", orderId="1", amount=3))
