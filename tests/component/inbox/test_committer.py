"""The thread that commits, where there is no memory: whoever waits is told, and the next is served."""

from __future__ import annotations

import threading

import pytest

from billhook.errors import DeadlinePassed, InboxUnavailable, OutOfResources, SchemaMismatch
from billhook.inbox import PutStatus, Receipt
from billhook.inbox.committer import Committer
from support.inbox_view import incoming
from support.processes import together, until

LONG = 60.0


def committer_that_raises_once(error, **more):
    """Its first commit raises; all others are good."""
    errors = [error]

    def commit(batch):
        if errors:
            raise errors.pop()
        return [Receipt(PutStatus.ACCEPTED, 1, row.event_type) for row in batch]

    return Committer(commit, (), LONG, **more)


def test_a_commit_without_memory_raises_out_of_resources_without_a_traceback(caplog):
    committer = committer_that_raises_once(MemoryError())

    with pytest.raises(OutOfResources, match="there is no memory left"):
        committer.put(incoming("k1"), LONG)

    assert committer.put(incoming("k2"), LONG).status is PutStatus.ACCEPTED
    assert "Traceback" not in caplog.text
    committer.close()


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
        return [Receipt(PutStatus.ACCEPTED, 1, row.event_type) for row in batch]

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
