"""The worker in a thread, as `thread` and `worker` run it: on schedule, on time, on its lease, to its end."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from billhook import Handlers
from billhook.events import PingTest
from billhook.extension import get_state
from support.apps import deliver, inbox_at
from support.engines import runs, states
from support.inbox_view import Foreigner, change
from support.processes import in_children, until
from support.timeouts import scaled


def finished(app, count):
    return lambda: sum(each in ("done", "dead", "quarantined") for each in states(app)) == count


# --- all of it, once ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("has_waker", [True, False], ids=["with a waker", "without one"])
def test_a_worker_finds_deliveries_stored_before_it_or_without_a_notification(running, tmp_path, has_waker):
    if not has_waker:
        (tmp_path / "billhook.db-wake.d").write_text("somebody's file, and no folder")
    handlers, calls = Handlers(), []
    handlers.on(PingTest)(calls.append)
    app = running(handlers, start_now=False)
    deliver(app)

    running.start(app)
    until(finished(app, 1))
    change(inbox_at(app), "DELETE FROM run")
    change(inbox_at(app), "UPDATE delivery SET state = 'received'")  # nobody rings for it
    until(lambda: len(calls) == 2, seconds=4)


def test_a_notification_from_another_process_wakes_a_sleeping_worker_at_once(running):
    handlers, called = Handlers(), []
    handlers.on(PingTest)(lambda event: called.append(time.monotonic()))
    app = running(handlers)
    deliver(app, message_id="msg_warm")
    until(lambda: called)
    time.sleep(0.3)  # asleep by now

    def child(_):
        from support.inbox_view import incoming

        app_state = get_state(app)
        app_state.inbox.put(incoming("from a child"))
        started = time.monotonic()
        app_state.engine.wake(0)
        app_state.inbox.close()
        return repr(started).encode()

    (started,) = in_children(1, child)
    until(lambda: len(called) == 2)

    assert called[1] - float(started) < scaled(0.5)  # the slow look is every two seconds


# --- retries, time-outs, leases -------------------------------------------------------------------


def test_a_handler_past_its_time_out_is_abandoned_and_others_continue(running):
    handlers, release, calls = Handlers(), threading.Event(), []

    @handlers.on(PingTest, name="slow", timeout_seconds=0.1, retry=[])
    def slow(event):
        release.wait(10)

    handlers.on(PingTest, name="quick")(lambda event: calls.append(1))
    app = running(handlers, threads=1)

    deliver(app)
    deliver(app)
    until(finished(app, 2))
    release.set()
    time.sleep(0.1)  # the handler that was given up comes back, and has no say

    assert calls == [1, 1]
    assert sorted(runs(app, "handler, state")) == [("quick", "succeeded")] * 2 + [("slow", "dead")] * 2
    assert {error for (error,) in runs(app, "last_error") if error} == {
        "TimeoutError: the handler did not return within 0.1 s"
    }


@pytest.mark.slow
def test_the_lease_of_a_slow_handler_is_renewed(running):
    """For longer than two leases, with another worker that waits for it to be lost."""
    handlers, calls = Handlers(), []

    @handlers.on(PingTest, name="h")
    def slow(event, delivery):
        calls.append(delivery.attempt)
        time.sleep(3.2)

    app = running(handlers, count=2, BILLHOOK_LEASE_SECONDS=1.5)
    deliver(app)
    until(finished(app, 1))
    assert calls == [1]
    assert runs(app) == [("h", "succeeded", 1)]


def test_a_slow_handler_without_renewal_would_be_called_twice(running):
    handlers, calls = Handlers(), []

    @handlers.on(PingTest, name="h")
    def slow(event, delivery):
        calls.append(delivery.attempt)
        if delivery.attempt == 1:
            time.sleep(0.8)

    app = running(handlers, start_now=False)
    # This engine renews nothing; with an inbox of its own it is as if it were another process.
    inline = threading.Thread(target=get_state(running(handlers, start_now=False)).handle_due)

    deliver(app)
    inline.start()
    until(lambda: calls == [1])
    running.start(app)
    inline.join()

    until(lambda: calls == [1, 2])
    until(lambda: runs(app) == [("h", "succeeded", 2)])


# --- the end --------------------------------------------------------------------------------------


def test_stopping_releases_queued_runs_and_waits_for_running_ones(running):
    handlers, release, calls = Handlers(), threading.Event(), []

    @handlers.on(PingTest, name="h")
    def handle(event, delivery):
        if delivery.key.startswith("slow"):
            calls.append(delivery.key)
            release.wait(10)

    app = running(handlers, start_now=False, BILLHOOK_LEASE_SECONDS=30)
    for number in range(60):
        deliver(app, message_id=f"fast_{number}")
    worker = running.start(app, threads=1)
    until(finished(app, 60))  # handlers are fast: the worker holds many by now
    for number in range(6):
        deliver(app, message_id=f"slow_{number}")
    until(lambda: calls)
    until(lambda: len(runs(app)) == 66 and Counter(runs(app, "state"))[("running",)] > 1)
    worker.stop()
    until(lambda: Counter(runs(app, "state"))[("due",)] == 5)
    release.set()
    until(lambda: Counter(runs(app, "state")) == {("succeeded",): 61, ("due",): 5})

    assert len(calls) == 1
    assert {attempts for state, attempts in runs(app, "state, attempts") if state == "due"} == {0}


def test_stopping_does_not_wait_longer_than_its_grace(app_with, caplog):
    handlers, release = Handlers(), threading.Event()
    handlers.on(PingTest, name="h")(lambda event: release.wait(10))
    app = app_with(handlers=[handlers])
    worker = get_state(app).worker(1)
    thread = threading.Thread(target=worker.run, args=(0.2,))
    thread.start()
    deliver(app)
    until(lambda: runs(app, "state") == [("running",)])
    time.sleep(0.05)

    started = time.monotonic()
    worker.stop()
    thread.join(5)
    seconds = time.monotonic() - started
    release.set()

    assert seconds < scaled(1.5)
    assert "stopped with 1 handlers still running; they are called again" in caplog.text


def test_a_handler_past_its_time_while_stopping_is_settled_as_failed(running):
    handlers, release, begun = Handlers(), threading.Event(), threading.Event()

    @handlers.on(PingTest, name="h", timeout_seconds=0.3, retry=[])
    def handle(event):
        begun.set()
        release.wait(10)

    app = running(handlers, start_now=False)
    worker = running.start(app, threads=1)
    deliver(app)
    begun.wait(5)
    worker.stop()

    until(lambda: runs(app, "state") == [("dead",)])
    release.set()


# --- storage that fails in mid-worker ---------------------------------------------------------------


def test_no_run_is_lost_while_the_inbox_fails(running):
    handlers, gate, calls = Handlers(), threading.Event(), []

    @handlers.on(PingTest, name="h")
    def handle(event, delivery):
        calls.append(delivery.key)
        gate.wait(10)

    app = running(handlers, BILLHOOK_LEASE_SECONDS=30)
    deliver(app, message_id="msg_1")
    until(lambda: calls == ["msg_1"])
    change(inbox_at(app), "ALTER TABLE run RENAME TO lost")
    gate.set()  # the handler returns, and cannot be settled
    time.sleep(0.3)
    change(inbox_at(app), "ALTER TABLE lost RENAME TO run")

    until(finished(app, 1))
    deliver(app, message_id="msg_2")
    until(finished(app, 2))
    assert calls == ["msg_1", "msg_2"]
    assert {attempts for _, _, attempts in runs(app)} == {1}


def test_no_run_is_lost_while_another_process_holds_the_lock(running):
    handlers, calls = Handlers(), []
    handlers.on(PingTest, name="h")(lambda event: calls.append(1))
    app = running(handlers, BILLHOOK_DEADLINE_SECONDS=0.3, BILLHOOK_LEASE_SECONDS=30, start_now=False)
    deliver(app)

    with Foreigner(inbox_at(app)):
        running.start(app)
        time.sleep(0.5)
        assert calls == []

    until(finished(app, 1))
    assert calls == [1]


def test_a_worker_survives_any_number_of_failures(running):
    app = running(Handlers(), start_now=False)
    deliver(app)
    worker = get_state(app).worker(1)
    change(inbox_at(app), "ALTER TABLE delivery RENAME TO lost")

    worker._pacing.failures = 5_000  # a night without a disk; two to that power is no float
    stopping = threading.Timer(0.1, worker.stop)
    stopping.start()
    worker.run(0.0)
    stopping.join()

    assert worker._pacing.failures > 5_000


def test_a_poll_for_which_there_is_no_memory_is_repeated_with_fewer_deliveries(running, monkeypatch):
    handlers = Handlers()
    handlers.on(PingTest, name="h")(lambda event: None)
    app = running(handlers, start_now=False)
    for number in range(30):
        deliver(app, message_id=f"msg_{number}")
    inbox = get_state(app).inbox
    poll = inbox.poll

    def poll_few(*arguments, **named):
        found = poll(*arguments, **named)
        if len(found[0]) > 25:
            raise MemoryError
        return found

    monkeypatch.setattr(inbox, "poll", poll_few)
    worker = running.start(app)

    until(finished(app, 30), 20)
    until(lambda: worker._pacing.rows == inbox.database.plan_rows)


def test_old_deliveries_are_pruned_while_the_worker_runs(running, frozen_clock):
    app = running(Handlers(), clock=frozen_clock, start_now=False)
    deliver(app)
    worker = running.start(app)
    until(finished(app, 1))

    frozen_clock.advance(seconds=31 * 86_400)
    worker._maintenance._next_at = 0.0  # an hour later
    worker.wake()

    until(lambda: states(app) == [])
