"""The texts that order deliveries and know them again: equal for equal values, different for others."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from billhook.events import InvoiceApproved, PaymentFailed, parse_event, sample
from billhook.handlers.field_keys import LONGEST, content_digest, newest_key, order_key

NOON = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)


def key(value, source="default"):
    return order_key(source, value)


class Colour(Enum):
    RED = "red"


class Part(BaseModel):
    name: str
    size: Decimal


# --- order keys -----------------------------------------------------------------------------------


def test_an_order_key_is_the_source_and_the_value():
    assert key("inv_42") == '["default","inv_42"]'
    assert key("inv_42", "eu") == '["eu","inv_42"]'


def test_none_orders_nothing_and_what_only_looks_empty_does():
    assert key(None) is None
    assert len({key(""), key(0), key(False), key([]), key({}), key("None")}) == 6


def test_a_long_key_is_stored_as_its_hash():
    longest = "x" * (LONGEST - len(key("")))

    assert key(longest) == f'["default","{longest}"]'
    assert key(longest + "x").startswith("sha256:")
    assert len(key("x" * 100_000)) == len("sha256:") + 64
    assert key("x" * 300) != key("x" * 301)


def test_a_key_is_text_that_every_database_takes():
    for text in ("a\x00b", "\u00e9\U0001f600", '"],["', "back\\slash", "\u2028"):
        assert key(text).isascii()
        assert key(text).isprintable()
        assert key(text) != key(text + " ")


DIFFERENT = [
    (("a", 'b","c'), ('a","b', "c")),
    (("a", "b"), ("b", "a")),
    (("s", "1"), ("s", 1)),
    (("s", "true"), ("s", True)),
    (("s", 1), ("s", True)),
    (("s", ["a", "b"]), ("s", ["b", "a"])),
    (("s", ["a,b"]), ("s", ["a", "b"])),
    (("s", {"a": 1}), ("s", {"b": 1})),
    (("s", NOON), ("s", NOON.isoformat())),
    (("s", {"number": "1e0"}), ("s", 1)),
    (("s", date(2026, 1, 15)), ("s", "2026-01-15")),
]
EQUAL = [
    (Decimal("10.0"), Decimal("10.00")),
    (Decimal("10"), 10),
    (Decimal("1E+3"), Decimal("1000.000")),
    (Decimal("-0.0"), 0),
    (Decimal("0.5"), 0.5),
    (NOON, NOON.astimezone(timezone(timedelta(hours=-7)))),
    (NOON, NOON.replace(tzinfo=None)),
    (Colour.RED, "red"),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    (("a", "b"), ["a", "b"]),
    (Part(name="n", size=Decimal("1.0")), {"name": "n", "size": 1}),
    ({"b", "a", "c"}, frozenset({"c", "a", "b"})),
    (Fraction(1, 3), Fraction(2, 6)),
    (Decimal("NaN"), float("nan")),
]


def test_values_have_equal_keys_where_they_are_equal_and_different_ones_where_not():
    assert [pair for pair in DIFFERENT if order_key(*pair[0]) == order_key(*pair[1])] == []
    assert [pair for pair in EQUAL if key(pair[0]) != key(pair[1])] == []


numbers = st.decimals(allow_nan=False, allow_infinity=False, places=None).filter(
    lambda n: abs(n.adjusted()) < 300
)


@given(numbers, numbers)
def test_numbers_have_equal_keys_when_they_are_equal_and_only_then(one, other):
    assert (key(one) == key(other)) is (one == other)


@given(numbers, st.integers(0, 50))
def test_trailing_zeros_do_not_change_a_numbers_key(number, zeros):
    sign, digits, exponent = number.as_tuple()
    written = Decimal((sign, digits + (0,) * zeros, exponent - zeros))

    assert key(written) == key(number)


json_values = st.recursive(
    st.none() | st.booleans() | st.text() | st.integers() | st.datetimes(timezones=st.just(UTC)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def tagged(value):
    """The value with its kinds: True is not 1, and a moment is not its text."""
    if isinstance(value, list):
        return [tagged(each) for each in value]
    if isinstance(value, dict):
        return {name: tagged(each) for name, each in value.items()}
    return type(value).__name__, value


@given(json_values, json_values)
def test_no_two_values_share_a_key(one, other):
    assert (key([one]) == key([other])) is (tagged(one) == tagged(other))


# --- digests --------------------------------------------------------------------------------------

CHANGED = b'{"invoiceId":"inv_1","billingStatus":"%s","amountDue":0,"amountPaid":%s,"total":10,"paidAt":%s}'


def changed(status=b"Paid", paid=b"10.0", at=b'"2026-01-15T12:00:00Z"'):
    return parse_event("InvoicePaymentStatusChanged", CHANGED % (status, paid, at))


FIELDS = ("invoice_id", "billing_status", "amount_paid", "paid_at")


def test_a_digest_is_of_the_values_and_not_of_how_they_are_written():
    same = changed(paid=b"10.00", at=b'"2026-01-15T05:00:00-07:00"')
    one = content_digest("default", changed(), FIELDS)
    others = [{"status": b"Overdue"}, {"paid": b"10.01"}, {"at": b"null"}, {"at": b'"2026-01-15T12:00:01Z"'}]

    assert (one, len(one)) == (content_digest("default", same, FIELDS), 64)
    assert [other for other in others if content_digest("default", changed(**other), FIELDS) == one] == []


def test_a_digest_covers_the_named_fields_in_any_order_of_one_source_and_one_event_type():
    event, other, by_id = changed(), changed(status=b"Overdue"), ("invoice_id",)
    approved = sample(InvoiceApproved, invoice_id=event.invoice_id)
    failed = sample(PaymentFailed, invoice_id=event.invoice_id)
    one = content_digest("s", event, by_id)

    assert one == content_digest("s", other, by_id)
    both = [content_digest("s", event, order) for order in (("total", "invoice_id"), ("invoice_id", "total"))]
    assert both[0] == both[1]
    others = {content_digest("s", each, by_id) for each in (approved, failed)}
    assert len({one, both[0], content_digest("t", event, by_id), *others}) == 5


# --- what says how new an event is ----------------------------------------------------------------

NUMBERS = st.one_of(
    st.integers(-(10**9), 10**9),
    st.decimals(allow_nan=False, allow_infinity=False, places=6),
    st.sampled_from([Decimal("1e-30"), Decimal("-1e30"), Decimal("-1.2"), Decimal("-1.23"), 0.1, -0.0]),
)
MOMENTS = st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))]))


@given(st.one_of(*(st.tuples(kind, kind) for kind in (NUMBERS, MOMENTS, st.dates(), st.text(max_size=40)))))
def test_keys_sort_as_the_values_do(pair):
    def comparable(value):
        return Decimal(str(value)) if isinstance(value, int | float) else value

    one, other = map(comparable, pair)

    assert (newest_key(pair[0]) < newest_key(pair[1])) == (one < other)
    assert (newest_key(pair[0]) == newest_key(pair[1])) == (one == other)


def test_what_does_not_say_how_new_it_is_has_an_empty_key_and_long_texts_are_cut():
    assert [newest_key(value) for value in (None, Decimal("NaN"), float("inf"))] == [""] * 3
    assert newest_key(Colour.RED) == newest_key("red") != ""
    assert newest_key(NOON.replace(tzinfo=None)) == newest_key(NOON)
    assert newest_key("a" * 500) == newest_key("a" * 600)
    assert set(newest_key("é\0\ud800")) <= set("0123456789abcdef")


@pytest.mark.parametrize("value", [True, ["a"], {"a": 1}, b"a", Fraction(1, 3)])
def test_other_kinds_of_values_are_refused(value):
    with pytest.raises(TypeError, match=f"newest_by is a {type(value).__name__}: a date, a number or a text"):
        newest_key(value)
