"""Text, times and numbers as pages show them; JSON and tracebacks in colour."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from html import unescape
from zoneinfo import ZoneInfo

import pytest

from billhook.clock import format_ago, format_duration
from billhook.pages.text import (
    age_element,
    format_bytes,
    highlight,
    render_markdown,
    show_code,
    show_invisible,
    show_name,
    time_element,
)
from support.timeouts import scaled

NOON = datetime(2026, 1, 15, 12, tzinfo=UTC)


def test_a_duration_has_at_most_two_units():
    for seconds, shown in (
        (0.0, "0 ms"), (0.34, "340 ms"), (1, "1 s"), (2.25, "2.2 s"), (59, "59 s"), (60, "1 min"),
        (200, "3 min 20 s"), (3_600, "1 h"), (63_360, "17 h 36 min"), (187_200, "2 d 4 h"),
    ):  # fmt: skip
        assert format_duration(seconds) == shown


def test_a_name_may_be_broken_behind_dots_and_a_part_that_is_long_between_its_words():
    def lines(name):
        return unescape(re.sub(r"</?(?:span|bdi)[^>]*>", "", show_name(name))).split("<wbr>")

    assert lines("shop.mail_all.sendReceipt") == ["shop.", "mail_all.", "sendReceipt"]
    assert lines("shop.book_invoice_or_failed__payment") == [
        "shop.", "book_", "invoice_", "or_", "failed__", "payment",
    ]  # fmt: skip
    assert lines("InvoicePaymentStatusChanged") == ["Invoice", "Payment", "Status", "Changed"]


def test_a_size():
    sizes = {1: "1 byte", 999: "999 bytes", 3_400: "3.4 KB", 1e6: "1.0 MB"}

    assert {number: format_bytes(number) for number in sizes} == sizes


def test_times_are_in_utc_and_say_how_long_ago():
    berlin = NOON.astimezone(ZoneInfo("Europe/Berlin"))

    assert time_element(berlin).endswith(">2026-01-15 12:00:00</time>")
    assert time_element(None) == ""
    assert format_ago(NOON, NOON + timedelta(minutes=5)) == "5 min ago"
    assert format_ago(NOON, NOON - timedelta(seconds=10)) == "in 10 s"
    assert format_ago(NOON, NOON + timedelta(milliseconds=637)) == "just now"
    assert format_ago(NOON, NOON + timedelta(seconds=1)) == "1 s ago"
    assert format_ago(NOON, NOON + timedelta(seconds=1.7)) == "1 s ago"
    assert format_ago(NOON, NOON - timedelta(seconds=9.7)) == "in 9 s"


def test_an_age_comes_first_and_then_the_time_of_the_day_or_the_day():
    ages = {
        "5 min ago": timedelta(minutes=5),
        "3 d ago": timedelta(days=3),
        "in 5 min": timedelta(minutes=-5),
    }
    shown = {age: age_element(NOON - before, NOON) for age, before in ages.items()}

    assert [str(html).partition("<small>")[2] for html in shown.values()] == [
        "11:55:00</small>", "01-12 12:00</small>", "12:05:00</small>",
    ]  # fmt: skip
    assert all(f'UTC">{age}</time>' in html for age, html in shown.items())
    assert 'title="2026-01-12 12:00:00 UTC"' in shown["3 d ago"]


def test_a_character_that_cannot_be_seen_differs_from_a_backslash_that_was_sent():
    shown = show_invisible("a\u202e\\u202e<")

    assert shown == '<bdi>a<span class="invisible">\\u202e</span>\\u202e&lt;</bdi>'


def test_a_long_name_within_a_text_may_be_broken_behind_dots_and_underscores():
    shown = show_invisible("Handler shop.mail.send_receipt_to_payer failed. See shop.mail.send & <b>.")

    assert shown == (
        "<bdi>Handler shop.<wbr>mail.<wbr>send_<wbr>receipt_<wbr>to_<wbr>payer failed. "
        "See shop.mail.send &amp; &lt;b&gt;.</bdi>"
    )


def test_what_stands_between_backticks_is_code():
    assert show_code("run `a<b` now, `") == (
        "<bdi>run </bdi><code><bdi>a&lt;b</bdi></code><bdi> now, `</bdi>"
    )


def test_markdown_is_html_without_any_that_was_written():
    html = render_markdown("Run **now**:\n\n```console\nbillhook <b>\n```\n\n[x](javascript:1) <i>\u202e")

    assert html == (
        "<p>Run <strong>now</strong>:</p>\n"
        '<pre><code class="language-console">billhook &lt;b&gt;\n</code></pre>\n'
        "<p>[x](javascript:1) &lt;i&gt;\\u202e</p>\n"
    )


@pytest.mark.parametrize("language", ["json", "traceback"])
def test_highlighting_escapes_whatever_language_it_reads(language):
    for text in ("</pre><script>alert(1)</script>", '{"a": "<script>"}', "\u202e\x00<svg/onload=1>"):
        html = highlight(text, language)

        assert "<script" not in html
        assert "<svg" not in html
        assert "\u202e" not in html
        assert "style=" not in html  # which the content security policy would refuse


def test_json_is_in_colour_and_a_very_long_text_is_not():
    assert '<span class="hl-nt">"a"</span>' in unescape(highlight('{"a": 1}', "json"))
    assert "<span" not in highlight('{"a": "' + "x" * 50_000 + '"}', "json")
    assert highlight("{\n\n\n}", "json").count("\n") >= 3


def test_a_traceback_is_in_colour():
    text = 'Traceback (most recent call last):\n  File "a.py", line 3, in book\n    1 / 0\nKeyError: 1\n'

    assert '<span class="hl-' in highlight(text, "traceback")


def test_a_long_text_of_characters_that_cannot_be_seen_does_not_hold_up_a_page():
    started = time.perf_counter()

    shown = show_invisible("\u202e" * 40_000 + "x" * 160_000)

    assert shown.count("<span") == 1
    assert time.perf_counter() - started < scaled(15)  # a quadratic step would take minutes
