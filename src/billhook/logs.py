"""Logging: the fields that records carry as `extra`, and how the standalone app and workers print them.

Lines go to standard error without ever blocking, so that a stalled reader stops no delivery: a log collector
that hangs, a paused `tee`, Ctrl-S in a terminal. So a thread writes the lines of this process, and lines that
do not fit into its queue are dropped and counted.
"""

from __future__ import annotations

import io
import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Any, TypedDict, Unpack

from billhook.basics.concurrency import reset_in_child, start_thread, threads_are_greenlets
from billhook.basics.printable import PrintableFormatter, first_line, printable
from billhook.errors import OutOfResources

QUEUED_LINES = 1_000
_FLUSH_SECONDS = 1.0
"""How long the end of a process waits for its last lines."""


class _Writer:
    """The thread of this process that writes, and its queue."""

    def __init__(self) -> None:
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        # A SimpleQueue, because a signal handler may log and interrupt any code. Its size is checked without
        # a lock.
        self._queue: SimpleQueue[tuple[NonBlockingHandler, int, bytes] | threading.Event] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._dropped = 0

    def put(self, handler: NonBlockingHandler, descriptor: int, line: bytes) -> None:
        """Queue the line for the thread, or drop it."""
        # A thread would be a greenlet too, and its write would block all greenlets.
        if threads_are_greenlets():
            self._write(descriptor, line)
            return
        if self._queue.qsize() >= QUEUED_LINES:
            self._dropped += 1
            return
        self._queue.put((handler, descriptor, line))
        self._start()

    def _start(self) -> None:
        if self._thread is None and self._starting.acquire(blocking=False):
            try:
                if self._thread is None:
                    self._thread = start_thread(self._work, "billhook-log")
            except OutOfResources:
                pass  # the line stays in the queue: the next line, or the end of the process, tries again
            finally:
                self._starting.release()

    def flush(self) -> None:
        """Wait until all lines are written, for a second at most."""
        if self._queue.qsize():
            self._start()
        if self._thread is not None:
            # An empty queue would say nothing: the thread may have taken a line that it has not written yet.
            reached = threading.Event()
            self._queue.put(reached)
            reached.wait(_FLUSH_SECONDS)

    def _work(self) -> None:
        while True:
            taken = self._queue.get()
            if isinstance(taken, threading.Event):
                taken.set()
                continue
            handler, descriptor, line = taken
            dropped = self._dropped
            if dropped:
                self._dropped -= dropped
                line = _dropped_line(handler, dropped) + line
            if not self._write(descriptor, line):
                self._dropped += dropped + 1

    def _write(self, descriptor: int, line: bytes) -> bool:
        # Do not use the stream: its lock would be held meanwhile, and Python needs it when the process ends.
        try:
            while line:
                line = line[os.write(descriptor, line) :]
        except OSError:  # the reader has gone, or the disk is full
            return False
        return True


def _dropped_line(handler: NonBlockingHandler, count: int) -> bytes:
    text = "%d log lines were dropped: standard error could not be written"
    values = {"msg": text, "args": (count,), "name": "billhook.log", "levelno": logging.WARNING}
    try:
        return handler.encode(logging.makeLogRecord({**values, "levelname": "WARNING", "count": count}))
    except Exception:  # noqa: BLE001 - a format of the user's may want fields that only filters set
        return f"{count} log lines were dropped\n".encode()


_WRITER = _Writer()


class NonBlockingHandler(logging.StreamHandler[Any]):
    """Writes to standard error from a thread of its own; a stream without a descriptor at once."""

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the record's line, or drop it."""
        try:
            descriptor = self.stream.fileno()
        except (AttributeError, io.UnsupportedOperation):  # closed at start, or replaced by a test
            if self.stream is not None:
                super().emit(record)
            return
        except ValueError:  # closed meanwhile
            return
        try:
            _WRITER.put(self, descriptor, self.encode(record))
        except Exception:  # noqa: BLE001 - as in logging itself
            self.handleError(record)

    def encode(self, record: logging.LogRecord) -> bytes:
        """Return the line of a record."""
        return (self.format(record) + self.terminator).encode(errors="backslashreplace")

    def flush(self) -> None:
        """Wait until all lines are written, for a second at most. Called when the process ends."""
        _WRITER.flush()


def replace_stream_handlers(*names: str) -> None:
    """Replace the handlers of these loggers that write to standard error by ones that do not block."""
    for logger in map(logging.getLogger, names):
        for old in list(logger.handlers):
            if type(old) is logging.StreamHandler and getattr(old.stream, "name", "") == "<stderr>":
                new = NonBlockingHandler(old.stream)
                new.setFormatter(old.formatter)
                new.setLevel(old.level)
                new.filters, new.name, new.terminator = old.filters, old.name, old.terminator
                # By this gunicorn knows its own handlers, which it removes at a reload.
                vars(new)["_gunicorn"] = getattr(old, "_gunicorn", False)
                logger.removeHandler(old)
                logger.addHandler(new)


_STANDARD = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})
"""The attributes of every record; `taskName` since Python 3.12."""


_COLOURS = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "red"}


class Fields(TypedDict, total=False):
    """The fields that records of billhook may have; a table in deploy/README.md says what they mean.

    `cause` is a word from the code, or an exception whose class is named; `duration` is in seconds.
    """

    delivery_id: int | None
    source: str | None
    key: str | None
    event_type: str | None
    handler: str | None
    attempt: int | None
    cause: str | BaseException | None
    duration: float | None
    count: int | None
    action: str | None
    who: str | None


def fields(**given: Unpack[Fields]) -> dict[str, object]:
    """Return the `extra` of a record, without None values; texts are escaped and cut to 200 characters."""
    return {name: _field(value) for name, value in given.items() if value is not None}


def _field(value: object) -> object:
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, BaseException):
        return type(value).__name__
    return first_line(value) if isinstance(value, str) else value


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
        self,
        kind: Hashable,
        level: int,
        text: str,
        error: BaseException | None = None,
        **known: Unpack[Fields],
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
