"""What failed events have in common: which values are shown, of which fields, and how."""

from __future__ import annotations

import json

import pytest

from billhook.doctor.causes import MOST_VALUES, CommonValue, compare
from billhook.inbox.reading.compared_deliveries import ComparedDeliveries, ComparedDelivery


def of(body, *, event_type="InvoiceApproved", source="default", release="1.0", host="a"):
    """A delivery; a body that is no bytes is written as JSON."""
    written = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    return ComparedDelivery(event_type, source, release, host, written)


def found(failed, succeeded):
    return compare(ComparedDeliveries(failed, succeeded))


def fields(failed, succeeded):
    """The fields and values that are shown for these bodies."""
    shown = found([of(each) for each in failed], [of(each) for each in succeeded])
    return [(one.field, one.value) for one in shown]


def test_the_value_that_all_failed_events_have_is_shown_and_an_id_of_each_is_not():
    failed = [of({"id": f"f{n}", "currency": "USD", "status": "open"}) for n in range(8)]
    succeeded = [of({"id": f"s{n}", "currency": "EUR", "status": "open"}) for n in range(40)]

    assert found(failed, succeeded) == [CommonValue("currency", "USD", 8, 8, 0, 40)]


@pytest.mark.parametrize(
    ("failed", "succeeded", "shown"),
    [
        ([{"a": {"b": {"c": 1}}}] * 2, [{"a": {"b": {"c": 2}}}] * 2, [("a.b.c", "1")]),
        ([{"a": [{"b": 1}, {"b": 2}]}] * 2, [{"a": [{"b": 2}]}] * 2, [("a[].b", "1")]),
        ([{"a": []}] * 2, [{"a": ["x"]}] * 2, [("a", "[]")]),
        ([{"a": None}] * 2, [{"a": {"b": 1}}] * 2, [("a", "null")]),
        ([{}] * 2, [{"a": 1}] * 2, [("a", "missing")]),
        # Of an object that is missing itself its fields are not.
        ([{}] * 2, [{"a": {"b": 1, "c": 2}}] * 2, [("a", "missing")]),
        ([{"a": {"b": 1}}] * 2, [{"a": {"b": 1, "c": "x"}}] * 2, [("a.c", "missing")]),
        ([{"a": [{"b": 1}, {}]}] * 2, [{"a": [{"b": 1}]}] * 2, [("a[].b", "missing")]),
        ([{"a": 1}] * 2, [{}] * 2, [("a", "1")]),
    ],
)
def test_nested_fields_items_of_lists_and_missing_ones_are_compared(failed, succeeded, shown):
    assert fields(failed, succeeded) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("USD", "USD"),
        ("1", '"1"'),
        (1, "1"),
        ("null", '"null"'),
        (None, "null"),
        (True, "true"),
        ("", '""'),
        (" x", '" x"'),
        ("missing", '"missing"'),
        ("\x1b[31m\u202e", r"\x1b[31m\u202e"),
        ("x" * 61, "x" * 59 + "…"),
        ("[" * 50_000, "[" * 59 + "…"),
    ],
)
def test_a_value_is_shown_as_people_write_it_unless_it_would_look_like_another(value, shown):
    ((_, text),) = fields([{"a": value}] * 2, [{"a": "other"}] * 2)

    assert text == shown


def test_numbers_are_compared_and_shown_digit_for_digit():
    ((_, text),) = fields([b'{"a": 1.10}'] * 2, [b'{"a": 1.1}'] * 2)

    assert text == "1.10"


def test_a_long_or_hostile_name_of_a_field_is_cut_and_escaped():
    ((field, _),) = fields([{"\x1b" + "n" * 50_000: {"x": 1}}] * 2, [{"\x1b" + "n" * 50_000: {"x": 2}}] * 2)

    assert field.startswith(r"\x1bnnn")
    assert field.endswith("…")
    assert len(field) == 80


def test_only_what_half_of_the_failed_have_is_shown_and_few_of_the_succeeded():
    def bodies(usd, others):
        return [{"currency": "USD"}] * usd + [{"currency": f"C{n}"} for n in range(others)]

    assert fields(bodies(5, 5), bodies(2, 8)) == [("currency", "USD")]
    assert fields(bodies(4, 6), bodies(0, 10)) == []  # fewer than half of the failed
    assert fields(bodies(10, 0), bodies(5, 5)) == [("currency", "USD")]
    assert fields(bodies(10, 0), bodies(6, 4)) == []  # more than half as often among the succeeded


def test_of_a_single_failed_event_only_fields_that_repeat_among_the_succeeded_are_compared():
    succeeded = [{"id": f"s{n}", "customer": f"c{n % 3}", "currency": "EUR"} for n in range(4)]

    assert fields([{"id": "f", "customer": "c9", "currency": "USD"}], succeeded) == [("currency", "USD")]
    assert fields([{"id": "f"}], succeeded[:1]) == [("currency", "missing"), ("customer", "missing")]


def test_without_an_event_that_succeeded_nothing_is_shown():
    assert fields([{"currency": "USD"}] * 8, []) == []
    assert fields([], [{"currency": "USD"}] * 8) == []


def test_type_source_release_and_host_are_compared():
    failed = [of({}, event_type="PaymentFailed", source="eu", release="1.1", host="b")] * 3
    succeeded = [of({})] * 4

    assert found(failed, succeeded) == [
        CommonValue("type", "PaymentFailed", 3, 3, 0, 4),
        CommonValue("source", "eu", 3, 3, 0, 4),
        CommonValue("release", '"1.1"', 3, 3, 0, 4),
        CommonValue("host", "b", 3, 3, 0, 4),
    ]
    unknown = [of({}, release=None, host=None)] * 3
    assert found(unknown, succeeded) == []
    assert found(succeeded, unknown) == []


def test_bodies_are_compared_with_those_of_the_same_types():
    failed = [of({"currency": "USD"})] * 2
    others = [of({"reason": "card"}, event_type="PaymentFailed")] * 5

    assert [one.field for one in found(failed, others)] == ["type"]
    of_type = [of({"currency": "EUR"}), of({"currency": "USD"}), of({"currency": "EUR"})]
    assert CommonValue("currency", "USD", 2, 2, 1, 3) in found(failed, others + of_type)


@pytest.mark.parametrize("body", [None, b"", b"\xff", b'{"a": 1', b"[1]", b'{"a": 1, "a": 2}', b"[" * 60_000])
def test_a_body_that_is_no_json_object_is_left_out(body):
    failed, succeeded = [of({"a": 1})] * 2, [of({"a": 2})] * 2

    assert found([of(body), *failed], [of(body), *succeeded]) == [CommonValue("a", "1", 2, 2, 0, 2)]
    assert found([of(body)], succeeded) == []


def test_the_clearest_come_first_and_no_more_than_some():
    failed = [of({"all": 1, "most": 1 if n else 2} | {f"x{k}": 1 for k in range(9)}) for n in range(4)]
    succeeded = [
        of({"all": 1 if n == 0 else 2, "most": 2} | {f"x{k}": 2 for k in range(9)}) for n in range(4)
    ]

    shown = found(failed, succeeded)

    assert [one.field for one in shown] == [f"x{k}" for k in range(MOST_VALUES)]
    few = [of({"all": 1, "most": 1 if n else 2}) for n in range(4)]
    assert [one.field for one in found(few, [of({"all": 2, "most": 2})] * 4)] == ["all", "most"]


def test_of_a_body_with_many_values_the_outer_ones_are_compared():
    """A list of any length hides no field beside it."""
    many = {"items": list(range(5_000))}

    assert fields([{**many, "z": 1}] * 2, [{**many, "z": 2}] * 2) == [("z", "1")]
