"""The thread that commits, where a commit fails: whoever waits is told, and the next is served."""

from __future__ import annotations

import threading

import pytest

from billhook.errors import DeadlinePassed, InboxUnavailable, OutOfResources, SchemaMismatch
from billhook.inbox import PutStatus, Receipt
from billhook.inbox.committer import Committer
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

    assert committer.put(incoming("k2"), LONG).status is PutStatus.ACCEPTED
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
