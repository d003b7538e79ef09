"""Text from outside, as logs and terminals may show it."""

from __future__ import annotations

import logging

from billhook.basics.printable import PrintableFormatter, error_title, first_line, without_ids


def test_a_first_line_is_one_short_line_without_codes():
    for text, shown in (
        ("KeyError: 'x'", "KeyError: 'x'"),
        ("ValueError: a\n2026-01-01 INFO billhook: all is well", "ValueError: a…"),
        ("ValueError: a\r\nb", "ValueError: a…"),
        ("red \x1b[31m and \u202e turned", "red \\x1b[31m and \\u202e turned"),
        ("\r", "…"),
        ("", ""),
        ("é" * 200, "é" * 200),
        ("x" * 201, "x" * 199 + "…"),
        ("\x1b" * 200, "\\x1b" * 49 + "\\x1" + "…"),
    ):
        assert first_line(text) == shown
        assert len(first_line(text)) <= 200


WITHOUT_IDS = [
    ("customer cus_12 owes 430.00 USD", "customer … owes … USD"),
    ("KeyError: 'Acme Ltd'", "KeyError: …"),
    ('no account for "Zoë \\" Ltd"', "no account for …"),
    ("mail to ada@example.com failed", "mail to … failed"),
    ("f1b2c3d4-0000-4000-8000-000000000000: gone", "…: gone"),
    ("can't reach the ledger: it's closed", "can't reach the ledger: it's closed"),
    ("first line\nsecond line", "first line"),
    ("a" * 100_000, "a" * 200),
    ("'" * 3_000, "…" * 200),
    ("", ""),
]
TITLES = [
    ("ValueError: cus_1 is gone", "ValueError: … is gone"),
    ("Http404: no page 'x' for cus_1", "Http404: no page … for …"),
    ("S3Error: bucket-7: ada@example.com\nmore", "S3Error: …: …"),
    ("S3Error: " + "x" * 300, "S3Error: " + "x" * 191),
    # No class is in front:
    ("cus_1 is gone: twice", "… is gone: twice"),
    ("cus1", "…"),
    ("'cus 1': gone", "…: gone"),
]


def test_ids_numbers_addresses_and_quoted_texts_are_replaced_but_in_the_class_of_an_error():
    assert [without_ids(text) for text, _ in WITHOUT_IDS] == [shown for _, shown in WITHOUT_IDS]
    assert [error_title(error) for error, _ in TITLES] == [title for _, title in TITLES]


def test_a_record_is_one_line_and_a_traceback_is_indented():
    error = LookupError("x\n2026-11-21 22:00:00,000 INFO billhook.worker: all is well \x1b[2J")
    record = logging.LogRecord(
        "billhook", logging.ERROR, __file__, 1, "it\nbroke", (), (LookupError, error, None)
    )

    first, *others = PrintableFormatter("%(levelname)s: %(message)s").format(record).split("\n")

    assert first == "ERROR: it"
    assert all(line.startswith("    ") for line in others)
    assert "\x1b" not in "".join(others)
