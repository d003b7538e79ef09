"""An event is judged twice, by a model and by faster code, and alike. Source: spec, Event (ingested)."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings

from billhook.errors import InvalidResource
from billhook.fields import strict_json
from billhook.resources import UsageEvent
from billhook.sandbox.billing.ingestion import ValidEvent, validate_event
from billhook.sandbox.errors import key_error
from billhook.sandbox.storage.columns import from_microseconds
from support.usage_events import EVENTS, PATIENTLY


@settings(PATIENTLY, max_examples=400)
@given(EVENTS)
def test_an_event_is_judged_as_its_model_judges_it(value: Any) -> None:
    """And what is kept of it is what the model reads; keys have a few rules more."""
    text = strict_json.dumps(value).decode()
    value = strict_json.loads(text.encode())

    judged = validate_event(value, text)

    try:
        read = UsageEvent.from_wire(value)
    except InvalidResource:
        assert isinstance(judged, str)
        return
    keys = (read.name, read.customer_alias, read.ref)
    if any(key_error(key) for key in keys) or "\\u0000" in strict_json.dumps(value).decode().replace(
        "\\\\", ""
    ):
        assert isinstance(judged, str)
        return
    assert isinstance(judged, ValidEvent), judged
    assert (judged.name, judged.alias, judged.ref) == keys
    assert from_microseconds(judged.at) == read.timestamp
    assert judged.data == (read.data or {})
    assert UsageEvent.from_json(judged.text.encode()) == read
    stored = json.loads(judged.text)["timestamp"]
    assert stored.endswith("Z")
    assert "T" in stored
