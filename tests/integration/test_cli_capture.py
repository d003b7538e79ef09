"""`billhook capture` as a process: what it records byte by byte, and its bounds."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from billhook.signing import TimestampedHMAC
from support.processes import together, until
from support.signing_cases import TEXT_SECRET
from support.timeouts import scaled

BODY = b'{"amount": 12.50}\r\n\x00\xff'


class Capture:
    """A running `billhook capture` and the folder that it writes to."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder / "captured"
        self.log = folder / "capture.log"
        command = [sys.executable, "-m", "billhook", "capture", "--port", "0", "--to", str(self.folder)]
        with self.log.open("w") as output:
            self.process = subprocess.Popen([*command, *arguments], stdout=output, stderr=output)
        found = until(lambda: re.search(r"http://127\.0\.0\.1:(\d+)", self.log.read_text()), 20)
        self.port = int(found[1])

    def files(self) -> list[Path]:
        return sorted(self.folder.iterdir())

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


@pytest.fixture
def capture(tmp_path) -> Iterator[Callable[..., Capture]]:
    started: list[Capture] = []

    def start(*arguments: str) -> Capture:
        started.append(Capture(tmp_path, *arguments))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait(20)


def request(body: bytes = BODY, headers: str = "") -> bytes:
    return (
        f"POST /hooks?a=1 HTTP/1.1\r\nhost: x\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body
    )


def test_a_request_is_recorded_byte_by_byte_for_its_owner_alone(capture):
    running = capture()

    answer = running.send(request())

    (file,) = running.files()
    assert file.read_bytes() == request()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(running.folder.stat().st_mode) == 0o700
    assert answer == b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    assert f"{file}: POST /hooks?a=1, {len(BODY)} bytes of body" in running.log.read_text()


@pytest.mark.slow
def test_what_was_recorded_is_what_doctor_needs(capture, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.touch(mode=0o600)
    secret.write_text(TEXT_SECRET)
    running = capture("--count", "1", "--answer", "503")
    signed = TimestampedHMAC("X-Sig").sign(BODY, TEXT_SECRET, event_type="PingTest", now=datetime.now(UTC))

    answer = running.send(request(headers="".join(f"{name}: {text}\r\n" for name, text in signed.items())))
    assert running.process.wait(scaled(20)) == 0
    command = [sys.executable, "-m", "billhook", "doctor", "signature", "--request", str(running.files()[0])]
    told = subprocess.run(
        [*command, "--secret-file", str(secret)], capture_output=True, text=True, check=True
    )

    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 60\r\n")
    assert "BILLHOOK_SIGNATURE=timestamped-hmac" in told.stdout
    assert "1 recorded" in running.log.read_text()


def test_a_body_in_pieces_in_chunks_and_behind_a_question_is_recorded_whole(capture):
    running = capture()
    chunked = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    asking = request(headers="Expect: 100-continue\r\n")
    at = asking.index(b"\r\n\r\n") + 4

    running.send(request()[:20], request()[20:60], request()[60:])
    running.send(chunked, b"9\r\n{} 0\r\n\r\n", b"\r\n0\r\nX-Trailer: 1\r\n", b"\r\n")
    continued: list[bytes] = []

    def wait_for_continue(connection: socket.socket) -> None:
        if not continued:
            continued.append(connection.recv(100))

    running.send(asking[:at], asking[at:], after_each=wait_for_continue)

    recorded = [file.read_bytes() for file in running.files()]
    assert recorded == [request(), chunked + b"9\r\n{} 0\r\n\r\n\r\n0\r\nX-Trailer: 1\r\n\r\n", asking]
    assert continued == [b"HTTP/1.1 100 Continue\r\n\r\n"]


def test_the_folder_is_bounded_in_files_also_when_they_arrive_at_once(capture):
    running = capture("--max-files", "3")

    answers = together(10, lambda number: running.send(request(b"%d" % number)))

    assert {answer[:12] for answer in answers} == {b"HTTP/1.1 200"}
    assert len(running.files()) == 3
    assert "not recorded: the folder is full (--max-files, --max-mb)" in running.log.read_text()


def test_the_folder_is_bounded_in_bytes_and_what_is_there_counts(capture):
    first = capture("--max-mb", "1")
    first.send(request(b"x" * 600_000))
    first.process.send_signal(signal.SIGTERM)
    assert first.process.wait(scaled(20)) == 0

    second = capture("--max-mb", "1")
    second.send(request(b"x" * 600_000))
    second.send(request())

    assert [file.stat().st_size > 600_000 for file in second.files()] == [True, False]


def test_what_is_no_request_is_recorded_too_and_nothing_stops_it(capture):
    running = capture("--answer", "599")

    running.send(b"\x16\x03\x01 no HTTP\r\n\r\n")
    running.send(b"GET / HTTP/1.1\r\n\r\n")
    with socket.create_connection(("127.0.0.1", running.port)):
        pass  # closed without a byte
    running.send(b"x" * 70_000)
    last = running.send(request(headers="Content-Length: no\r\n"))

    until(lambda: len(running.files()) == 4)
    assert last.startswith(b"HTTP/1.1 599 \r\n")
    assert running.log.read_text().count("what is no HTTP request") == 2
    assert running.process.poll() is None


def test_a_port_that_is_taken_is_a_usage_error(capture, tmp_path):
    taken = str(capture().port)
    command = [sys.executable, "-m", "billhook", "capture", "--port", taken, "--to", str(tmp_path / "other")]

    result = subprocess.run(command, capture_output=True, text=True, timeout=scaled(30), check=False)

    assert result.returncode == 2
    assert f"127.0.0.1:{taken} is in use" in result.stderr
