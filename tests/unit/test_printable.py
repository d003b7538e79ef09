"""Text from outside, as logs and terminals may show it."""

from __future__ import annotations

import logging

from billhook.printable import PrintableFormatter, first_line


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


def test_a_record_is_one_line_and_a_traceback_is_indented():
    error = LookupError("x\n2026-11-21 22:00:00,000 INFO billhook.worker: all is well \x1b[2J")
    record = logging.LogRecord(
        "billhook", logging.ERROR, __file__, 1, "it\nbroke", (), (LookupError, error, None)
    )

    first, *others = PrintableFormatter("%(levelname)s: %(message)s").format(record).split("\n")

    assert first == "ERROR: it"
    assert all(line.startswith("    ") for line in others)
    assert "\x1b" not in "".join(others)
