"""A new event type is one class in one place; everything else follows from it."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, StrictBool, StrictStr
from pydantic.alias_generators import to_camel

import billhook.events
from billhook.events import EVENT_TYPES, Event, InvoiceApproved, PingTest, UnknownEvent, parse_event, sample
from billhook.events.base import OWN_NAMES
from billhook.fields import WireModel
from billhook.fields.types import ExactDecimal, UtcDatetime


class Size(StrEnum):
    """An enumeration of the new event."""

    SMALL = "small"


class Line(WireModel):
    """A part of the new event."""

    net_amount: ExactDecimal


def test_a_class_is_all_that_a_new_type_needs():
    before = parse_event("VoucherIssued", b"{}")

    class VoucherIssued(Event):
        """A type that did not exist, and does not after the test."""

        voucher_id: StrictStr
        amount: Annotated[ExactDecimal, Field(examples=[5])]
        valid_until: UtcDatetime | None = None
        is_gift: StrictBool
        lines: list[Line]
        size: Size
        kind: Literal["new", "old"]
        number: int
        labels: dict[str, Any]

    made = sample(VoucherIssued)
    event = parse_event("VoucherIssued", made.to_json())

    assert isinstance(before, UnknownEvent)
    assert EVENT_TYPES["VoucherIssued"] is VoucherIssued
    assert event == made
    assert event.signal_name == "voucher_issued"
    assert event.model_dump(by_alias=True) == {
        "voucherId": "voucher_id-1",
        "amount": Decimal(5),
        "validUntil": datetime(2026, 1, 15, 9, 30, tzinfo=UTC),
        "isGift": True,
        "lines": [{"netAmount": Decimal("12.50")}],
        "size": "small",
        "kind": "new",
        "number": 1,
        "labels": {},
    }


def test_two_types_of_one_name_are_refused():
    with pytest.raises(TypeError, match="there is an event type PingTest already: choose another class name"):
        type("PingTest", (Event,), {"__module__": __name__})

    assert EVENT_TYPES["PingTest"] is PingTest


def test_a_type_whose_header_is_no_name_for_a_class_is_given_to_it():
    class PullRequest(Event, type="pull_request.opened"):
        number: int

    event = parse_event("pull_request.opened", b'{"number": 7}')
    assert (event, event.type) == (PullRequest(number=7), "pull_request.opened")
    assert PullRequest.signal_name == "pull_request"
    assert isinstance(parse_event("PullRequest", b"{}"), UnknownEvent)


@pytest.mark.parametrize("name", ["a,b", " a", "a ", "a\tb", "Größe", "a" * 129, "*", "-", ""])
def test_a_type_that_no_delivery_can_have_is_refused(name):
    refused = "no delivery can be of the event type" if name else "there is a signal ping_test already"
    with pytest.raises(TypeError, match=refused):
        type("PingTest" if not name else "Odd", (Event,), {"__module__": __name__}, type=name or "ping")


@pytest.mark.parametrize("name", ["orders/create", "customer:created", "a b", "1st", "_own", "~", "a" * 128])
def test_a_type_may_have_any_name_that_a_sender_may_give_it(name):
    model = type("Odd", (Event,), {"__module__": __name__}, type=name)

    assert (model.type, model.signal_name, type(parse_event(name, b"{}"))) == (name, "odd", model)


def test_classes_of_one_name_do_not_share_a_signal_and_none_has_that_of_unknown_types():
    for name in ("InvoiceApproved", "Invoice_Approved", "UnknownEvent"):
        with pytest.raises(TypeError, match=r"there is a signal .* already: choose another class name"):
            type(name, (Event,), {"__module__": __name__}, type="other")


@pytest.mark.filterwarnings("ignore:Field name .* shadows an attribute:UserWarning")  # pydantic's
def test_a_field_of_a_name_that_billhook_reads_of_events_is_refused_with_the_line_that_has_it():
    assert {"type", "signal_name", "identify", "identifying_values", "to_json"} <= OWN_NAMES
    for name in sorted(OWN_NAMES - {"model_config"}):  # which pydantic refuses
        told = rf"field '{name}', .*: .* in JSON, {name}_: str = Field\(alias=\"{to_camel(name)}\"\)"
        with pytest.raises(TypeError, match=told):
            type("Odd", (Event,), {"__module__": __name__, "__annotations__": {name: str}})
    assert "Odd" not in EVENT_TYPES


def test_a_type_with_a_constant_field_type_is_refused_alike():
    with pytest.raises(TypeError, match=r"in JSON, type_: Literal\['odd'\] = Field\(alias=\"type\"\)"):

        class Odd(Event):
            type: Literal["odd"] = "odd"


@pytest.mark.parametrize("name", ["type", "signal_name"])
def test_a_name_that_the_class_statement_sets_is_refused_in_the_class(name):
    with pytest.raises(
        TypeError, match=rf'Odd\.{name} is set by billhook: .* class Odd\(Event, type="order\.pl'
    ):
        type("Odd", (Event,), {"__module__": __name__, name: "odd"})


def test_a_field_type_of_the_body_has_another_name_in_the_class():
    class OrderSent(Event, type="order.sent"):
        type_: str = Field(alias="type")

    event = parse_event("order.sent", b'{"type": "express"}')
    assert (event.type, event.type_, event.to_json()) == ("order.sent", "express", b'{"type":"express"}')
    assert sample(OrderSent, type="slow") == sample(OrderSent, type_="slow") == OrderSent(type="slow")


def test_an_unregistered_base_class_is_no_event_type():
    class Common(Event, register=False):
        """Fields for others."""

    assert "Common" not in EVENT_TYPES
    assert Common.type == "Common"


def test_the_types_are_read_only():
    with pytest.raises(TypeError, match="does not support item assignment"):
        EVENT_TYPES["Other"] = InvoiceApproved


def test_the_package_exports_every_type():
    assert set(EVENT_TYPES) <= set(billhook.events.__all__)
    assert all(getattr(billhook.events, name) is cls for name, cls in EVENT_TYPES.items())
