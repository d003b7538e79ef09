"""The fields' types: numbers, dates, text, flags, open enumerations, extras; and that events are frozen."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from pydantic import ValidationError

from billhook.errors import InvalidPayload
from billhook.events import (
    CreditPoolDepleted,
    CustomerPortalLinkSent,
    InvoiceApproved,
    Overage,
    UnknownEvent,
    parse_event,
    sample,
)


def overage(amount: bytes) -> Overage:
    body = sample(Overage, overage_amount=Decimal("123.456")).to_json()
    return parse_event("Overage", body.replace(b"123.456", amount))


def approved(date: str) -> InvoiceApproved:
    return parse_event("InvoiceApproved", f'{{"invoiceId":"inv_1","date":{date}}}'.encode())


# --- numbers --------------------------------------------------------------------------------------


def test_a_number_is_parsed_exactly():
    for text in ("1.10", "0", "-3", "100.00", "1e3", "0.1", "79228162514264337593543950335.5"):
        amount = overage(text.encode()).overage_amount

        assert type(amount) is Decimal
        assert amount.as_tuple() == Decimal(text).as_tuple()


def test_a_value_that_is_no_json_number_is_refused():
    for text in ('"1.10"', '"NaN"', "true", "false", "[1]", '{"value":1}', "null"):
        with pytest.raises(InvalidPayload, match=r"because of overageAmount$") as caught:
            overage(text.encode())

        assert caught.value.details == [
            {"loc": ("overageAmount",), "msg": "Input should be a number", "type": "number_type"}
        ]


def test_a_number_may_be_constructed_from_any_number_and_nothing_else():
    for given, amount in ((3, Decimal(3)), (0.1, Decimal("0.1")), (Decimal("2.50"), Decimal("2.50"))):
        assert sample(Overage, overage_amount=given).overage_amount.as_tuple() == amount.as_tuple()
    for given in ("1.10", True, None, 1j):
        with pytest.raises(ValidationError, match="Input should be a number"):
            sample(Overage, overage_amount=given)


def test_a_number_is_finite_and_of_sane_length():
    for given in (float("nan"), float("inf"), *map(Decimal, ("NaN", "sNaN", "-Infinity", "1e641")), 10**641):
        with pytest.raises(ValidationError, match="Input should be a finite number of at most 640 digits"):
            sample(Overage, overage_amount=given)


# --- dates ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-15T09:30:00Z", datetime(2026, 1, 15, 9, 30, tzinfo=UTC)),
        ("2026-01-15t09:30:00z", datetime(2026, 1, 15, 9, 30, tzinfo=UTC)),
        ("2026-01-15T09:30:00", datetime(2026, 1, 15, 9, 30, tzinfo=UTC)),
        ("2026-01-15 09:30", datetime(2026, 1, 15, 9, 30, tzinfo=UTC)),
        ("2026-01-15", datetime(2026, 1, 15, tzinfo=UTC)),
        ("2026-01-15T09:30:00+02:00", datetime(2026, 1, 15, 7, 30, tzinfo=UTC)),
        ("2026-01-15T09:30:00-0530", datetime(2026, 1, 15, 15, 0, tzinfo=UTC)),
        ("2026-01-15T09:30:00.25Z", datetime(2026, 1, 15, 9, 30, 0, 250_000, tzinfo=UTC)),
        ("2026-01-15T09:30:00.123456789Z", datetime(2026, 1, 15, 9, 30, 0, 123_456, tzinfo=UTC)),
        ("2026-03-29T02:30:00+01:00", datetime(2026, 3, 29, 1, 30, tzinfo=UTC)),
    ],
)
def test_a_date_is_an_aware_utc_datetime(text: str, moment: datetime):
    date = approved(f'"{text}"').date

    assert date == moment
    assert date.tzinfo is UTC


NO_DATES = [
    "1700000000", "1700000000.5", '"1700000000"', '"1712010112345"', '"20260115T093000Z"', '"2026-W03-4"',
    '"2026-1-5"', '"2026-01-15_09:30:00Z"', '"2026-02-30T00:00:00Z"', '"2026-01-15T25:00:00Z"',
    '"2026-01-15T09:30:00+24:00"', '"2026-01-15T09:30:00Z "', '"15/01/2026"', '"٢٠٢٦-01-15"', '"yesterday"',
    '""', "true", "null", "[]",
]  # fmt: skip


def test_a_date_that_is_not_iso_8601_is_refused():
    for json_value in NO_DATES:
        with pytest.raises(InvalidPayload, match=r"because of date$") as caught:
            approved(json_value)

        assert caught.value.details == [
            {"loc": ("date",), "msg": "Input should be an ISO 8601 date-time", "type": "moment"}
        ]


def test_a_date_that_utc_cannot_hold_is_refused():
    for text in ("0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"):
        with pytest.raises(InvalidPayload, match=r"because of date$") as caught:
            approved(f'"{text}"')

        assert caught.value.details[0]["msg"] == "Input should be between the years 1 and 9999 in UTC"


def test_a_date_may_be_constructed_from_a_datetime():
    naive = datetime(2026, 1, 15, 9, 30)  # noqa: DTZ001 - a naive one is what is tested
    elsewhere = datetime(2026, 1, 15, 11, 30, tzinfo=timezone(timedelta(hours=2)))

    dates = [sample(InvoiceApproved, date=given).date for given in (naive, elsewhere)]

    assert dates == [datetime(2026, 1, 15, 9, 30, tzinfo=UTC)] * 2
    assert {date.tzinfo for date in dates} == {UTC}


# --- text, flags, enumerations --------------------------------------------------------------------


def test_text_is_nothing_but_text_and_a_flag_true_or_false():
    for json_value in ("1", "true", "null", '["inv_1"]', '{"id":"inv_1"}'):
        body = f'{{"date":"2026-01-15T09:30:00Z","invoiceId":{json_value}}}'.encode()

        with pytest.raises(InvalidPayload, match=r"because of invoiceId$"):
            parse_event("InvoiceApproved", body)
    for json_value in (b"1", b"0", b'"true"', b'"yes"', b"null"):
        body = sample(CustomerPortalLinkSent, is_successful=True).to_json().replace(b"true", json_value)

        with pytest.raises(InvalidPayload, match=r"because of isSuccessful$"):
            parse_event("CustomerPortalLinkSent", body)


def test_an_enumeration_is_open_to_text_only():
    with pytest.raises(ValidationError, match="Input should be a valid string"):
        sample(CreditPoolDepleted, credit_kind=1)


# --- the whole event ------------------------------------------------------------------------------


def test_extra_fields_are_kept_and_readable():
    event = parse_event(
        "InvoiceApproved", b'{"date":"2026-01-15","invoiceId":"i","poNumber":"7","lines":[{"net":1.10}]}'
    )

    assert event.model_extra == {"poNumber": "7", "lines": [{"net": Decimal("1.10")}]}
    assert event.poNumber == "7"


def test_an_event_cannot_be_changed():
    event = sample(InvoiceApproved)

    with pytest.raises(ValidationError, match="Instance is frozen"):
        event.invoice_id = "inv_2"
    with pytest.raises(AttributeError, match="'type' is a ClassVar"):
        event.type = "Overage"
    with pytest.raises(ValidationError, match="Instance is frozen"):
        UnknownEvent(type="VoucherIssued", data={}).type = "Other"
