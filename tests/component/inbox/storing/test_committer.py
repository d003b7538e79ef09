"""The thread that commits, where a commit fails: whoever waits is told, and the next is served."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future
from contextlib import nullcontext
from traceback import extract_tb
from types import SimpleNamespace

import pytest

from billhook.errors import DeadlinePassed, InboxUnavailable, OutOfResources, SchemaMismatch
from billhook.inbox import PutStatus, Receipt
from billhook.inbox.storing import committer as committing
from billhook.inbox.storing.committer import GATHER_SECONDS, LOAD_ROWS, Committer, _QueueEntry
from support.inbox_view import incoming
from support.processes import together, until

LONG = 60.0


def accepted(batch):
    return [Receipt(PutStatus.ACCEPTED, 1, row.event_type) for row in batch]


def committer_that_raises_once(error, after_commit=(), **more):
    """Its first commit raises; all others are good."""
    errors = [error]

    def commit(batch):
        if errors:
            raise errors.pop()
        return accepted(batch)

    return Committer(commit, after_commit, LONG, **more)


@pytest.mark.parametrize(
    ("error", "raised", "told", "logged"),
    [
        (MemoryError(), OutOfResources, "there is no memory left", []),
        (ZeroDivisionError("a defect"), InboxUnavailable, "the commit failed", ["a defect", "Traceback"]),
    ],
)
def test_whoever_waits_for_a_commit_that_fails_is_told_and_the_next_is_committed(
    caplog, error, raised, told, logged
):
    committer = committer_that_raises_once(error)

    with pytest.raises(raised, match=told):
        committer.put(incoming("k1"), LONG)

    assert committer.put(incoming("k2"), LONG).status is PutStatus.ACCEPTED
    assert [text for text in ("a defect", "Traceback") if text in caplog.text] == logged
    assert ("commit of a batch failed unexpectedly" in caplog.text) is bool(logged)
    committer.close()


def test_a_put_right_after_a_failure_is_attempted():
    tidied = threading.Event()
    committer = committer_that_raises_once(InboxUnavailable("the disk"), after_commit=(tidied.wait,))
    with pytest.raises(InboxUnavailable, match="the disk"):
        committer.put(incoming("k1"), LONG)
    threading.Timer(0.1, tidied.set).start()  # the committer is still busy with what comes after a batch

    assert committer.put(incoming("k2"), LONG).status is PutStatus.ACCEPTED
    committer.close()


def test_a_failure_after_a_commit_stops_neither_it_nor_the_committer(caplog):
    def checkpoint():
        raise LookupError("tidying")

    committer = Committer(accepted, (checkpoint,), LONG)

    assert [committer.put(incoming(key), LONG).status for key in ("k1", "k2")] == [PutStatus.ACCEPTED] * 2
    committer.close()
    assert "post-commit step failed; the deliveries are stored" in caplog.text


@pytest.mark.parametrize("error", [InboxUnavailable("away"), SchemaMismatch("0001", "0002")])
def test_each_failure_of_storage_is_told_so_that_no_older_answer_counts(error):
    """Or /readyz would go on to say for a second that deliveries can be stored."""
    told = []
    committer = committer_that_raises_once(error, on_failure=lambda: told.append(1))

    with pytest.raises(InboxUnavailable):
        committer.put(incoming("k1"), LONG)

    assert told == [1]
    committer.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ended_is_started_again():
    """As it ends where not even its own errors can be dealt with."""
    committer = committer_that_raises_once(SystemExit())

    with pytest.raises(DeadlinePassed):
        committer.put(incoming("k1"), 0.05)
    until(lambda: not committer._thread.is_alive())
    committer._busy_since -= 2 * LONG  # a new thread is not taken for one that hangs

    assert committer.put(incoming("k2"), LONG).status is PutStatus.ACCEPTED
    committer.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_reopened_it_does_not_stop_at_the_end_mark_that_a_lost_thread_has_not_read():
    committer = committer_that_raises_once(SystemExit())
    with pytest.raises(DeadlinePassed):
        committer.put(incoming("k1"), 0.05)
    until(lambda: not committer._thread.is_alive())
    committer.close()
    committer.reopen()

    assert committer.put(incoming("k2"), 10.0).status is PutStatus.ACCEPTED
    committer.close()


@pytest.mark.parametrize(("busy_for", "refused"), [(LONG, False), (LONG + 0.001, True)])
def test_a_request_waits_behind_a_batch_for_no_longer_than_its_deadline(monkeypatch, busy_for, refused):
    committer = Committer(accepted, (), LONG)
    committer.start()
    committer._busy_since = 1_000.0
    monkeypatch.setattr(committing, "time", SimpleNamespace(monotonic=lambda: 1_000.0 + busy_for))

    with pytest.raises(DeadlinePassed, match="does not answer") if refused else nullcontext():
        committer._check_usable()
    committer.close()


def test_a_crowd_that_is_refused_asks_once_who_holds_the_lock():
    go_on, asked = threading.Event(), []

    def commit(batch):
        go_on.wait(LONG)
        return accepted(batch)

    def holder():
        asked.append(1)
        return 4711

    committer = Committer(commit, (), LONG, write_lock_holder=holder)

    def put(number):
        try:
            committer.put(incoming(f"k{number}"), 0.2)
        except DeadlinePassed as error:
            return str(error)

    told = together(8, put)
    go_on.set()

    assert set(told) == {"no commit within 0.2 s; process 4711 holds the write lock"}
    assert len(asked) < 8
    committer.close()


def test_requests_that_gave_up_in_the_queue_are_not_stored():
    """For a thread and for a coroutine: behind a database that hung, a batch would be full of them."""
    begun, go_on, stored = threading.Event(), threading.Event(), []

    def commit(batch):
        stored.append([one.key for one in batch])
        begun.set()
        go_on.wait(LONG)
        return accepted(batch)

    committer = Committer(commit, (), LONG)
    threads = [threading.Thread(target=committer.put, args=(incoming(key), LONG)) for key in ("k1", "k2")]
    for thread in threads:
        thread.start()
        assert begun.wait(LONG)
    until(lambda: committer._queue.qsize() == 1)
    with pytest.raises(DeadlinePassed):
        committer.put(incoming("gave up"), 0.0)
    with pytest.raises(DeadlinePassed):
        asyncio.run(committer.put_async(incoming("gave up too"), 0.0))
    go_on.set()
    for thread in threads:
        thread.join(LONG)
    committer.close()

    assert stored == [["k1"], ["k2"]]


@pytest.mark.parametrize(
    ("last_size", "waiting", "pauses"),
    [(LOAD_ROWS, 2, [GATHER_SECONDS]), (LOAD_ROWS, 3, []), (LOAD_ROWS - 1, 0, [])],
    ids=["fewer wait", "as many wait", "no load"],
)
def test_under_load_a_batch_waits_for_the_clients_of_the_one_before(monkeypatch, last_size, waiting, pauses):
    """One fsync for as many as then."""
    seen = []
    monkeypatch.setattr(committing, "time", SimpleNamespace(sleep=seen.append))
    committer = Committer(accepted, (), LONG)
    committer._last_size = last_size
    for number in range(waiting):
        committer._queue.put(_QueueEntry(incoming(f"k{number}"), Future()))

    committer._fill(batch := [_QueueEntry(incoming("first"), Future())])

    assert (seen, len(batch)) == (pauses, 1 + waiting)


@pytest.mark.parametrize(("gave_up", "woken"), [([], [0]), ([0], [1])])
def test_a_commit_wakes_the_first_thread_that_waits_and_leaves_the_others_to_it(gave_up, woken):
    """All at once would compete for the interpreter."""
    entries = [_QueueEntry(incoming(f"k{number}"), Future()) for number in range(3)]

    def commit(batch):
        for number in gave_up:
            entries[number].receipt.cancel()
        return accepted(batch)

    committer = Committer(commit, (), LONG)
    for entry in entries[1:]:
        committer._queue.put(entry)
    committer._commit_batch(entries[0])

    assert [number for number in range(3) if entries[number].receipt.done()] == sorted(gave_up + woken)


def test_once_a_commit_has_succeeded_a_request_waits_for_a_busy_committer_again():
    committer = committer_that_raises_once(InboxUnavailable("away"))
    with pytest.raises(InboxUnavailable, match="away"):
        committer.put(incoming("k1"), LONG)
    committer.put(incoming("k2"), LONG)
    until(lambda: committer._busy_since is None)
    committer._busy_since = time.monotonic()

    assert committer.put(incoming("k3"), LONG).status is PutStatus.ACCEPTED
    committer.close()


@pytest.mark.parametrize(
    ("greenlets", "blocks", "turns"), [(False, True, 1), (True, True, 0), (True, False, 1)]
)
def test_after_a_slow_commit_threads_wait_for_their_turn_and_greenlets_do_not(
    monkeypatch, greenlets, blocks, turns
):
    """A wait in C code for another process would stop all greenlets of this one."""
    monkeypatch.setattr(committing, "SLOW_SECONDS", -1.0)
    monkeypatch.setattr(committing, "threads_are_greenlets", lambda: greenlets)
    taken = []
    committer = Committer(
        accepted, (), LONG, insert_blocks=blocks, turn=lambda: taken.append(1) or nullcontext()
    )
    for key in ("k1", "k2"):
        committer.put(incoming(key), LONG)
    committer.close()

    assert len(taken) == turns


def test_the_error_of_a_batch_holds_no_frames_and_no_other_error():
    """They would keep the connections that failed."""

    def fail(batch):
        error = InboxUnavailable("away")
        error.__context__ = OSError("a disk")
        raise error

    committer = Committer(fail, (), LONG)
    with pytest.raises(InboxUnavailable, match="away") as caught:
        committer.put(incoming("k"), LONG)
    committer.close()

    assert "fail" not in [frame.name for frame in extract_tb(caught.value.__traceback__)]
    assert caught.value.__context__ is None


def test_an_event_loop_that_was_closed_meanwhile_does_not_end_the_thread_that_commits():
    loop = asyncio.new_event_loop()
    entry = _QueueEntry(incoming("k"), loop.create_future())
    loop.close()

    Committer(accepted, (), LONG)._commit_batch(entry)


def test_the_end_mark_stays_behind_the_batch_that_found_it():
    committer = Committer(accepted, (), LONG)
    committer._queue.put(None)

    committer._fill([_QueueEntry(incoming("k"), Future())])

    assert committer._queue.get_nowait() is None


def test_an_answered_coroutine_leaves_no_timer_on_its_loop():
    committer, timers = Committer(accepted, (), LONG), []

    async def put():
        loop = asyncio.get_running_loop()
        call_at = loop.call_at
        loop.call_at = lambda *call: timers.append(call_at(*call)) or timers[-1]
        await committer.put_async(incoming("k"), LONG)

    asyncio.run(put())
    committer.close()

    assert [timer.cancelled() for timer in timers] == [True]
