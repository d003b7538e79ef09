"""Fields whose kind the table of events leaves unstated: the kind we take them for, or a text that holds it.

Source: spec, "Events": "strings unless stated".
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billhook.errors import InvalidPayload
from billhook.events import (
    EVENT_TYPES,
    ContractCreated,
    ContractExpired,
    CreditPoolIncreased,
    CustomerCreated,
    Event,
    parse_event,
    sample,
)
from billhook.events.inspection import event_json_schema
from billhook.fields import strict_json

TRANSCRIPTION = tomllib.loads(Path(__file__).with_name("event_fields.toml").read_text(encoding="utf-8"))
CHAPTER = Path(__file__).parents[2] / "src" / "billhook" / "events" / "README.md"


def transcribed(fields: dict[str, str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each field with its kind, those of objects in it too, by its path."""
    for name, kind in fields.items():
        if (shape := TRANSCRIPTION["shapes"].get(kind)) is not None:
            yield from (((name, *path), inner) for path, inner in transcribed(shape))
        else:
            yield (name,), kind


FIELDS = [
    (event_type, path, kind)
    for event_type, fields in TRANSCRIPTION["events"].items()
    for path, kind in transcribed(fields)
    if kind.split(" or ")[0] in ("number", "boolean", "array of string")
]


def with_value(event_type: str, path: tuple[str, ...], change: Any) -> tuple[Event, bytes]:
    """A sample, and its body with the value at `path` replaced by `change(value)`."""
    event = sample(EVENT_TYPES[event_type])
    body: Any = strict_json.loads(event.to_json())
    place = body
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = change(place[path[-1]])
    return event, strict_json.dumps(body)


def in_a_text(value: object) -> str:
    return strict_json.dumps(value).decode()


@pytest.mark.parametrize(("event_type", "path", "kind"), FIELDS, ids=lambda each: str(each))
def test_a_value_in_a_text_is_read_where_the_kind_is_unstated_and_there_alone(
    event_type: str, path: tuple[str, ...], kind: str
) -> None:
    event, body = with_value(event_type, path, in_a_text)

    if kind.endswith(" or text"):
        read = parse_event(event_type, body)
        assert read == event
        assert read.to_json() == event.to_json(), "with the same digits, as a number"
    else:
        with pytest.raises(InvalidPayload, match=rf"because of {'.'.join(path)}$"):
            parse_event(event_type, body)


@pytest.mark.parametrize(("event_type", "path", "kind"), FIELDS, ids=lambda each: str(each))
@pytest.mark.parametrize("wrong", [None, {}, "five"])
def test_null_and_what_holds_no_value_of_the_kind_are_refused(
    event_type: str, path: tuple[str, ...], kind: str, wrong: object
) -> None:
    if kind == "array of string or text" and wrong == "five":
        return  # a name like any other
    _, body = with_value(event_type, path, lambda _: wrong)

    with pytest.raises(InvalidPayload, match=rf"because of {'.'.join(path)}$"):
        parse_event(event_type, body)


@pytest.mark.parametrize(
    "text", ["500.00", "0", "-3", "+1.10", ".5", "5.", "007.50", "1e3", "2.5E-4", "9" * 640]
)
def test_a_decimal_number_in_a_text_keeps_its_digits(text: str) -> None:
    amount = sample(CreditPoolIncreased, granted_amount=text).granted_amount

    assert type(amount) is Decimal
    assert amount.as_tuple() == Decimal(text).as_tuple()


@pytest.mark.parametrize(
    "text",
    ["", " ", " 5", "5\n", "1,000.00", "1_000", "0x10", "NaN", "Infinity", "-inf", "٣", "1e", "--1", "5 USD",
     "true", "null", "1e641", "1e999999999", "1e9999999999", "9" * 641],
)  # fmt: skip
def test_a_text_that_is_no_decimal_number_is_refused(text: str) -> None:
    body = json.dumps({**json.loads(sample(CreditPoolIncreased).to_json()), "grantedAmount": text}).encode()

    with pytest.raises(InvalidPayload, match=r"because of grantedAmount$") as caught:
        parse_event("CreditPoolIncreased", body)

    assert caught.value.details[0]["msg"] in (
        "Input should be a number, or a text that holds one",
        "Input should be a finite number of at most 640 digits",
    )


@pytest.mark.parametrize(
    ("given", "flag"),
    [(True, True), ("true", True), ("True", True), ("TRUE", True), ("false", False), ("False", False)],
)
def test_a_flag_in_a_text_is_true_or_false(given: object, flag: bool) -> None:
    assert sample(ContractExpired, is_trial=given).is_trial is flag


@pytest.mark.parametrize("given", ["", "yes", "no", "1", "0", " true", "tRuE", "null", 1, 0, []])
def test_nothing_else_is_a_flag(given: object) -> None:
    body = json.dumps({**json.loads(sample(ContractExpired).to_json()), "isTrial": given}).encode()

    with pytest.raises(InvalidPayload, match=r"because of isTrial$"):
        parse_event("ContractExpired", body)


@pytest.mark.parametrize(
    ("given", "aliases"),
    [
        (["acme", "acme-eu"], ["acme", "acme-eu"]),
        ('["acme", "acme-eu"]', ["acme", "acme-eu"]),
        ("[]", []),
        ("", []),
        ("acme", ["acme"]),
        ("acme, acme-eu", ["acme, acme-eu"]),
        ("42", ["42"]),
        ("null", ["null"]),
        ("[draft", ["[draft"]),
        ('{"a": 1}', ['{"a": 1}']),
    ],
)
def test_a_list_in_a_text_is_that_of_its_json_or_the_text_is_the_only_item(
    given: object, aliases: list[str]
) -> None:
    assert sample(CustomerCreated, aliases=given).aliases == aliases
    customer = {**json.loads(sample(CustomerCreated).to_json()), "aliases": given}
    assert sample(ContractCreated, customer=customer).customer.aliases == aliases


@pytest.mark.parametrize("given", [[1], "[1]", '[["acme"]]', "[null]", 7, {"0": "acme"}])
def test_a_list_of_something_else_is_refused(given: object) -> None:
    body = json.dumps({**json.loads(sample(CustomerCreated).to_json()), "aliases": given}).encode()

    with pytest.raises(InvalidPayload, match=r"because of aliases"):
        parse_event("CustomerCreated", body)


def test_the_schema_and_the_chapter_say_which_fields_may_be_texts() -> None:
    marked = {
        event_type: [".".join(path) for path, kind in transcribed(fields) if kind.endswith(" or text")]
        for event_type, fields in TRANSCRIPTION["events"].items()
    }
    chapter = CHAPTER.read_text(encoding="utf-8")

    (table,) = (part.split("<!-- /unstated -->")[0] for part in chapter.split("<!-- unstated -->")[1:])
    rows = dict(line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `"))
    assert {
        name.strip("`"): [each.strip("`") for each in fields.split(", ")] for name, fields in rows.items()
    } == {name: fields for name, fields in marked.items() if fields}
    schema = event_json_schema(CreditPoolIncreased)["properties"]
    assert schema["grantedAmount"]["type"] == ["number", "string"]
    assert event_json_schema(CustomerCreated)["properties"]["aliases"]["type"] == ["array", "string"]
