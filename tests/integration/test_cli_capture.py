"""`billhook capture` as a process: what it records byte by byte, and its bounds."""

from __future__ import annotations

import contextlib
import io
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from billhook.cli import main
from billhook.cli.capture import _read_request, parse_request
from support.processes import logged, together, until
from support.timeouts import scaled

BODY = b'{"amount": 12.50}\r\n\x00\xff'


class Capture:
    """A running `billhook capture` and the folder that it writes to."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.folder, self.log, self.process = folder / "captured", folder / "capture.log", process
        found = until(lambda: re.search(r"http://127\.0\.0\.1:(\d+)", self.log.read_text()), 20)
        self.port = int(found[1])
        self._known: set[Path] = set()

    def files(self) -> list[Path]:
        return sorted(self.folder.iterdir())

    def recorded(self) -> list[bytes]:
        """The requests that were recorded since the last call."""
        new = [file for file in self.files() if file not in self._known]
        self._known.update(new)
        return [file.read_bytes() for file in new]

    def send(self, *pieces: bytes, after_each: Callable[[socket.socket], object] = lambda _: None) -> bytes:
        """Send bytes; return all that comes back until the connection is closed."""
        with socket.create_connection(("127.0.0.1", self.port), scaled(20)) as connection:
            answer = b""
            for piece in pieces:
                connection.sendall(piece)
                answer += after_each(connection) or b""
            with contextlib.suppress(ConnectionResetError):
                while piece := connection.recv(4_096):
                    answer += piece
            return answer


@contextlib.contextmanager
def capturing(folder: Path, *arguments: str, descriptors: int = 1024) -> Iterator[Capture]:
    bind = ["--bind", "127.0.0.1:0", "--to", str(folder / "captured")]
    limit = ["sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh"]
    command = [*limit, sys.executable, "-m", "billhook", "capture", *bind, *arguments]
    with logged(command, folder / "capture.log", stop=signal.SIGKILL) as process:
        yield Capture(folder, process)


@pytest.fixture(scope="module")
def recording(tmp_path_factory) -> Iterator[Capture]:
    """A process that records whatever the tests send."""
    with capturing(tmp_path_factory.mktemp("recording")) as running:
        yield running


@pytest.fixture
def capture(tmp_path) -> Iterator[Callable[..., Capture]]:
    with contextlib.ExitStack() as stack:
        yield lambda *arguments: stack.enter_context(capturing(tmp_path, *arguments))


def request(body: bytes = BODY, headers: str = "") -> bytes:
    return (
        f"POST /hooks?a=1 HTTP/1.1\r\nhost: x\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body
    )


def test_a_request_is_recorded_byte_by_byte_for_its_owner_alone(recording):
    answer = recording.send(request())

    assert recording.recorded() == [request()]
    file = recording.files()[-1]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(recording.folder.stat().st_mode) == 0o700
    assert answer == b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    assert f"{file}: POST /hooks?a=1, {len(BODY)} bytes of body" in recording.log.read_text()


@pytest.mark.slow
def test_it_answers_what_it_is_told_and_ends_after_so_many(capture):
    running = capture("--count", "1", "--answer", "503")

    answer = running.send(request())

    assert running.process.wait(scaled(20)) == 0
    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 60\r\n")
    assert "1 recorded" in running.log.read_text()


def test_a_body_in_pieces_in_chunks_and_behind_a_question_is_recorded_whole(recording):
    chunked = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    asking = request(headers="Expect: 100-continue\r\n")
    at = asking.index(b"\r\n\r\n") + 4

    recording.send(request()[:20], request()[20:60], request()[60:])
    recording.send(chunked, b"9\r\n{} 0\r\n\r\n", b"\r\n0\r\nX-Trailer: 1\r\n", b"\r\n")
    continued: list[bytes] = []

    def wait_for_continue(connection: socket.socket) -> None:
        if not continued:
            continued.append(connection.recv(100))

    recording.send(asking[:at], asking[at:], after_each=wait_for_continue)

    whole = chunked + b"9\r\n{} 0\r\n\r\n\r\n0\r\nX-Trailer: 1\r\n\r\n"
    assert recording.recorded() == [request(), whole, asking]
    assert continued == [b"HTTP/1.1 100 Continue\r\n\r\n"]


def test_the_folder_is_bounded_in_files_also_when_they_arrive_at_once(capture):
    running = capture("--max-files", "3", "--answer", "599")

    answers = together(10, lambda number: running.send(request(b"%d" % number)))

    assert {answer[:12] for answer in answers} == {b"HTTP/1.1 599"}
    assert len(running.files()) == 3
    assert "not recorded: the folder is full (--max-files, --max-mb)" in running.log.read_text()


def test_a_file_that_is_deleted_while_files_are_counted_loses_no_request(capture, tmp_path):
    running = capture("--max-files", "2")
    # The folder lists it, and it is not there when its size is asked for.
    (running.folder / "deleted.http").symlink_to(tmp_path / "nothing")
    running.send(request())

    assert [file.read_bytes() for file in running.files() if not file.is_symlink()] == [request()]


def test_the_folder_is_bounded_in_bytes_and_what_is_there_counts(capture, tmp_path):
    (tmp_path / "captured").mkdir(mode=0o700)
    (tmp_path / "captured" / "20260115T120000.http").write_bytes(request(b"x" * 600_000))

    running = capture("--max-mb", "1")
    running.send(request(b"x" * 600_000))
    running.send(request())
    running.process.send_signal(signal.SIGTERM)

    assert running.process.wait(scaled(20)) == 0
    assert [file.stat().st_size > 600_000 for file in running.files()] == [True, False]


def test_what_is_no_request_is_recorded_too_and_nothing_stops_it(recording):
    sent = [
        b"\x16\x03\x01 no HTTP\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"x" * 70_000,
        request(headers="Content-Length: no\r\n"),
    ]

    for raw in sent:
        recording.send(raw, after_each=half_close)
    with socket.create_connection(("127.0.0.1", recording.port)):
        pass  # closed without a byte

    assert len(recording.recorded()) == 4
    assert recording.log.read_text().count("what is no HTTP request") == 2
    assert recording.send(request()).startswith(b"HTTP/1.1 200 OK\r\n")
    assert recording.recorded() == [request()]


def half_close(connection):
    connection.shutdown(socket.SHUT_WR)


@pytest.mark.slow
def test_a_request_that_does_not_end_is_recorded_after_ten_seconds(recording):
    began = time.monotonic()
    recording.send(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nfew")

    assert 9 < time.monotonic() - began < scaled(15)
    assert recording.recorded() == [b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nfew"]


@pytest.mark.slow
def test_strangers_who_use_up_its_descriptors_hold_it_up_for_ten_seconds(tmp_path):
    with capturing(tmp_path, descriptors=64) as capture, contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(socket.create_connection(("127.0.0.1", capture.port), scaled(20)))
        until(lambda: b"no more connections" in capture.log.read_bytes(), 20)

        started = time.monotonic()
        assert capture.send(request()).startswith(b"HTTP/1.1 200")

        assert time.monotonic() - started < scaled(14)
        assert capture.recorded() == [request()]
        said = capture.log.read_text()
        assert said.count("no more connections for now: Too many open files") == 1
        assert "Traceback" not in said


def test_a_port_that_is_taken_is_a_usage_error(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        taken = f"127.0.0.1:{listening.getsockname()[1]}"
        result = CliRunner().invoke(main, ["capture", "--bind", taken, "--to", str(tmp_path / "other")])

    assert result.exit_code == 2
    assert f"{taken} is in use" in result.stderr


def test_the_spaces_of_a_header_take_linear_time():
    raw = b"POST / HTTP/1.1\r\nX-Long: a" + b" " * 5_000_000 + b"b\r\n\r\n"  # hours, were it quadratic

    assert len(parse_request(raw, "the request").headers["X-Long"]) == 5_000_002


def test_a_chunked_request_is_read_up_to_its_last_byte_and_no_further():
    raw = (
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 3 + b"0\r\nX-T: 1\r\n\r\n"
    )

    for size in range(len(raw)):
        assert _read_request(io.BytesIO(raw[:size]), 10_000, lambda: None) == raw[:size]
    assert _read_request(io.BytesIO(raw + b"more"), 10_000, lambda: None) == raw
    assert len(_read_request(io.BytesIO(raw), 60, lambda: None)) <= 60 + 1_024
