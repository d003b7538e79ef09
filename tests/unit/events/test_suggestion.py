"""The file that `doctor` suggests for an unknown type declares it: with names and kinds, and no value."""

from __future__ import annotations

from typing import Any

import pytest

from billhook.events import EVENT_TYPES, parse_event
from billhook.events.inspection import event_source
from billhook.fields import strict_json


def declare(event_type: str, *bodies: bytes) -> tuple[str, dict[str, Any]]:
    """Execute a suggestion."""
    text = event_source(event_type, [strict_json.loads(body) for body in bodies])
    module: dict[str, Any] = {"__name__": "suggested"}
    exec(compile(text, "suggested.py", "exec", dont_inherit=True), module)
    return text, module


@pytest.mark.parametrize(
    "name", ["orders/create", "a b", "1st", "/", 'a"b', "a\\", "'", "class", 'x"); exit("']
)
def test_any_name_of_a_type_is_declared_as_it_is(name):
    declare(name, b'{"n": 1}')

    assert EVENT_TYPES[name].type == name
    assert parse_event(name, b'{"n": 1}').n == 1


def test_the_file_declares_the_type_with_a_handler_and_reads_what_came():
    bodies = (
        b'{"orderId": "o-1", "paid": true, "amount": 12.5, "at": "2026-01-15T09:30:00Z", "tags": ["a"]}',
        b'{"orderId": "o-2", "paid": false, "amount": 3, "at": "2026-01-16", "tags": [], "note": null}',
    )

    text, module = declare("order.created", *bodies)

    model = EVENT_TYPES["order.created"]
    assert (model, model.__name__) == (module["OrderCreated"], "OrderCreated")
    assert len(module["handlers"].freeze()) == 1
    lines = [line.strip() for line in text.splitlines() if ": " in line and line.startswith("    ")]
    assert lines[:6] == [
        "order_id: StrictStr", "paid: StrictBool", "amount: ExactDecimal", "at: StrictStr", "tags: list[Any]",
        "note: Any = None",
    ]  # fmt: skip
    assert [parse_event(model.type, body).to_json() for body in bodies]
    assert not any(value in text for value in ("o-1", "o-2", "12.5", "2026", "true"))


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b'{"createdAt": "2026-01-15T09:30:00Z"}', "created_at: UtcDatetime"),
        (b'{"created_at": "x"}', "created_at: StrictStr = Field(alias='created_at')"),
        (b'{"type": "x"}', "type_: StrictStr = Field(alias='type')"),
        (b'{"class": {"a": 1}}', "class_: dict[str, Any] = Field(alias='class')"),
        (b'{"modelName": 1}', "field_model_name: ExactDecimal = Field(alias='modelName')"),
        (b'{"\xe2\x80\xae\\"": 1}', "field: ExactDecimal = Field(alias='\\u202e\"')"),
        (b'{"copy": [1, 2]}', "copy_: list[ExactDecimal] = Field(alias='copy')"),
    ],
)
def test_any_name_of_a_field_becomes_one_in_python(body, line):
    text, _module = declare("Odd", body)

    assert f"    {line}\n" in text
    assert text.isascii()
    assert strict_json.loads(parse_event("Odd", body).to_json()) == strict_json.loads(body)


def test_names_that_would_be_the_same_in_python_are_told_apart():
    text, _ = declare("Odd", b'{"a-b": 1, "a_b": 2, "aB": 3}')

    assert [name in text for name in ("a_b: ", "a_b_: ", "a_b__: ")] == [True] * 3


@pytest.mark.parametrize("event_type", ["ping_test", "Delivery", "Event", "none", "x.1"])
def test_a_type_with_a_name_that_is_taken_gets_another_class(event_type):
    _, module = declare(event_type)

    assert EVENT_TYPES[event_type].__name__ in module


def test_long_names_and_the_many_are_left_out():
    text, _ = declare("Odd", strict_json.dumps({"x" * 61: 1, **{f"f{number}": 1 for number in range(99)}}))

    assert text.count(": ExactDecimal") == 60
    assert "xx" not in text
