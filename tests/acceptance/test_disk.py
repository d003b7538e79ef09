"""A disk that is full, and one that fails: 503 meanwhile, nothing answered is lost, good again by itself."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.acceptance.senders import Line, body_of, digest
from support.acceptance.small_disk import DEADLINE, SMALL_BYTES, small_disk
from support.acceptance.stack import STANDALONE, Stack, stack_on
from support.acceptance.system_calls import needs_strace
from support.inbox_view import rows
from support.postgres import unavailable
from support.processes import together, until
from support.server import Reply

pytestmark = pytest.mark.slow


class Book:
    """What was sent, and what the answers were."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.answered: dict[str, str] = {}
        self.refused: list[str] = []
        self.answers: list[Reply] = []

    def send(self, key: str, most_bytes: int = 1_200) -> int:
        """One delivery over a connection of its own; the status."""
        line = Line(self._stack.port, 30)
        body = body_of(int(key.rpartition("_")[2]), most_bytes)
        with contextlib.closing(line):
            answer = line.post(key, body)
        self.answers.append(answer)
        if answer.status == 200:
            self.answered[key] = digest(body)
        else:
            self.refused.append(key)
        return answer.status

    def lost(self, inbox: Path) -> set[str]:
        """The keys that were answered 200 and are not in the file as they were sent."""
        assert rows(inbox, "PRAGMA integrity_check") == [("ok",)]
        stored = {key: digest(body) for key, body in rows(inbox, "SELECT key, body FROM delivery")}
        return {key for key in self.answered if stored.get(key) != self.answered[key]}

    def refusals_are_as_promised(self) -> bool:
        """503 and when to come again, for each that was not taken."""
        refusals = [answer for answer in self.answers if answer.status != 200]
        return bool(refusals) and all(
            answer.status == 503 and "Retry-After" in answer.headers and b"api_error" in answer.body
            for answer in refusals
        )


# --- full -----------------------------------------------------------------------------------------


def test_a_full_disk_is_503_and_good_again_when_there_is_room(tmp_path, figures):
    with small_disk(tmp_path) as (stack, web, disk):
        book, processes, number = Book(stack), web.children(), 0
        ballast = disk.fill(web, SMALL_BYTES // 2)
        while len(book.refused) < 5:  # it fills up, and a transaction finds no room half-way
            number += 1
            book.send(f"msg_{number}", 60_000)
        # A log that cannot grow is given up, which makes room: until that is taken too.
        until(lambda: disk.fill(web) and stack.ask("/readyz") == 503, 30)
        for number in range(1_001, 1_006):
            book.send(f"msg_{number}")
        lost = book.lost(disk.copy(web))
        assert stack.ask("/readyz") == 503

        ballast.unlink()
        for key in list(book.refused):
            until(lambda key=key: book.send(key) == 200, 30)
        assert stack.ask("/readyz") == 200
        # At the latest when a lease of 30 s has ended: a claim may have been lost with its transaction.
        try:
            until(lambda: book.answered.keys() <= {key for key, _, _ in stack.noted()}, 45)
        except AssertionError as error:
            error.add_note(stack.logs())
            raise

        lost |= book.lost(disk.copy(web))
        figures.add("accepted, lost by a full disk", len(lost), len(book.answered), 1, "disks filled")
        assert lost == set()
        assert book.refusals_are_as_promised()
        assert web.children() == processes


def test_a_receiver_that_ignores_a_full_disk_is_caught(tmp_path):
    with small_disk(tmp_path, "faulty_receivers:ignores_errors()") as (stack, web, disk):
        book = Book(stack)
        disk.fill(web)
        for number in range(5):
            book.send(f"msg_{number}")

        assert book.lost(disk.copy(web))
        assert not book.refusals_are_as_promised()


# --- failing --------------------------------------------------------------------------------------


@contextlib.contextmanager
def failing(pid: int, calls: str, log: Path) -> Iterator[None]:
    """Each of these calls of a process fails with EIO, undone, as long as the block lasts."""
    command = ["strace", "-f", "-p", str(pid), "-o", "/dev/null"]
    command += ["-e", f"trace={calls}", "-e", f"inject={calls}:error=EIO"]
    with log.open("wb") as output:
        strace = subprocess.Popen(command, stderr=output)
    try:
        until(lambda: b"attached" in log.read_bytes() or strace.poll() is not None, 30)
        if strace.poll() is not None:
            unavailable(f"strace cannot attach here: {log.read_text().strip()[-100:]}")
        yield
    finally:
        strace.send_signal(signal.SIGINT)
        strace.wait(30)


def send_while_failing(folder: Path, calls: str, app: str = STANDALONE) -> Book:
    """Deliveries before, while and after a receiver's storage fails; those refused are sent again."""
    needs_strace()
    with stack_on(folder, f"sqlite:///{folder / 'billhook.db'}", **DEADLINE) as stack:
        web, book = stack.start_web(app, workers=1), Book(stack)
        together(8, lambda n: book.send(f"msg_{n}"))
        with failing(web.children()[0], calls, folder / "strace.txt"):
            for first in (100, 200, 300):
                together(8, lambda n, first=first: book.send(f"msg_{first + n}"))
        for key in list(book.refused):
            until(lambda key=key: book.send(key) == 200, 30)
        together(8, lambda n: book.send(f"msg_{400 + n}"))
    return book


@pytest.mark.long
@pytest.mark.parametrize("calls", ["fdatasync,fsync", "pwrite64"])
def test_a_disk_that_fails_is_503_and_good_again_when_it_works(tmp_path, figures, calls):
    book = send_while_failing(tmp_path, calls)

    lost = book.lost(tmp_path / "billhook.db")
    figures.add("accepted, lost by I/O errors", len(lost), len(book.answered), len(book.refused), "EIO")
    assert lost == set()
    assert len(book.answered) == 40
    assert {key for key in book.answered if 100 <= int(key[4:]) < 400} <= set(book.refused)
    assert book.refusals_are_as_promised()


@pytest.mark.long
def test_a_receiver_that_ignores_a_failing_disk_is_caught(tmp_path):
    book = send_while_failing(tmp_path, "pwrite64", "faulty_receivers:ignores_errors()")

    assert book.lost(tmp_path / "billhook.db")
    assert not book.refusals_are_as_promised()
