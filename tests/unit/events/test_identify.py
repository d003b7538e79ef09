"""What an event is about: the identifying fields of each type, and their values as short texts."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest
from pydantic import StrictStr

from billhook.events import EVENT_TYPES, AnonymousCustomer, Event, InvoicePaymentStatusChanged, sample


def test_each_type_names_ids_and_amounts_and_none_a_name_or_an_address():
    of_type = {name: model.identify for name, model in EVENT_TYPES.items()}

    assert [name for name, fields in of_type.items() if not fields] == ["PingTest"]
    names = {field for fields in of_type.values() for field in fields}
    assert all(re.search("(^|_)id$|amount$|^total$|^invoice_number$", field) for field in names)


def test_the_values_are_texts_as_written_without_those_that_are_absent():
    status = sample(InvoicePaymentStatusChanged, invoice_id="inv_1", total=Decimal("1249.90"))
    anonymous = sample(AnonymousCustomer, id="cus_1", external_id=None)

    assert status.identifying_values() == ("inv_1", "1249.90")
    assert anonymous.identifying_values() == ("cus_1",)


@pytest.mark.parametrize(
    ("value", "text"),
    [("x" * 500, "x" * 99 + "…"), ("\x1b[2J\u202e", r"\x1b[2J\u202e"), ("a\0b", r"a\x00b"), ("", None)],
)
def test_the_value_of_a_stranger_is_short_and_printable(value, text):
    event = sample(AnonymousCustomer, id=value, external_id="7")

    assert event.identifying_values() == tuple(filter(None, (text, "7")))


def test_equal_values_are_one():
    assert sample(AnonymousCustomer, id="7", external_id="7").identifying_values() == ("7",)


# --- own types --------------------------------------------------------------------------------------


class _Order(Event, register=False):
    order_id: StrictStr
    note: StrictStr


def test_an_own_type_says_what_it_is_about():
    class Shipped(_Order, register=False):
        identify = ("order_id",)

    assert _Order(order_id="o_1", note="x").identifying_values() == ()
    assert Shipped(order_id="o_1", note="x").identifying_values() == ("o_1",)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (("orderid",), " names 'orderid', which is no field of the class: did you mean 'order_id'?"),
        (("orderId",), " names 'orderId', which is no field of the class: did you mean 'order_id'?"),
        (("x",), " names 'x', which is no field of the class: the fields are order_id, note"),
        ("order_id", """ is 'order_id': give a tuple of fields, as in identify = ("order_id",)"""),
        (("order_id",) * 4, " names 4 fields: name 3 at most"),
    ],
)  # fmt: skip
def test_a_mistake_is_refused_where_the_class_is_made(fields: Any, message):
    with pytest.raises(TypeError, match=f"^Wrong.identify{re.escape(message)}$"):

        class Wrong(_Order, register=False):
            identify = fields
