"""How a worker stops: what it leaves to others at once, what it waits for, and for how long."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from billhook import Handlers
from billhook.engines.handler_pool import HandlerPool
from billhook.errors import InboxUnavailable
from billhook.extension import get_state
from support.engines import worker_of_slow_runs
from support.inbox_view import place_of, rows
from support.processes import until
from support.runs import planned
from support.timeouts import Seconds

THREADS = 2


def states(worker):
    """The state of each run."""
    where = place_of(worker._inbox.database.display_url)
    return [state for (state,) in rows(where, "SELECT state FROM run ORDER BY id")]


@pytest.fixture
def draining(running):
    """A worker that claimed so many runs and stops with this grace; `may_end` has its handlers return."""
    stopping = []

    def start(number, grace_seconds):
        worker, may_end = worker_of_slow_runs(running, number, THREADS)
        worker._leases.window = number
        worker._poll()
        until(lambda: worker._handlers._queue.qsize() == max(0, number - THREADS))
        thread = threading.Thread(target=worker._drain, args=(grace_seconds,))
        stopping.append((thread, may_end, worker))
        thread.start()
        return worker, may_end, thread

    yield start
    for thread, may_end, worker in stopping:
        may_end.set()
        thread.join(30)
        worker.close()
        assert not thread.is_alive()


def test_a_handler_that_returns_within_the_grace_has_its_result_stored(draining, caplog):
    worker, may_end, thread = draining(1, 60.0)
    thread.join(0.3)
    may_end.set()
    thread.join(30)

    assert states(worker) == ["succeeded"]
    assert caplog.messages == []


def test_a_handler_is_waited_for_until_the_grace_is_over_by_half_seconds(running, monkeypatch, caplog):
    """A handler that was given up gives no wake-up, and the grace may end."""
    worker, may_end = worker_of_slow_runs(running, 1, THREADS)
    worker._poll()
    seconds, slept = Seconds(), []

    def sleep(pause):
        slept.append(pause)
        seconds.now += pause

    monkeypatch.setattr(worker, "_sleep", sleep)
    monkeypatch.setattr(
        "billhook.engines.worker.time", SimpleNamespace(monotonic=seconds, sleep=lambda _: None)
    )
    worker._drain(1.25)
    may_end.set()
    worker.close()

    assert slept == [0.5, 0.5, 0.25]
    assert states(worker) == ["due"]
    assert caplog.messages == ["stopped with 1 handlers still running; they are called again"]


def test_runs_that_wait_for_a_thread_are_left_to_others_at_once(draining):
    worker, _, thread = draining(5, 60.0)

    until(lambda: states(worker) == ["running"] * THREADS + ["due"] * 3, 20)
    assert thread.is_alive()


def test_threads_without_a_handler_end_while_another_waits(draining):
    worker, _, thread = draining(1, 60.0)
    threads = [each.thread for each in worker._handlers._threads]

    until(lambda: [one.is_alive() for one in threads].count(True) == 1, 20)
    assert thread.is_alive()


def test_a_result_that_the_storage_refuses_at_first_is_stored_within_the_grace(running, monkeypatch):
    worker, may_end = worker_of_slow_runs(running, 1, THREADS)
    worker._poll()
    may_end.set()
    until(lambda: worker._collect() or worker._unsettled)
    transaction, refused = worker._inbox.transaction, []

    def refusing_once(*arguments):
        if not refused:
            refused.append(arguments)
            raise InboxUnavailable("away")
        return transaction(*arguments)

    monkeypatch.setattr(worker._inbox, "transaction", refusing_once)
    worker._drain(60.0)
    worker.close()

    assert (len(refused), states(worker)) == (1, ["succeeded"])


def test_threads_that_read_events_end_as_it_stops(running):
    """Those of handlers do: see above. A worker that stops may wait for handlers for a long time."""
    worker = get_state(running(Handlers(), start_now=False)).worker(THREADS)
    readers = worker._own_readers
    readers._pool = HandlerPool(worker._dispatcher, 1, worker.wake, "billhook-reader")
    (reader,) = [each.thread for each in readers._pool._threads]

    worker._drain(0.0)
    reader.join(20)
    is_alive = reader.is_alive()
    worker.close()

    assert not is_alive


def test_a_worker_that_ends_by_itself_claims_nothing_more(running):
    """Its threads are gone, and another worker could call the handler now."""
    worker, may_end = worker_of_slow_runs(running, 1, THREADS)

    worker._drain(0.0)
    may_end.set()
    worker.close()

    assert states(worker) == []


def test_without_its_storage_a_worker_asks_nothing_of_it_as_it_stops(running, monkeypatch):
    """Each question would wait until the storage is given up."""
    worker, asked = get_state(running(Handlers(), start_now=False)).worker(THREADS), []
    monkeypatch.setattr(worker._registration, "stopping", lambda: asked.append("stopping"))
    monkeypatch.setattr(worker._maintenance, "close", lambda: asked.append("close"))
    monkeypatch.setattr(worker, "_poll", lambda: 0.0)
    worker._pacing.failures = 1

    worker._drain(1.0)
    worker.close()

    assert asked == []


def test_a_worker_that_stops_does_not_poll_for_runs_that_it_leaves(running):
    """Else it would poll without a pause while its last handlers run."""
    state = get_state(running(Handlers(), start_now=False))
    planned(state.inbox, "h")
    worker = state.worker(THREADS)
    worker.stop()

    pause = worker._poll()
    worker.close()

    assert pause > 1.0


def test_a_worker_that_stops_records_that_it_plans_nothing_more(running, monkeypatch):
    """Others need not wait for it until its handlers have returned."""
    worker, recorded = get_state(running(Handlers(), start_now=False)).worker(THREADS), []
    monkeypatch.setattr(worker._registration, "stopping", lambda: recorded.append(1))

    worker._drain(1.0)
    worker.close()

    assert recorded == [1]


def test_a_worker_whose_inbox_is_closed_waits_for_no_handler(running):
    """It could not write the result, and would use a processor until the end of its grace."""
    worker, may_end = worker_of_slow_runs(running, 1, THREADS)
    worker._poll()
    held = len(worker._leases.runs)
    worker.detach()

    began = time.monotonic()
    worker._drain(20.0)
    took = time.monotonic() - began
    may_end.set()
    worker.close()

    assert (held, took < 10) == (1, True)
