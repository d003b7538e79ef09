"""An event is judged twice, by a model and by faster code, and alike. Source: spec, Event (ingested)."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billhook.errors import InvalidResource
from billhook.fields import strict_json
from billhook.resources import UsageEvent
from billhook.sandbox.billing.ingestion import ValidEvent, validate_event
from billhook.sandbox.errors import key_error
from billhook.sandbox.storage.columns import from_microseconds

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
NUMBERS = st.one_of(
    st.integers(-(10**6), 10**6),
    st.decimals(-1000, 1000, allow_nan=False, allow_infinity=False, places=3),
)
SCALARS = st.one_of(st.sampled_from(["", "a", "b", "1", "true", "null", 'q"', "\\"]), NUMBERS, st.booleans())
VALUES = st.one_of(SCALARS, st.none(), st.lists(SCALARS, max_size=2), st.dictionaries(TEXTS, SCALARS))

PATIENTLY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Other tests may take the machine meanwhile."""


TIMES = st.one_of(
    st.datetimes().map(lambda at: f"{at.isoformat()}Z"),
    st.sampled_from(
        [
            "2026-01-10", "2026-01-10T09:00:00", "2026-01-10T09:00:00+02:00", "2026-01-10t09:00:00z",
            "2026-01-10T09:00Z", "2026-01-10T09:00:00.5Z", "2026-01-10T09:00:00.1234567Z",
            "2026-01-10T24:00:00Z", "2026-02-30T00:00:00Z", "0000-01-01T00:00:00Z",
            "0001-01-01T00:00:00+01:00",
            "2026-01-10T09:00:60Z", "20260110T090000Z", "2026-W02-6", "now", "", "\uff12026-01-10T09:00:00Z",
        ]
    ),
)  # fmt: skip
FIELD = st.one_of(st.sampled_from(["a", " ", "", "x" * 255, "x" * 256, "nul\0", "\\u0000", "é\n"]), VALUES)
EVENTS = st.one_of(
    VALUES,
    st.fixed_dictionaries(
        {},
        optional={
            "name": FIELD, "customerAlias": FIELD, "ref": FIELD, "timestamp": st.one_of(TIMES, VALUES),
            "data": st.one_of(st.dictionaries(TEXTS, VALUES, max_size=3), VALUES), "more": VALUES,
        },
    ),
    st.fixed_dictionaries(
        {"name": TEXTS, "customerAlias": TEXTS, "ref": TEXTS, "timestamp": TIMES},
        optional={"data": st.dictionaries(TEXTS, VALUES, max_size=3), "customer_alias": TEXTS},
    ),
)  # fmt: skip


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
