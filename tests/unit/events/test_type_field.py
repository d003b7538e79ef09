"""The type of an event in a field of its body: what is read, what is refused and why, and what is written."""

from __future__ import annotations

import string

import pytest

from billhook.basics.type_names import ANY_TYPE_NAME, TYPE_NAME, is_path
from billhook.errors import InvalidJSON, InvalidPayload
from billhook.events import InvoiceApproved, UnknownEvent
from billhook.events.type_field import parse_unread, read_type, with_type, write_type

APPROVED = b'{"type":"InvoiceApproved","invoiceId":"inv_1","date":"2026-01-15T09:30:00Z"}'


@pytest.mark.parametrize(
    ("data", "path", "found"),
    [
        ({"type": "orders/create"}, "type", "orders/create"),
        ({"a": {"b": {"c": "x y"}}, "c": "no"}, "a.b.c", "x y"),
        ({"": 1, "ein Wort": "t"}, "ein Wort", "t"),
    ],
)
def test_a_type_is_read_at_its_path(data, path, found):
    assert read_type(data, path) == found


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({}, "the body has no field 'a'"),
        ({"a.b": "x"}, "the body has no field 'a'"),
        ({"a": None}, "the field 'a' of the body is no object"),
        ({"a": [{"b": "x"}]}, "the field 'a' of the body is no object"),
        ({"a": {}}, "the body has no field 'a.b'"),
        ({"a": {"b": True}}, "the field 'a.b' of the body is no text"),
        ({"a": {"b": {"c": "x"}}}, "the field 'a.b' of the body is no text"),
        ({"a": {"b": "x,SECRET"}}, "the field 'a.b' of the body is no usable name (up to 128 characters of "),
        ({"a": {"b": "*"}}, "the field 'a.b' of the body is no usable name (up to 128 characters of "),
    ],
)
def test_what_is_wrong_with_a_type_is_told_without_repeating_it(data, told):
    with pytest.raises(InvalidPayload) as caught:
        read_type(data, "a.b")

    assert str(caught.value).startswith(f"no event type: {told}")
    assert "SECRET" not in str(caught.value)


def test_an_unread_delivery_is_parsed_as_the_type_in_its_field_and_another_as_its_own():
    assert isinstance(parse_unread("", "type", APPROVED), InvoiceApproved)
    assert parse_unread("", "type", b'{"type":"a","n":1}') == UnknownEvent(
        type="a", data={"type": "a", "n": 1}
    )
    assert parse_unread("b", "type", b'{"type":"a"}').type == "b"
    assert parse_unread("b", None, b'{"type":"a"}').type == "b"
    with pytest.raises(InvalidJSON, match="the body is not JSON"):
        parse_unread("", "type", b"type=a")
    with pytest.raises(InvalidPayload, match="the body is JSON, but not an object"):
        parse_unread("", "type", b'["a"]')


def test_a_body_that_has_the_type_stays_as_it_is_and_another_gets_it():
    same = b'{ "type" : "a" }'

    assert with_type(same, "type", "a") is same
    assert with_type(same, "type", "b") == b'{"type":"b"}'
    assert with_type(b'{"event":"x","n":1.50}', "event.type", "b") == b'{"event":{"type":"b"},"n":1.50}'
    with pytest.raises(InvalidPayload, match="not an object"):
        with_type(b"[]", "type", "a")


def test_what_is_written_is_read_again():
    for path in ("type", "a.b", "a.c.d"):
        data: dict[str, object] = {"a": {"b": {"x": 1}}}
        write_type(data, path, "t")
        assert read_type(data, path) == "t"


# --- names --------------------------------------------------------------------------------------------


def test_any_printable_ascii_but_a_comma_is_in_a_name_and_a_blank_at_no_end():
    taken = {chr(code) for code in range(0x250) if ANY_TYPE_NAME.fullmatch(f"a{chr(code)}b")}
    at_an_end = {chr(code) for code in range(0x250) if ANY_TYPE_NAME.fullmatch(f"{chr(code)}b")}

    printable = set(string.ascii_letters + string.digits + string.punctuation)
    assert taken == printable - {","} | {" "}
    assert at_an_end == printable - {","}
    names = ["a" * 128, "**", "*-", "a*", "-a", "a"]
    others = ["a" * 129, "", "a ", " a", "a\n", "*", "-"]  # the last two stand for other types in the inbox
    assert [name for name in (*names, *others) if ANY_TYPE_NAME.fullmatch(name)] == names


def test_the_names_of_the_billing_service_are_a_part_of_them():
    taken = {chr(code) for code in range(0x250) if TYPE_NAME.fullmatch(f"a{chr(code)}")}

    assert taken == set(string.ascii_letters + string.digits + "_.-")
    assert not TYPE_NAME.fullmatch("1a")
    assert not TYPE_NAME.fullmatch("a" * 129)


def test_a_path_has_names_between_its_dots():
    paths = ["type", "a.b.c", "ein Wort.Größe", "a" * 256]
    others = ["", ".", "a.", ".a", "a..b", "a\nb", "a" * 257, None, 5, ["type"]]

    assert [path for path in (*paths, *others) if is_path(path)] == paths
