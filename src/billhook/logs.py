"""Logging: the fields that records carry as `extra`, and how the standalone app and workers print them."""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from billhook.log_output import NonBlockingHandler
from billhook.printable import PrintableFormatter, first_line, printable

_STANDARD = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})
"""The attributes of every record; `taskName` since Python 3.12."""


_COLOURS = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "red"}


def fields(
    *,
    delivery_id: int | None = None,
    source: str | None = None,
    key: str | None = None,
    event_type: str | None = None,
    handler: str | None = None,
    attempt: int | None = None,
    cause: str | BaseException | None = None,
    duration: float | None = None,
    count: int | None = None,
    action: str | None = None,
    who: str | None = None,
) -> dict[str, object]:
    """Return the `extra` of a record, without None values; texts are escaped and cut to 200 characters.

    `cause` is a word from the code, or an exception whose class is named; `duration` is in seconds.
    """
    # The names and their meanings are a table in deploy/README.md.
    given = {
        "delivery_id": delivery_id,
        "source": source,
        "key": key,
        "event_type": event_type,
        "handler": handler,
        "attempt": attempt,
        "cause": type(cause).__name__ if isinstance(cause, BaseException) else cause,
        "duration": None if duration is None else round(duration, 6),
        "count": count,
        "action": action,
        "who": who,
    }
    return {
        name: first_line(value) if isinstance(value, str) else value
        for name, value in given.items()
        if value is not None
    }


@dataclass(slots=True)
class _Kind:
    """Records of one kind: when the last line was logged, and the records since."""

    logged_at: float
    count: int = 0
    level: int = logging.NOTSET
    text: str = ""
    extra: dict[str, object] = field(default_factory=dict)
    error: BaseException | None = None


class LimitedLog:
    """Logs the first record of a kind at once, then one line in `interval_seconds` with the number since.

    It is for records that strangers can cause, who could otherwise flood the log. The kinds come from the
    configuration and the code, so requests cannot add any.
    """

    def __init__(
        self,
        logger: logging.Logger,
        interval_seconds: float = 1.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self.interval_seconds = interval_seconds
        self.monotonic = monotonic
        self._lock = threading.Lock()
        self.kinds: dict[Hashable, _Kind] = {}
        """Empty until the first record: code that runs for every accepted delivery checks this first."""

    def log(
        self, kind: Hashable, level: int, text: str, error: BaseException | None = None, **known: Any
    ) -> None:
        """Log `text` now, with the traceback of `error`, or count it into the next line of its kind.

        `known` is what `fields` takes.
        """
        now = self.monotonic()
        with self._lock:
            record = self.kinds.setdefault(kind, _Kind(-math.inf))
            record.level, record.text, record.extra = level, text, fields(**known)
            record.count, record.error = record.count + 1, error
            due = self._take_due(now, self.interval_seconds)
        self._write(due, now)
        record.error = None  # its traceback refers to the whole request

    def flush(self, *, all_of_them: bool = False) -> None:
        """Log the kinds whose last line is old enough, or `all_of_them` when the process ends."""
        if not self.kinds:
            return
        now = self.monotonic()
        with self._lock:
            due = self._take_due(now, 0.0 if all_of_them else self.interval_seconds)
        self._write(due, now)

    def _take_due(self, now: float, age_seconds: float) -> list[_Kind]:
        due = []
        for kind, record in self.kinds.items():
            if record.count and now - record.logged_at >= age_seconds:
                due.append(record)
                self.kinds[kind] = _Kind(now)
        return due

    def _write(self, due: list[_Kind], now: float) -> None:
        for one in due:
            if one.count == 1:
                self._logger.log(one.level, "%s", one.text, exc_info=one.error, extra=one.extra)
                continue
            text, extra = "%s; %d times in %.0f s", {**one.extra, "count": one.count}
            arguments = (one.text, one.count, now - one.logged_at)
            self._logger.log(one.level, text, *arguments, exc_info=one.error, extra=extra)


class JsonFormatter(PrintableFormatter):
    """One JSON object for each record, in one line of ASCII: invisible and dangerous characters are escaped.

    It has `time` (UTC, ISO 8601), `level`, `logger`, `process`, `message`, the `extra` of the record where
    that is text, a number or a truth value, and `traceback`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line without its end."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        for name, value in vars(record).items():
            # Leave other objects out: their text may contain secrets.
            if name not in _STANDARD and name not in line and isinstance(value, str | int | float):
                # JSON has no NaN and no infinity.
                line[name] = str(value) if isinstance(value, float) and not math.isfinite(value) else value
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(line)


class EscapedTracebacks(logging.Filter):
    """Makes every formatter, also the user's own, print tracebacks escaped, indented and cut.

    The last line of a handler's traceback is its error, which may quote the payload.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Format the traceback of a record, and let it pass."""
        if record.exc_info and not record.exc_text:
            text = PrintableFormatter().formatException(record.exc_info)
            record.exc_text = "    " + printable(text, keep="\n\t").replace("\n", "\n    ")
        return True


class ColouredFormatter(PrintableFormatter):
    """Colours records for a terminal: warnings, errors, and what a handler did."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's text, escaped, in its colour."""
        from rich.style import Style

        done = "green" if hasattr(record, "handler") else ""
        return Style.parse(_COLOURS.get(record.levelno, done)).render(super().format(record))


def set_up_logging(log_format: str | None, *, show_process: bool = False) -> None:
    """Log to standard error at level INFO, as JSON if `log_format` is "json"; keep what is set up already.

    Lines that standard error does not take are dropped and counted. `show_process` adds the process id to
    text; JSON always has it. Text on a terminal is coloured, unless NO_COLOR is set.
    """
    if logging.getLogger().handlers:
        return
    process = " [%(process)d]" if show_process else ""
    kind = ColouredFormatter if os.isatty(2) and not os.environ.get("NO_COLOR") else PrintableFormatter
    text = kind(f"%(asctime)s{process} %(levelname)s %(name)s: %(message)s")
    output = NonBlockingHandler()
    output.setFormatter(JsonFormatter() if log_format == "json" else text)
    logging.basicConfig(level=logging.INFO, handlers=[output])
    logging.getLogger("alembic").setLevel(logging.WARNING)  # alembic's INFO lines about a new inbox are noise
