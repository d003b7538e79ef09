"""Reading a body from WSGI: whole, or not at all, whatever the stream does."""

from __future__ import annotations

import errno
import io
import socket
import threading
import time

import pytest

from billhook.errors import BodyIncomplete, BodyTooLarge
from billhook.receiver.wsgi import BodyDeadline, close_connection, drain, read_body
from support.processes import in_children, until
from support.timeouts import scaled

MIB = 1024 * 1024
"""How much is read of a body that was refused."""


class Stream:
    """A stream that gives these pieces, one at each read, and raises those that are exceptions."""

    failed = False  # as that of gunicorn 27

    def __init__(self, *pieces):
        self.pieces = list(pieces)
        self.asked = []

    def read(self, size):
        self.asked.append(size)
        piece = self.pieces.pop(0) if self.pieces else b""
        if isinstance(piece, BaseException):
            raise piece
        return piece


def environ(stream, length=None, *, terminated=False):
    found = {"wsgi.input": stream}
    if length is not None:
        found["CONTENT_LENGTH"] = length
    if terminated:
        found["wsgi.input_terminated"] = True
    return found


def test_a_body_as_long_as_the_limit_is_read_in_any_number_of_pieces_and_no_byte_beyond():
    pieces, more = Stream(b"ab", b"c", b"de"), io.BytesIO(b"abcdeNEXT")

    assert read_body(environ(pieces, "5"), 5) == b"abcde"
    assert read_body(environ(more, "0" * 24 + "5"), 5) == b"abcde"  # leading zeros mean nothing
    assert (pieces.asked, more.read()) == ([5, 3, 2], b"NEXT")


def test_a_declared_length_over_the_limit_is_refused_unread():
    stream = Stream(b"x")

    for length in ("11", "9" * 18):
        with pytest.raises(BodyTooLarge, match="over 10 bytes"):
            read_body(environ(stream, length), 10)

    assert stream.asked == []


def test_a_body_without_a_length_is_read_to_one_byte_over_the_limit():
    assert read_body(environ(io.BytesIO(b"x" * 10), terminated=True), 10) == b"x" * 10
    for size in (11, 1_000):
        stream = io.BytesIO(b"x" * size)
        with pytest.raises(BodyTooLarge, match="over 10 bytes"):
            read_body(environ(stream, terminated=True), 10)
        assert stream.tell() == 11


ERRORS = [ValueError("chunk"), OSError("reset"), TimeoutError(), EOFError()]
NO_LENGTHS = ["-1", "+1", "1.0", "0x1", " 1", "1 ", "\u0661", "1_0", "9" * 19, "1,1", "two"]
INCOMPLETE = [
    *((pieces, "5", "of 5 bytes came") for pieces in ((), (b"abc",), (b"a", b"bcd"))),
    *(((b"a", error), "5", f"^{type(error).__name__}$") for error in ERRORS),
    *(((b"x",), length, "Content-Length is no number") for length in NO_LENGTHS),
]


def test_a_body_that_is_short_or_breaks_or_has_no_length_is_incomplete_and_says_why():
    for pieces, length, told in INCOMPLETE:
        with pytest.raises(BodyIncomplete, match=told):
            read_body(environ(Stream(*pieces), length), 10)


def test_no_length_or_none_to_speak_of_is_no_body():
    stream = Stream(b"left alone")

    assert [read_body(environ(stream, length), 10) for length in (None, "", "0", "00")] == [b""] * 4
    assert stream.asked == []


def test_giving_up_marks_a_stream_that_can_be_marked_and_no_other():
    marked, plain = Stream(), io.BytesIO()

    close_connection(marked)
    close_connection(plain)

    assert marked.failed is True
    assert marked.read(1) == b""


def test_the_stream_of_an_older_gunicorn_cannot_be_read_for_the_next_request():
    class Older:
        def read(self, size=None):
            return b"POST"

    stream = Older()
    close_connection(stream)

    for sizes in ((), (1024,)):
        with pytest.raises(OSError, match="not connected") as raised:
            stream.read(*sizes)
        assert raised.value.errno == errno.ENOTCONN


@pytest.mark.parametrize(
    ("length", "pieces", "closes"),
    [
        ("5", (b"ab", b"cde"), False),
        ("5", (b"ab",), True),
        ("5", (b"ab", OSError("reset")), True),
        ("0", (), False),
        (str(MIB + 1), (b"x" * MIB, b"y"), True),
        (str(MIB + 1), (b"x", OSError("reset")), True),
        (None, (b"ab",), False),
        (None, (), False),
        (None, (b"x" * MIB, b"y"), True),
        (None, (b"ab", ValueError("chunk")), True),
    ],
)
def test_the_rest_of_a_refused_body_is_read_to_its_end_or_the_connection_closed(length, pieces, closes):
    stream = Stream(*pieces)

    drain(length or "", stream)

    assert getattr(stream, "failed", False) is closes
    assert sum(stream.asked[:1]) <= MIB


# --- the watch over slow ones ---------------------------------------------------------------------


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_reading_that_lasts_too_long_is_ended(pair):
    ours, _ = pair
    started = time.monotonic()

    with BodyDeadline(0.1).reading(ours):
        received = ours.recv(1)

    assert received == b""
    assert 0.09 < time.monotonic() - started < scaled(1)


def test_a_body_read_in_time_leaves_its_socket_open(pair):
    ours, theirs = pair
    watch = BodyDeadline(0.1)

    theirs.send(b"a")
    with watch.reading(ours):
        first = ours.recv(1)
    time.sleep(0.2)
    theirs.send(b"b")

    assert (first, ours.recv(1)) == (b"a", b"b")


def test_each_reading_has_its_own_deadline(pair):
    watch, ended = BodyDeadline(0.15), []

    def read(delay):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            time.sleep(delay)
            started = time.monotonic()
            with watch.reading(ours):
                ours.recv(1)
            ended.append(time.monotonic() - started)

    threads = [threading.Thread(target=read, args=(n * 0.03,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(0.14 < seconds < scaled(2) for seconds in ended)
    assert len([t for t in threading.enumerate() if t.name == "billhook-slow-bodies"]) >= 1


def test_the_watch_sleeps_between_readings_and_wakes_for_the_next(pair):
    ours, _ = pair
    watch = BodyDeadline(0.05)
    with watch.reading(ours):
        pass
    began = time.process_time()
    time.sleep(0.2)

    assert time.process_time() - began < 0.02
    with watch.reading(ours):
        assert ours.recv(1) == b""


def test_a_connection_that_is_closed_already_is_no_trouble_for_the_watch(pair):
    ours, _ = pair
    watch = BodyDeadline(0.05)
    gone = socket.socket()
    with watch.reading(gone):
        gone.close()
        time.sleep(0.1)

    with watch.reading(ours):
        assert ours.recv(1) == b""


def test_a_forked_child_watches_for_itself(pair):
    ours, _ = pair
    watch = BodyDeadline(0.1)
    with watch.reading(ours):
        pass

    def child(_):
        mine, theirs = socket.socketpair()
        with mine, theirs, watch.reading(mine):
            return b"ended" if mine.recv(1) == b"" else b"?"

    assert in_children(1, child) == [b"ended"]


def test_a_child_forked_during_a_thread_start_can_start_its_own(pair):
    watch = BodyDeadline(0.1)

    def child(_):
        threading.Thread(target=watch.start, daemon=True).start()
        ended = until(lambda: watch._thread is not None and watch._thread.is_alive(), scaled(2))
        return b"started" if ended else b"hangs"

    with watch._lock:
        said = in_children(1, child)

    assert said == [b"started"]


def test_one_thread_watches_all_readings(pair):
    before, watch = threading.enumerate(), BodyDeadline(5)

    with watch.reading(pair[0]), watch.reading(pair[1]):
        watch.start()  # another request that found no thread at the same moment
        names = [thread.name for thread in threading.enumerate() if thread not in before]

    assert names == ["billhook-slow-bodies"]


def test_a_body_in_one_piece_is_not_copied():
    body = b"abcde"

    assert read_body(environ(Stream(body), "5"), 5) is body


def test_the_end_of_a_slow_body_leaves_its_encryption_alone():
    """After its own `shutdown` a TLS socket would go on in plain text."""
    unwrapped = []

    class Encrypted(socket.socket):
        def shutdown(self, how):
            unwrapped.append(how)
            super().shutdown(how)

    ours, theirs = socket.socketpair()
    with theirs, Encrypted(fileno=ours.detach()) as connection, BodyDeadline(0.01).reading(connection):
        received = connection.recv(1)

    assert (received, unwrapped) == (b"", [])
