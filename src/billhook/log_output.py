"""Write log lines to standard error without ever blocking, so that a stalled reader stops no delivery.

The reader of standard error may stop reading: a log collector that hangs, a paused `tee`, Ctrl-S in a
terminal. So a thread writes the lines of this process, and lines that do not fit into its queue are dropped
and counted.
"""

from __future__ import annotations

import io
import logging
import os
import threading
import time
from queue import SimpleQueue
from typing import Any

from billhook.errors import OutOfResources
from billhook.threads import reset_in_child, start_thread, threads_are_greenlets

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
        self._queue: SimpleQueue[tuple[NonBlockingHandler, int, bytes]] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._dropped = 0
        self._unwritten = 0

    def put(self, handler: NonBlockingHandler, descriptor: int, line: bytes) -> None:
        """Queue the line for the thread, or drop it."""
        if (
            threads_are_greenlets()
        ):  # a thread would be a greenlet too, and its write would block all greenlets
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
        end = time.monotonic() + _FLUSH_SECONDS
        while self._thread is not None and (self._queue.qsize() or self._unwritten):
            if time.monotonic() > end:
                return
            time.sleep(0.002)

    def _work(self) -> None:
        while True:
            handler, descriptor, line = self._queue.get()
            self._unwritten = 1
            dropped = self._dropped
            if dropped:
                self._dropped -= dropped
                line = _dropped_line(handler, dropped) + line
            if not self._write(descriptor, line):
                self._dropped += dropped + 1
            self._unwritten = 0

    def _write(self, descriptor: int, line: bytes) -> bool:
        # Do not use the stream: its lock would be held meanwhile, and Python needs it when the process ends.
        try:
            while line:
                line = line[os.write(descriptor, line) :]
        except OSError:  # the reader has gone, or the disk is full
            return False
        return True


def _dropped_record(count: int) -> logging.LogRecord:
    text = "%d log lines were dropped: standard error could not be written"
    values = {"msg": text, "args": (count,), "name": "billhook.log", "levelno": logging.WARNING}
    return logging.makeLogRecord({**values, "levelname": "WARNING", "count": count})


def _dropped_line(handler: NonBlockingHandler, count: int) -> bytes:
    try:
        return handler.encode(_dropped_record(count))
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
                vars(new)["_gunicorn"] = getattr(
                    old, "_gunicorn", False
                )  # gunicorn removes its own handlers at a reload
                logger.removeHandler(old)
                logger.addHandler(new)
