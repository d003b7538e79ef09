"""The time of signing in its four grammars: one reading of a text, and no separator that is a part of it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billhook.errors import ConfigError, SignatureMalformed, SignatureMismatch
from billhook.signing import SignatureTemplate
from billhook.signing.content_template import ContentTemplate
from billhook.signing.times import TIME_FORMATS, UNIX
from support.signing_cases import NOW, TEXT_SECRET, Delivery, verify

AT = datetime(2026, 1, 15, 9, 30, 5, tzinfo=UTC)
GOOD = {
    "unix": {
        "1768469405": AT,
        "0": datetime(1970, 1, 1, tzinfo=UTC),
        "253402300799": datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
    },
    "unix-ms": {
        "1768469405000": AT,
        "1768469405551": AT + timedelta(milliseconds=551),
        "0": datetime(1970, 1, 1, tzinfo=UTC),
        "253402300799999": datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
    },
    "iso-8601": {
        "2026-01-15T09:30:05": AT,
        "2026-01-15T09:30:05Z": AT,
        "2026-01-15T09:30:05+00:00": AT,
        "2026-01-15T10:00:05+00:30": AT,
        "2026-01-14T22:30:05-11:00": AT,
        "2026-01-15T09:30:05.5": AT + timedelta(milliseconds=500),
        "2026-01-15T09:30:05.123456": AT + timedelta(microseconds=123_456),
        "2026-01-15T09:30:05.123456789Z": AT + timedelta(microseconds=123_456),
        "2024-02-29T00:00:00": datetime(2024, 2, 29, tzinfo=UTC),
        "0001-01-01T00:00:00Z": datetime(1, 1, 1, tzinfo=UTC),
    },
    "http-date": {
        "Thu, 15 Jan 2026 09:30:05 GMT": AT,
        "Sun, 06 Nov 1994 08:49:37 GMT": datetime(1994, 11, 6, 8, 49, 37, tzinfo=UTC),
    },
}
STAMP = "1768469405"
BAD = {
    "unix": ["", f"+{STAMP}", f"-{STAMP}", f" {STAMP}", f"{STAMP} ", f"{STAMP}\n", f"{STAMP}\0", f"{STAMP}.0",
             "1e3", "0x6037bd82", "1_768_469_405", f"0{STAMP}", "00", f"{STAMP}000", "253402300800",
             "9" * 5_000, "1" * 1_000_000, "\ud800", "nan", "inf", "\u00b9\u00b2\u00b3",
             "\u0661\u0667", "\uff11\uff17"],
    "unix-ms": ["", "+1", "-1", " 1", "1 ", "1\n", "01", "00", "1e3", "1_0", "1.0", "\u0661", "\uff11", "nan",
                "253402300800000", "9" * 16, "1" * 8_000, "0x1"],
    "iso-8601": ["", "2026-01-15", "2026-01-15 09:30:05", "2026-01-15t09:30:05", "2026-01-15T09:30:05z",
                 "2026-1-15T09:30:05", "2026-01-15T9:30:05", "2026-01-15T09:30", "20260115T093005",
                 "2026-02-29T00:00:00", "2026-13-01T00:00:00", "2026-00-01T00:00:00", "2026-01-32T00:00:00",
                 "2026-01-15T24:00:00", "2026-01-15T09:60:00", "2026-01-15T09:30:60", "0000-01-01T00:00:00",
                 "2026-01-15T09:30:05.", "2026-01-15T09:30:05.1234567890", "2026-01-15T09:30:05,5",
                 "2026-01-15T09:30:05+1", "2026-01-15T09:30:05+01", "2026-01-15T09:30:05+0100",
                 "2026-01-15T09:30:05+24:00", "2026-01-15T09:30:05+00:60", "2026-01-15T09:30:05 Z",
                 "2026-01-15T09:30:05UTC", " 2026-01-15T09:30:05", "2026-01-15T09:30:05\n",
                 "+002026-01-15T09:30:05",
                 "2026-W03-4T09:30:05", "2026-015T09:30:05", "\u0662026-01-15T09:30:05", "1768469405",
                 "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01"],
    "http-date": ["", "Fri, 15 Jan 2026 09:30:05 GMT", "thu, 15 Jan 2026 09:30:05 GMT",
                  "Thu, 15 jan 2026 09:30:05 GMT", "Thu, 15 Jan 2026 09:30:05 UTC",
                  "Thu, 15 Jan 2026 09:30:05 +0000",
                  "Thu, 15 Jan 2026 09:30:05", "Thursday, 15-Jan-26 09:30:05 GMT", "Thu Jan 15 09:30:05 2026",
                  "Thu, 15 Jan 26 09:30:05 GMT", "Thu, 1 Jan 2026 09:30:05 GMT",
                  "Thu,15 Jan 2026 09:30:05 GMT",
                  "Thu, 15 Jan 2026  09:30:05 GMT", "Thu, 15 Jan 2026 9:30:05 GMT",
                  "Sun, 30 Feb 2026 09:30:05 GMT",
                  "Thu, 15 Jan 2026 24:30:05 GMT", "Thu, 15 Jan 2026 09:30:60 GMT",
                  "Thu, 15 Jan 0000 09:30:05 GMT",
                  "Thu, 15 Jan 2026 09:30:05 GMT ", "Thu, 15 Jan 2026 09:30:05 GMT\n",
                  "Thu, \u0661\u0665 Jan 2026 09:30:05 GMT", "1768469405", "2026-01-15T09:30:05Z"],
}  # fmt: skip


@pytest.mark.parametrize("name", TIME_FORMATS)
def test_a_time_has_one_reading(name):
    moments = {text: TIME_FORMATS[name].read(text, "X-Time") for text in GOOD[name]}

    assert moments == GOOD[name]
    assert {moment.tzinfo for moment in moments.values()} == {UTC}


@pytest.mark.parametrize("name", TIME_FORMATS)
def test_a_time_of_another_format_is_malformed(name):
    said = {}
    for text in BAD[name]:
        try:
            said[text] = str(TIME_FORMATS[name].read(text, "X-Time"))
        except SignatureMalformed as refused:
            said[text] = str(refused)

    told = r"^X-Time holds (no time|an impossible date or time|a day|no timestamp|a timestamp with)"
    assert [text for text, refusal in said.items() if not re.match(told, refusal)] == []


@pytest.mark.parametrize("name", TIME_FORMATS)
@given(st.text(max_size=40) | st.text("0123456789-:.TZ+, GMTJanSu", max_size=40))
def test_any_text_is_a_utc_time_or_malformed(name, text):
    try:
        moment = TIME_FORMATS[name].read(text, "X-Time")
    except SignatureMalformed:
        return
    assert moment.tzinfo is UTC
    assert set(text) <= set(TIME_FORMATS[name].characters)


moments = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31, 23), timezones=st.just(UTC))  # noqa: DTZ001


@pytest.mark.parametrize("name", TIME_FORMATS)
@given(moments)
def test_a_written_time_is_read_back_rounded_down(name, moment):
    text = TIME_FORMATS[name].write(moment.astimezone(timezone(timedelta(hours=5, minutes=30))))

    lost = moment - TIME_FORMATS[name].read(text, "X-Time")

    finest = timedelta(seconds=1) if name in ("unix", "http-date") else timedelta(milliseconds=1)
    assert timedelta(0) <= lost < finest
    assert set(text) <= set(TIME_FORMATS[name].characters)


def test_a_number_of_seconds_that_is_too_long_is_told_from_one_after_the_year_9999():
    for text, told in (
        (f"{STAMP}000", "no timestamp of 1 to 12 ASCII digits"),
        ("253402300800", "year 9999"),
    ):
        with pytest.raises(SignatureMalformed, match=told):
            UNIX.read(text, "X-At")


def test_a_naive_time_is_the_callers_mistake_in_each():
    for name in TIME_FORMATS:
        with pytest.raises(ValueError, match="now must be an aware datetime, got the naive"):
            TIME_FORMATS[name].write(datetime(2026, 1, 15))  # noqa: DTZ001 - the mistake itself


def test_a_number_of_seconds_is_never_below_zero():
    for name in ("unix", "unix-ms"):
        with pytest.raises(ValueError, match="cannot sign at 1969-12-31T23:59:59"):
            TIME_FORMATS[name].write(datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC))


# --- separators -----------------------------------------------------------------------------------


@st.composite
def texts_of(draw, name):
    """A time as `name` may spell it."""
    moment = draw(moments)
    if name != "iso-8601":
        return TIME_FORMATS[name].write(moment)
    fraction = draw(st.sampled_from(["", ".5", ".55", ".551", ".551000001"]))
    return (
        f"{moment:%Y-%m-%dT%H:%M:%S}".zfill(19)
        + fraction
        + draw(st.sampled_from(["", "Z", "+01:30", "-11:00"]))
    )


def is_confused(one: str, separator: str, other: str, *, behind: bool) -> bool:
    """Does a whole time, with the separator next to it, look like a part of a longer one?"""
    if behind:
        return other.endswith(separator + one)
    return other.startswith(one + separator)


@pytest.mark.parametrize("behind", [False, True], ids=["time before body", "time behind body"])
@pytest.mark.parametrize("name", TIME_FORMATS)
@given(data=st.data())
def test_no_separator_that_is_allowed_can_be_a_part_of_the_time(name, behind, data):
    one = data.draw(texts_of(name))
    # The same time goes on, or began earlier, by any text: what a forger would try.
    other = data.draw(texts_of(name) | st.text(TIME_FORMATS[name].characters, max_size=12).map(
        lambda more: more + one if behind else one + more
    ))  # fmt: skip
    separator = data.draw(st.sampled_from(":.,;|Z+- \n05T"))
    try:
        TIME_FORMATS[name].read(other, "X-Time")
        fields = ["{body}", "{timestamp}"] if behind else ["{timestamp}", "{body}"]
        ContentTemplate(separator.join(fields), TIME_FORMATS[name])
    except (SignatureMalformed, ConfigError):
        return
    assert not is_confused(one, separator, other, behind=behind)


def test_separators_that_a_time_could_contain_are_found_and_refused():
    for one, separator, other in (
        ("2026-01-15T09:30:05", ".", "2026-01-15T09:30:05.5"),
        ("2026-01-15T09:30:05.5", "1", "2026-01-15T09:30:05.51"),
        ("2026-01-15T09:30:05", "Z", "2026-01-15T09:30:05Z"),
        ("2026-01-15T09:30:05", "-", "2026-01-15T09:30:05-01:00"),
    ):
        assert is_confused(one, separator, other, behind=False)
        with pytest.raises(ConfigError, match=r"beside \{timestamp\}"):
            ContentTemplate(f"{{timestamp}}{separator}{{body}}", TIME_FORMATS["iso-8601"])


def test_a_template_without_ambiguity_with_its_time_format_is_allowed():
    for content, name in (
        ("v1:{timestamp}:{body}", "iso-8601"),
        ("{timestamp}\n{body}", "http-date"),
        ("{timestamp}:{body}", "http-date"),
        ("{body}-{timestamp}", "iso-8601"),
        ("{timestamp}:{body}", "unix"),
        ("{timestamp},{body}", "unix-ms"),
    ):
        scheme = SignatureTemplate(content=content, time_format=name)
        headers = scheme.sign(b"{}", TEXT_SECRET, event_type="PingTest", now=NOW)

        assert verify(scheme, Delivery(headers, b"{}"), [TEXT_SECRET]).signed_at == NOW


def test_the_plain_guard_would_refuse_a_time_with_colons():
    text = TIME_FORMATS["iso-8601"].write(NOW)

    assert ":" in text
    assert ContentTemplate("{timestamp}:{body}", TIME_FORMATS["iso-8601"]).render({"timestamp": text}, b"{}")
    assert ContentTemplate("{id}:{body}", UNIX).render({"id": text}, b"{}") is None


# --- one spelling of a moment is not another ------------------------------------------------------


def test_another_spelling_of_the_same_moment_is_another_content():
    scheme = SignatureTemplate(content="{timestamp}|{body}", time_format="iso-8601")
    headers = scheme.sign(b"{}", TEXT_SECRET, event_type="PingTest", now=NOW)
    written = headers["X-Webhook-Timestamp"]

    assert verify(scheme, Delivery(headers, b"{}"), [TEXT_SECRET]).signed_at == NOW
    for text in (written.removesuffix("Z"), written.replace("Z", "+00:00"), re.sub(r"\.000", "", written)):
        assert TIME_FORMATS["iso-8601"].read(text, "X-Time") == NOW
        with pytest.raises(SignatureMismatch, match="no signature in the request matches"):
            verify(scheme, Delivery(headers | {"X-Webhook-Timestamp": text}, b"{}"), [TEXT_SECRET])


def test_milliseconds_count_at_the_edge_of_the_tolerance():
    scheme = SignatureTemplate(content="{timestamp}.{body}", time_format="unix-ms")
    at = NOW + timedelta(milliseconds=551)
    headers = scheme.sign(b"{}", TEXT_SECRET, event_type="PingTest", now=at)

    for edge in (timedelta(seconds=300), timedelta(seconds=-300)):
        assert verify(scheme, Delivery(headers, b"{}"), [TEXT_SECRET], at=at + edge).signed_at == at
        with pytest.raises(Exception, match=r"signed 300\.0 s"):
            verify(scheme, Delivery(headers, b"{}"), [TEXT_SECRET], at=at + edge * 1.00001)
