"""The fields of log records, and how they are printed."""

from __future__ import annotations

import json
import logging

import pytest

from billhook.basics.printable import PrintableFormatter
from billhook.logs import EscapedTracebacks, JsonFormatter, fields, set_up_logging

FORGED = "x\n2026-11-21 INFO billhook: all is well \x1b[2J\u202e"


def record_of(error=None, **extra):
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    logger = logging.getLogger("billhook.test")
    return logger.makeRecord(
        logger.name, logging.WARNING, __file__, 1, "it %s", ("broke",), exc_info, extra=extra
    )


def test_fields_leave_out_what_is_not_known_and_escape_and_cut_texts():
    assert fields(
        delivery_id=7, key=FORGED, handler="h" * 300, cause=LookupError("x"), duration=0.1234567
    ) == {
        "delivery_id": 7,
        "key": "x…",
        "handler": "h" * 199 + "…",
        "cause": "LookupError",
        "duration": 0.123457,
    }


def test_a_record_is_one_json_object_in_one_line_of_ascii():
    line = JsonFormatter().format(record_of(LookupError(FORGED), key=FORGED, count=3, slow=float("nan")))

    assert "\n" not in line
    assert line.isascii()
    found = json.loads(line)
    assert found["time"].endswith("+00:00")
    assert found["traceback"].endswith(f"LookupError: {FORGED}")
    assert {name: found[name] for name in ("level", "logger", "message", "key", "count", "slow")} == {
        "level": "WARNING", "logger": "billhook.test", "message": "it broke", "key": FORGED, "count": 3,
        "slow": "nan",
    }  # fmt: skip


def test_json_has_no_objects_and_an_extra_replaces_nothing():
    found = json.loads(
        JsonFormatter().format(record_of(whom={"password": "hunter2"}, level="none", none=None))
    )

    assert found["level"] == "WARNING"
    assert found.keys() == {"time", "level", "logger", "process", "message"}


def test_json_has_the_stack_that_was_asked_for():
    record = record_of()
    record.stack_info = "Stack (most recent call last):"

    assert json.loads(JsonFormatter().format(record))["stack"] == record.stack_info


@pytest.mark.parametrize("formatter", [PrintableFormatter(), JsonFormatter()])
def test_of_a_long_traceback_the_end_is_kept(formatter):
    line = formatter.format(record_of(LookupError("y" * 50_000)))

    assert 15_900 < len(line) < 16_500
    assert "y" * 15_900 in line


def test_a_traceback_is_escaped_for_a_formatter_of_the_users():
    record = record_of(LookupError(FORGED))

    assert EscapedTracebacks().filter(record)
    lines = logging.Formatter("%(message)s").format(record).splitlines()

    assert lines[0] == "it broke"
    assert all(line.startswith("    ") for line in lines[1:])
    assert "\x1b" not in "".join(lines)
    # Our own formatter makes one of it as it would have without.
    assert PrintableFormatter().format(record) == PrintableFormatter().format(record_of(LookupError(FORGED)))


@pytest.mark.parametrize(("log_format", "made"), [("json", JsonFormatter), (None, PrintableFormatter)])
def test_logging_is_set_up_once(monkeypatch, log_format, made):
    root = logging.getLogger()
    # In the test itself: pytest adds handlers of its own right before it.
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", logging.WARNING)

    set_up_logging(log_format, show_process=True)
    set_up_logging("json" if log_format is None else None)

    (handler,) = root.handlers
    assert type(handler.formatter) is made
    assert root.level == logging.INFO
