"""strict_json: what is let in, what is not, and that nothing but InvalidJSON ever comes out."""

from __future__ import annotations

import contextlib
import json
import re
import time
from datetime import UTC, datetime, timedelta, timezone
from decimal import Context, Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billhook.errors import InvalidJSON
from billhook.fields.strict_json import MAX_DEPTH, MAX_DIGITS, dumps, loads
from support.timeouts import scaled

NOT_UTF8 = "the body is not UTF-8"
NOT_JSON = r"the body is not JSON \(line \d+, column \d+\)"
TWICE = "an object in the body has the same key twice"
TOO_DEEP = "the body is nested deeper than 64 levels, or has an unmatched bracket"
HALF_PAIR = "a string in the body holds half a surrogate pair"
NO_NUMBER = "the body holds NaN or an infinity, which JSON does not have"
TOO_LONG = "a number in the body has more than 640 digits"


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"{}", {}),
        (b' \t\r\n{"a" : [1, true, false, null]} ', {"a": [1, True, False, None]}),
        (b'{"a":{"a":1},"b":{"a":2}}', {"a": {"a": 1}, "b": {"a": 2}}),
        ('{"name":"Zoë 🪝"}'.encode(), {"name": "Zoë 🪝"}),
        (rb'"\ud83e\ude9d"', "🪝"),
        (rb'"\\ud800"', r"\ud800"),
        (b"-0", 0),
        (b"9" * MAX_DIGITS, int("9" * MAX_DIGITS)),
        (b"-" + b"9" * MAX_DIGITS, -int("9" * MAX_DIGITS)),
        (b"1e640", Decimal("1e640")),
        (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, json.loads("[" * MAX_DEPTH + "]" * MAX_DEPTH)),
        (b"[" + b"{}," * 500 + b"[]]", [{}] * 500 + [[]]),
        (rb'["\\","' + b"[" * 500 + b'"]', ["\\", "[" * 500]),
        (b'["' + b"[{" * 500 + rb"\"[" + b'"]', ["[{" * 500 + '"[']),
    ],
)
def test_strict_json_is_read(body: bytes, value: object):
    assert loads(body) == value


def test_a_number_is_decoded_with_all_its_digits():
    for text in ("1.10", "0.1", "1E+2", "1e-7", "-0.0", "12345678901234567890.123456789", "1.0e0"):
        number = loads(text.encode())

        assert isinstance(number, Decimal)
        assert number.as_tuple() == Decimal(text).as_tuple()


REFUSED = {
    NOT_UTF8: [b"\xff", b'"\xc3"', b'"\xed\xa0\x80"', b'"\xc0\xaf"', '{"a":1}'.encode("utf-16")],
    "the body is not JSON: it begins with a byte order mark": [b"\xef\xbb\xbf{}"],
    NOT_JSON: [
        '{"a":1}'.encode("utf-16-le"), '{"a":1}'.encode("utf-32-be"), b"", b"{", b'{"a":1} x', b"{}{}",
        b"{'a':1}", b'{"a":1,}', b"[1,]", b'"a\nb"', b'"\\x41"', b'"\\u12"', b"01", b"+1", b".5", b"1.",
        b"1_000", b"0x10", "٣".encode(), "[1\u00a0]".encode(), b"// note\n{}", b"None",
        b"[" * 60 + b"{}" * 10 + b"]" * 60,
    ],
    TWICE: [b'{"a":1,"a":1}', b'{"a":1,"\\u0061":2}', b'[{"b":{"":1,"":2}}]'],
    TOO_DEEP: [
        b"[" * 65 + b"]" * 65, b'{"a":' * 65 + b"1" + b"}" * 65, b'{"a":[' * 33 + b"1" + b"]}" * 33,
        rb'["\\",' + b"[" * 64 + b"]" * 65, rb'["\"",' + b"[" * 64 + b"]" * 65, b"[" * 100_000,
        b'{"":' * 60_000, b"]" * 70 + b"[" * 70, b"[" * 70 + b"}" * 70,
    ],
    HALF_PAIR: [rb'"\ud800"', rb'"\uDFFF"', rb'["\ude9d\ud83e"]', rb'{"\udc00":1.5}'],
    NO_NUMBER: [b"NaN", b'{"a":Infinity}', b"[-Infinity]"],
    TOO_LONG: [
        b"9" * 641, b"-" + b"9" * 5_000, b"0." + b"1" * 641, b"1e641", b"1e-641", b"0e99999",
        b"1e999999999999999999", b"1e9999999999999999999999", b"-1.5e-9999999999999999999999",
        b"1e" + b"9" * 10_000,
    ],
}  # fmt: skip


@pytest.mark.parametrize("told", REFUSED)
def test_invalid_json_is_refused_with_its_reason(told: str):
    said = {}
    for body in REFUSED[told]:
        try:
            said[body] = repr(loads(body))
        except InvalidJSON as refused:
            said[body] = str(refused)

    assert [body[:100] for body, reason in said.items() if not re.match(told, reason)] == []


def test_control_the_standard_decoder_accepts_these_bodies():
    """The negative control: each is one of the bodies above that the standard decoder takes."""
    for body in (b'{"a":1,"a":2}', rb'"\ud800"', b"NaN", b"[" * 65 + b"]" * 65, '{"a":1}'.encode("utf-16")):
        json.loads(body)
        with pytest.raises(InvalidJSON, match=r"the body|in the body"):
            loads(body)


def test_a_number_out_of_range_is_refused_where_the_app_does_not_trap_it():
    with localcontext(Context(traps=[])), pytest.raises(InvalidJSON, match=TOO_LONG):
        loads(b"1e9999999999999999999999")


@given(
    st.binary()
    | st.text(alphabet='{}[]",:0123456789.eE+-\\udDaflnrtsuNI \ud7ff', max_size=300).map(str.encode)
)
def test_any_bytes_decode_or_raise_invalid_json(body: bytes):
    try:
        value = loads(body)
    except InvalidJSON:
        return

    assert loads(dumps(value)) == value


def test_the_largest_bodies_take_no_time_to_judge():
    start = time.perf_counter()

    for body in (
        b"[" * 262_144,
        b'{"a":' * 52_428,
        b"[" * 70 + b'"' + b'\\"' * 131_000,
        b"[" + b"[]," * 87_000 + b"[]]",
        b"[" + b'{"a":"\\u00e9"},' * 17_000 + b"{}]",
        b"1" * 262_144,
        b"0." + b"1" * 262_142,
        b'"' + b"\\ud83e\\ude9d" * 21_000 + b'"',
    ):
        with contextlib.suppress(InvalidJSON):
            loads(body)

    assert time.perf_counter() - start < scaled(20)  # a quadratic step would take minutes


@pytest.mark.parametrize(
    ("value", "body"),
    [
        ({"a": [1, None, True, False, {}]}, b'{"a":[1,null,true,false,{}]}'),
        ((Decimal("1.10"), Decimal("-0.00"), Decimal("1E+2")), b"[1.10,-0.00,1E+2]"),
        ('Zoë "\\\n', '"Zoë \\"\\\\\\n"'.encode()),
        (0.1, b"0.1"),
        (datetime(2026, 1, 15, 9, 30, tzinfo=UTC), b'"2026-01-15T09:30:00Z"'),
        (datetime(2026, 1, 15, 9, 30, 0, 250_000), b'"2026-01-15T09:30:00.250000Z"'),  # noqa: DTZ001 - naive
        (datetime(2026, 1, 15, 9, 30, tzinfo=timezone(timedelta(hours=2))), b'"2026-01-15T07:30:00Z"'),
    ],
)
def test_values_are_written_compactly_and_exactly(value: object, body: bytes):
    assert dumps(value) == body


@pytest.mark.parametrize(
    ("value", "error", "told"),
    [
        (Decimal("NaN"), ValueError, "NaN and the infinities have no JSON form"),
        (Decimal("-Infinity"), ValueError, "NaN and the infinities have no JSON form"),
        (float("nan"), ValueError, "Out of range float values are not JSON compliant"),
        ("\ud800", ValueError, "surrogates not allowed"),
        ({1, 2}, TypeError, "a set has no JSON form"),
        (b"x", TypeError, "a bytes has no JSON form"),
        ({1: 2}, TypeError, "must be a string, not int"),
    ],
)
def test_dumping_a_value_without_a_json_form_raises(value: object, error: type[Exception], told: str):
    with pytest.raises(error, match=told):
        dumps(value)
