"""Log lines whose reader stands still, has gone, or comes back."""

from __future__ import annotations

import fcntl
import io
import logging
import os
import select
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue

import pytest

from billhook import logs
from billhook.errors import OutOfResources
from billhook.logs import QUEUED_LINES, NonBlockingHandler, replace_stream_handlers
from support.processes import until

PIPE_BYTES = 4_096
TOLD = " log lines were dropped: standard error could not be written"


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    if sys.platform == "linux":  # elsewhere a pipe has its own size
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    # Python would try to write out what its buffer has.
    with os.fdopen(writer, "w") as stream:
        yield reader, stream
        os.set_blocking(reader, False)
        read_all(reader)


def read_all(reader):
    try:
        return os.read(reader, 1_000_000)
    except BlockingIOError:
        return b""


@pytest.fixture
def logger(pipe, monkeypatch):
    monkeypatch.setattr(logs, "_WRITER", logs._Writer())
    handler = NonBlockingHandler(pipe[1])
    handler.setFormatter(logging.Formatter("%(message)s"))
    made = logging.getLogger("test_log_output.pipe")
    made.addHandler(handler)
    made.propagate = False
    yield made
    made.removeHandler(handler)


def test_lines_arrive_in_their_order(pipe, logger):
    # Half a pair in the format, not in the records, which pytest could not report to another process.
    logger.handlers[0].setFormatter(logging.Formatter("%(message)s \udcff"))
    for number in range(20):
        logger.warning("line %d", number)
    logger.handlers[0].flush()

    lines = os.read(pipe[0], 65_536).decode().splitlines()
    assert lines == [f"line {number} \\udcff" for number in range(20)]


class HandingOver(SimpleQueue):
    """As in Python 3.13: a line leaves the queue before the thread that waits for it runs."""

    def get(self):
        line = super().get()
        time.sleep(0.05)
        return line


@pytest.fixture
def handing_over(monkeypatch):
    monkeypatch.setattr(logs, "SimpleQueue", HandingOver)


def test_the_last_line_is_written_before_the_process_ends(pipe, handing_over, logger):
    os.set_blocking(pipe[0], False)

    logger.warning("Shutting down")
    until(logs._WRITER._queue.empty)
    logger.handlers[0].flush()

    assert read_all(pipe[0]) == b"Shutting down\n"


def test_a_line_for_which_no_thread_can_start_is_written_at_the_end_of_the_process(pipe, logger, monkeypatch):
    def refuse(*_):
        raise OutOfResources("no task left")

    with monkeypatch.context() as without_threads:
        without_threads.setattr(logs, "start_thread", refuse)
        logger.warning("reload failed")
        logger.handlers[0].flush()
    assert not select.select([pipe[0]], [], [], 0)[0]
    logger.handlers[0].flush()

    assert os.read(pipe[0], 65_536) == b"reload failed\n"


def test_a_reader_that_stands_still_blocks_nothing_and_learns_how_many_lines_are_missing(pipe, logger):
    sent = QUEUED_LINES + 500

    def log():
        for number in range(sent):
            logger.warning("%d %s", number, "x" * 200)

    thread = threading.Thread(target=log, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()

    os.set_blocking(pipe[0], False)
    got = bytearray()

    def all_are_accounted_for():
        nonlocal sent
        got.extend(read_all(pipe[0]))
        logger.warning("again")
        sent += 1
        lines = got.decode().splitlines()
        told = [int(line.split()[0]) for line in lines if line.endswith(TOLD)]
        written = len(lines) - len(told)
        return written >= QUEUED_LINES and sum(told) >= 400 and sent - 5 <= written + sum(told) <= sent

    until(all_are_accounted_for, 20)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_a_reader_that_is_gone_costs_a_line_and_nothing_else(pipe, logger, capfd):
    os.dup2(os.open("/dev/full", os.O_WRONLY), pipe[1].fileno())

    logger.warning("lost")
    logger.handlers[0].flush()

    assert capfd.readouterr() == ("", "")


def test_a_stream_without_a_descriptor_is_written_at_once(logger):
    logger.handlers[0].setStream(stream := io.StringIO())

    logger.warning("here")

    assert stream.getvalue() == "here\n"


def test_a_standard_error_that_is_closed_takes_nothing(logger):
    logger.handlers[0].stream = None
    logger.warning("nowhere")


def test_only_handlers_of_standard_error_are_replaced(tmp_path):
    kept = [logging.FileHandler(tmp_path / "log"), logging.StreamHandler(io.StringIO())]
    formatter = logging.Formatter("%(message)s!")
    console = logging.StreamHandler(sys.__stderr__)
    console.setFormatter(formatter)
    logger = logging.getLogger("test_log_output.replaced")
    for handler in (console, *kept):
        logger.addHandler(handler)

    replace_stream_handlers(logger.name)

    assert logger.handlers[:-1] == kept
    assert isinstance(logger.handlers[-1], NonBlockingHandler)
    assert logger.handlers[-1].formatter is formatter
    kept[0].close()
