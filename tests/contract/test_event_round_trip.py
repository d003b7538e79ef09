"""parse_event(type, event.to_json()) == event, for every type and any values."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billhook.events import EVENT_TYPES, InvoiceSendFailed, Overage, UnknownEvent, parse_event, sample
from support.strategies import JSON, TEXT, objects_of


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(event_type=st.sampled_from(sorted(EVENT_TYPES)), data=st.data())
def test_every_event_survives_a_round_trip(event_type: str, data: st.DataObject):
    cls = EVENT_TYPES[event_type]
    event = cls.model_validate(data.draw(objects_of(cls)), by_alias=True, by_name=False)

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


def test_the_wire_form_is_not_the_bytes_as_sent_but_the_same_values():
    sent = b'{ "date": "2026-01-15T10:30:00+01:00", "invoiceId": "inv_1" }'

    event = parse_event("InvoiceApproved", sent)

    assert event.to_json() == b'{"date":"2026-01-15T09:30:00Z","invoiceId":"inv_1"}'
    assert parse_event("InvoiceApproved", event.to_json()) == event


def test_unset_fields_are_omitted_and_null_stays():
    silent = InvoiceSendFailed(invoice_id="i", date=datetime(2026, 1, 15, tzinfo=UTC))
    null = InvoiceSendFailed(invoice_id="i", date=datetime(2026, 1, 15, tzinfo=UTC), invoice_number=None)

    assert silent == null
    assert "invoiceNumber" not in json.loads(silent.to_json())
    assert json.loads(null.to_json())["invoiceNumber"] is None
