"""What is done twice, for speed or in two languages, is done alike. Source: spec, Event (ingested)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, select

from billhook.errors import InvalidJSON, InvalidResource, LimitBroken
from billhook.resources import UsageEvent
from billhook.sandbox.billing.usage.event_batch import RawEvent, RawEventBatch, ValidEvent, validate_event
from billhook.sandbox.billing.usage.event_data import event_data, filter_clause
from billhook.sandbox.billing.usage.meters import CompiledMeter, Meter, MeterFilter, value_identity
from billhook.sandbox.options import key_error
from billhook.sandbox.storage.columns import from_microseconds
from billhook.sandbox.storage.database import SandboxDatabase
from billhook.sandbox.storage.tables.usage import event
from billhook.wire import strict_json

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
NUMBERS = st.one_of(
    st.integers(-(10**6), 10**6),
    st.decimals(-1000, 1000, allow_nan=False, allow_infinity=False, places=3),
)
SCALARS = st.one_of(st.sampled_from(["", "a", "b", "1", "true", "null", 'q"', "\\"]), NUMBERS, st.booleans())
VALUES = st.one_of(SCALARS, st.none(), st.lists(SCALARS, max_size=2), st.dictionaries(TEXTS, SCALARS))
KEYS = st.sampled_from(["a", "b", "größe", "a.b", "$", "a'b", "[0]", "%s", ":x"])

PATIENTLY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Other tests may take the machine meanwhile."""


# --- reading a batch ------------------------------------------------------------------------------

JSON = st.recursive(
    st.one_of(SCALARS, st.none()), lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)
)
SPACE = st.sampled_from(["", " ", "\n\t"])


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """A batch, spaced in any way, with other fields, and sometimes broken at one place."""
    fields = [*draw(st.dictionaries(TEXTS, JSON, max_size=2)).items()]
    fields.insert(draw(st.integers(0, len(fields))), ("events", draw(st.lists(JSON, min_size=1, max_size=3))))
    spaced = {"separators": (f"{draw(SPACE)},{draw(SPACE)}", f"{draw(SPACE)}:{draw(SPACE)}")}
    inner = spaced["separators"][0].join(
        strict_json.dumps(name).decode()
        + spaced["separators"][1]
        + (
            "[" + spaced["separators"][0].join(strict_json.dumps(each).decode() for each in value) + "]"
            if name == "events"
            else strict_json.dumps(value).decode()
        )
        for name, value in fields
    )
    body = f"{draw(SPACE)}{{{draw(SPACE)}{inner}{draw(SPACE)}}}{draw(SPACE)}".encode()
    if draw(st.booleans()):
        at = draw(st.integers(0, len(body)))
        body = (
            body[:at] + draw(st.sampled_from([b"", b",", b"]", b"}", b'"', b"1", b"\xff"])) + body[at + 1 :]
        )
    return body


@pytest.mark.slow
@PATIENTLY
@given(bodies())
def test_a_batch_is_read_as_strict_json_reads_it(body: bytes) -> None:
    """The texts of the events say the same as the whole, and what is no JSON there is none here."""
    try:
        whole: Any = strict_json.loads(body)
    except InvalidJSON:
        whole = None
    try:
        sent = RawEventBatch.from_json(body).raw_events
    except (InvalidResource, LimitBroken):
        sent = None

    if isinstance(whole, dict) and isinstance(whole.get("events"), list) and whole["events"]:
        assert sent is not None
        assert [each.value for each in sent] == whole["events"]
        assert [strict_json.loads(each.text.encode()) for each in sent] == whole["events"]
    else:
        assert sent is None


# --- judging an event -----------------------------------------------------------------------------

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
@given(EVENTS, st.booleans())
def test_an_event_is_judged_as_its_model_judges_it(value: Any, ascii_only: bool) -> None:
    """And what is kept of it is what the model reads; keys have a few rules more."""
    text = strict_json.dumps(value).decode()
    if ascii_only:  # every other character escaped
        text = "".join(each if each.isascii() else json.dumps(each)[1:-1] for each in text)
    value = strict_json.loads(text.encode())

    judged = validate_event(RawEvent(text, value))

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


# --- filters and figures in two languages ---------------------------------------------------------


@pytest.fixture
def database(bare_url: str) -> Iterator[SandboxDatabase]:
    """An empty one, of each kind."""
    opened = SandboxDatabase(bare_url)
    yield opened
    opened.close()


def filters() -> st.SearchStrategy[MeterFilter]:
    """Any filter that a meter may have."""
    by_operator = {
        "equals": SCALARS, "notEquals": SCALARS, "in": st.lists(SCALARS, min_size=1, max_size=3),
        "greaterThan": NUMBERS, "lessThan": NUMBERS, "exists": st.sampled_from([None, True, False]),
    }  # fmt: skip
    return st.one_of(
        st.builds(
            lambda key, value, operator=operator: MeterFilter(property=key, operator=operator, value=value),
            KEYS,
            values,
        )
        for operator, values in by_operator.items()
    )


DATA = st.lists(st.dictionaries(KEYS, VALUES, max_size=4), min_size=1, max_size=8)
ON_A_DATABASE = settings(PATIENTLY, max_examples=150)


class Undone(Exception):
    """Takes back what an example stored."""


@contextmanager
def undone(database: SandboxDatabase) -> Iterator[Any]:
    """A transaction of which nothing stays."""
    with suppress(Undone), database.writing() as connection:
        yield connection
        raise Undone


def store(connection: Any, data: list[dict[str, Any]]) -> None:
    rows = []
    for number, each in enumerate(data):
        sent = {
            "timestamp": "2026-01-10",
            "name": "e",
            "customerAlias": "a",
            "ref": str(number),
            "data": each,
        }
        text = strict_json.dumps(sent).decode()
        used = validate_event(RawEvent(text, strict_json.loads(text.encode())))
        assert isinstance(used, ValidEvent)
        row = {
            "ref": used.ref,
            "name": "e",
            "alias": "a",
            "customer_id": "c",
            "at": from_microseconds(used.at),
        }
        rows.append({**row, "meter_ids": "", "body": used.text})
    connection.execute(insert(event), rows)


def meter(filters: list[MeterFilter], **changes: Any) -> Meter:
    plain = {"name": "m", "eventName": "e", "aggregationMethod": "count", "filters": filters, "id": "mtr"}
    return Meter(**{**plain, "createdAt": from_microseconds(0), "updatedAt": from_microseconds(0), **changes})


def exact(number: Any) -> Decimal | None:
    """A number as a database gives it."""
    return None if number is None else Decimal(repr(number) if isinstance(number, float) else number)


def alike(values: list[Any]) -> set[tuple[int, int]]:
    """The places that hold the same; for Python, unlike for JSON, True is 1."""
    told = [(isinstance(value, bool), value) for value in values]
    return {(a, b) for a, one in enumerate(told) for b, other in enumerate(told) if one == other}


@pytest.mark.slow
def test_filters_hold_in_sql_for_the_events_for_which_they_hold_in_python(database: SandboxDatabase) -> None:
    """Aggregations and rollups count the same events."""

    @ON_A_DATABASE
    @given(DATA, st.lists(filters(), min_size=1, max_size=3))
    def check(data: list[dict[str, Any]], filters: list[MeterFilter]) -> None:
        metering = CompiledMeter(meter(filters))
        expected = [str(n) for n, each in enumerate(data) if metering.contribution(each) is not None]
        with undone(database) as connection:
            store(connection, data)
            under = event_data(connection.dialect.name)
            conditions = [filter_clause(one, under(one.property)) for one in filters]
            found = connection.scalars(select(event.c.ref).where(*conditions).order_by(event.c.seq)).all()

        assert found == expected

    check()


@pytest.mark.slow
def test_numbers_and_instances_are_the_same_in_sql_and_in_python(database: SandboxDatabase) -> None:
    """A meter's property holds the same number, or the same instances, wherever it is looked at."""

    @ON_A_DATABASE
    @given(DATA, KEYS)
    def check(data: list[dict[str, Any]], key: str) -> None:
        metering = CompiledMeter(meter([], aggregationMethod="sum", property=key))
        contributions = [metering.contribution(each) for each in data]
        identities = [value_identity(each.get(key)) for each in data]
        with undone(database) as connection:
            store(connection, data)
            under = event_data(connection.dialect.name)(key)
            columns = under.number().label("number"), under.instance().label("instance")
            rows = connection.execute(select(*columns).order_by(event.c.seq)).all()

        assert [exact(row.number) for row in rows] == [each and each.value for each in contributions]
        assert [row.instance is None for row in rows] == [each is None for each in identities]
        assert alike([row.instance for row in rows]) == alike(identities)

    check()
