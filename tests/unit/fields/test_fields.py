"""The types that only resources use: whole numbers, values that JSON has, and lists that may be absent."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pydantic import Field, StrictStr, ValidationError

from billhook.fields import WireModel, sample, strict_json
from billhook.fields.types import Integer, JsonObject, JsonValue, ListOf, MaybeListOf


class Thing(WireModel):
    """One field of each type."""

    count: Integer = 0
    anything: JsonValue = None
    fields: JsonObject | None = None
    names: ListOf[StrictStr] = Field(default_factory=list)
    maybe: MaybeListOf[StrictStr] = None


NO_JSON = "Input should have a form in JSON: text, finite numbers, true, false, null, and arrays and objects"


# --- whole numbers --------------------------------------------------------------------------------


def test_a_whole_number_in_any_notation_is_an_int():
    for given in (3, 3.0, Decimal("3.00"), Decimal("0.3e1")):
        count = Thing(count=given).count

        assert count == 3
        assert type(count) is int
    for given in (10**639, -(10**639)):
        assert Thing(count=given).count == given


def test_a_number_that_is_not_whole_is_refused():
    for told, wrong in (
        ("an integer", (3.5, Decimal("0.1"))),
        ("a number", ("3", True, None)),
        ("a finite number", (float("nan"), Decimal("1e641"))),
    ):
        for given in wrong:
            with pytest.raises(ValidationError, match=f"Input should be {told}"):
                Thing(count=given)


# --- whatever JSON has ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("x", "x"),
        (None, None),
        (True, True),
        (0.1, Decimal("0.1")),
        (Decimal("1.10"), Decimal("1.10")),
        (datetime(2026, 1, 15, 9, 30, tzinfo=UTC), "2026-01-15T09:30:00Z"),
        ((1, [2]), [1, [2]]),
        ({"a": {"b": (0.5,)}}, {"a": {"b": [Decimal("0.5")]}}),
    ],
)
def test_a_value_is_stored_in_its_wire_form(given: Any, kept: Any):
    thing = Thing(anything=given, fields={"inner": given})

    assert thing.anything == kept
    assert thing.fields == {"inner": kept}
    assert type(thing.anything) is type(kept)
    assert strict_json.loads(strict_json.dumps(thing.anything)) == kept


def nested(levels: int) -> list[Any]:
    return [nested(levels - 1)] if levels > 1 else []


def in_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def test_a_value_that_json_cannot_represent_is_refused():
    for given in (
        float("nan"), Decimal("Infinity"), {1, 2}, b"x", {1: 2}, "\ud800", ["\udfff"], nested(65),
        in_itself(), 10**641, 10**5_000, Decimal("1e999999"), Thing,
    ):  # fmt: skip
        for field in ({"anything": given}, {"fields": {"inner": given}}):
            with pytest.raises(ValidationError, match=NO_JSON):
                Thing(**field)
    assert Thing(anything=nested(64)).anything == nested(64)


def test_an_object_is_nothing_else():
    for given in ([], "x", 1):
        with pytest.raises(ValidationError, match="Input should be a valid dictionary"):
            Thing(fields=given)


def test_a_stored_value_is_a_copy():
    given = {"a": [1]}
    thing = Thing(fields=given)

    given["a"].append(2)

    assert thing.fields == {"a": [1]}


# --- lists ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["names", "maybe"])
def test_a_list_with_thousands_of_errors_reports_one(field: str):
    with pytest.raises(ValidationError) as caught:
        Thing(**{field: [1] * 10_000})

    assert [error["loc"] for error in caught.value.errors()] == [(field, 0)]


def test_only_the_list_that_may_be_absent_may_be_none():
    assert Thing(maybe=None).maybe is None
    with pytest.raises(ValidationError, match="Input should be a valid list"):
        Thing(names=None)


# --- samples --------------------------------------------------------------------------------------


def test_a_moment_is_written_in_utc():
    assert strict_json.datetime_text(datetime(2026, 1, 15, 9, 30)) == "2026-01-15T09:30:00Z"  # noqa: DTZ001 - naive
    assert sample(Thing, anything="x", fields={}, count=1).maybe == ["maybe-1"]
