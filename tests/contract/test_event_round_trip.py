"""parse_event(type, event.to_json()) == event, for every type and any values."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from billhook.events import EVENT_TYPES, InvoiceSendFailed, Overage, UnknownEvent, parse_event, sample
from billhook.wire import WireModel
from support.strategies import JSON, NUMBER, TEXT, TIME

SIMPLE: dict[object, st.SearchStrategy[Any]] = {
    str: TEXT,
    Decimal: NUMBER,
    datetime: TIME,
    bool: st.booleans(),
}


def wire_values(annotation: Any) -> st.SearchStrategy[Any]:
    """What a field of this type may be given, as the decoder would give it (and datetimes)."""
    if annotation in SIMPLE:
        return SIMPLE[annotation]
    if isinstance(annotation, type) and issubclass(annotation, WireModel):
        return wire_objects(annotation)
    inner = wire_values(next(part for part in get_args(annotation) if part is not NoneType))
    if get_origin(annotation) is list:
        return st.lists(inner, max_size=3)
    return st.none() | inner if get_origin(annotation) in (Union, UnionType) else inner


def wire_objects(cls: type[WireModel]) -> st.SearchStrategy[dict[str, Any]]:
    """Bodies of `cls`: its fields, the optional ones perhaps, and some that no one knows."""
    fields = {field.alias: wire_values(field.annotation) for field in cls.model_fields.values()}
    optional = {field.alias for field in cls.model_fields.values() if not field.is_required()}
    awkward = st.sampled_from(["type", "to_json", "model_extra", "__class__", "self", *cls.model_fields])
    extras = st.dictionaries((TEXT | awkward).filter(lambda key: key not in fields), JSON, max_size=3)
    known = st.fixed_dictionaries(
        {name: values for name, values in fields.items() if name not in optional},
        optional={name: values for name, values in fields.items() if name in optional},
    )
    return st.builds(lambda one, two: one | two, known, extras)


@pytest.mark.parametrize("event_type", EVENT_TYPES)
@settings(max_examples=40)
@given(data=st.data())
def test_every_event_survives_a_round_trip(event_type: str, data: st.DataObject):
    cls = EVENT_TYPES[event_type]
    event = cls.model_validate(data.draw(wire_objects(cls)), by_alias=True, by_name=False)

    again = parse_event(event_type, event.to_json())

    assert again == event
    assert again.model_extra == event.model_extra
    assert again.to_json() == event.to_json()


@given(
    event_type=TEXT.filter(lambda name: name not in EVENT_TYPES), data=st.dictionaries(TEXT, JSON, max_size=5)
)
def test_an_unknown_event_survives_a_round_trip(event_type: str, data: dict[str, Any]):
    event = UnknownEvent(type=event_type, data=data)

    assert parse_event(event_type, event.to_json()) == event


def test_the_wire_form_has_the_wires_names_and_the_numbers_digits():
    event = sample(Overage, overage_amount=Decimal("1.10"), note="é")

    body = event.to_json()

    assert body.startswith(b'{"date":"2026-01-15T09:30:00Z","overageAmount":1.10,"invoiceId":"inv_3007"')
    assert body.endswith('"note":"é"}'.encode())


def test_unset_fields_are_omitted_and_null_stays():
    silent = InvoiceSendFailed(invoice_id="i", date=datetime(2026, 1, 15, tzinfo=UTC))
    null = InvoiceSendFailed(invoice_id="i", date=datetime(2026, 1, 15, tzinfo=UTC), invoice_number=None)

    assert silent == null
    assert "invoiceNumber" not in json.loads(silent.to_json())
    assert json.loads(null.to_json())["invoiceNumber"] is None
