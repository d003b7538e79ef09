"""What might stop the worker from claiming, or make it claim for ever: busy or hung threads, lost words."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from billhook import Handlers
from billhook.clock import SystemClock
from billhook.engines import thread as thread_module
from billhook.engines.lease_table import LeaseTable
from billhook.events import PingTest
from billhook.extension import get_state
from billhook.inbox import InboxTransaction
from support import engines
from support.apps import deliver, inbox_at
from support.inbox_view import incoming, rows
from support.processes import until
from support.proxy import proxied
from support.templates import new_inbox
from support.timeouts import scaled


def runs(app):
    return engines.runs(app, "state, attempts")


def states(app):
    return Counter(engines.states(app))


@contextmanager
def in_a_thread(worker, grace_seconds=3.0, **options):
    """The worker, running until the block ends, however that is."""
    thread = threading.Thread(target=worker.run, args=(grace_seconds,), kwargs=options, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        worker.stop()
        thread.join(10)


# --- threads that hang ----------------------------------------------------------------------------


@pytest.mark.slow
def test_runs_queued_behind_hanging_handlers_are_released_to_other_workers(running):
    handlers, gate, calls = Handlers(), threading.Event(), []

    @handlers.on(PingTest, name="h")
    def handle(event, delivery):
        calls.append((delivery.key, threading.current_thread()))
        if delivery.key == "hangs":
            gate.wait(20)

    app = running(handlers, start_now=False, BILLHOOK_LEASE_SECONDS=6)
    for key in ("hangs", *(f"behind-{number}" for number in range(5))):
        get_state(app).inbox.put(incoming(key))
    greedy = get_state(app).worker(1)
    greedy._leases.window = 32  # as after a run of quick handlers
    with in_a_thread(greedy, 1.0):
        until(lambda: sorted(runs(app)) == [("running", 1)] * 6)
        until(lambda: [key for key, _ in calls] == ["hangs"])
        running.start(app)
        until(lambda: states(app) == {"planned": 1, "done": 5}, 10)
        assert {attempts for _, attempts in runs(app)} == {1}
        assert rows(inbox_at(app), "SELECT count(*) FROM failure") == [(0,)]
        gate.set()


def test_a_thread_that_breaks_has_its_place_filled_and_its_claim_runs_out(running):
    handlers, calls = Handlers(), []
    handlers.on(PingTest, name="h")(lambda event, delivery: calls.append(delivery.key))

    class Odd(SystemClock):
        """Out of order, for whoever calls handlers, as often as it is told."""

        breaks = 3

        def now(self):
            if threading.current_thread().name == "billhook-handler" and self.breaks:
                self.breaks -= 1
                raise OSError("no time")
            return super().now()

    app = running(handlers, threads=1, clock=Odd())
    for number in range(5):
        deliver(app, message_id=f"m{number}")

    until(lambda: states(app) == {"done": 5}, 15)
    assert set(calls) == {f"m{number}" for number in range(5)}
    assert max(attempts for _, attempts in runs(app)) > 1


def test_a_worker_that_cannot_start_threads_stops_and_logs_why(app_with, monkeypatch, caplog):
    app = app_with(handlers=[Handlers()])
    start = threading.Thread.start

    def refuse(thread):
        if thread.name == "billhook-handler":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)

    get_state(app).worker(2).run()

    assert "could not start handler thread (0 of 2 running): can't start new thread" in caplog.text
    assert "worker stopping: no threads left, too many handlers never returned" in caplog.text


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_the_thread_engine_that_cannot_start_costs_no_descriptor_and_starts_later(app_with, monkeypatch):
    handlers, calls = Handlers(), []
    handlers.on(PingTest, name="h")(calls.append)
    app = app_with(handlers=[handlers], BILLHOOK_ENGINE="thread")
    state, start = get_state(app), threading.Thread.start

    def refuse(thread):
        if thread.name == "billhook-engine":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(thread_module, "RESTART_SECONDS", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        state.ensure_engine()
        before = descriptors()
        for _ in range(20):
            state.ensure_engine()
        after = descriptors()
        state.engine.stop()  # as when the process ends now: there is nothing to wait for

    deliver(app)

    until(lambda: calls)
    assert after == before


@pytest.mark.slow
def test_a_worker_stops_after_too_many_abandoned_threads(app_with, caplog):
    handlers, gate = Handlers(), threading.Event()
    handlers.on(PingTest, name="h", timeout_seconds=0.05, retry=[])(lambda event: gate.wait(20))
    app = app_with(handlers=[handlers], BILLHOOK_LEASE_SECONDS=30)
    for number in range(3):
        deliver(app, message_id=f"m{number}")

    get_state(app).worker(1).run(0.0, max_abandoned_threads=3)
    gate.set()

    assert states(app)["dead"] >= 2
    assert caplog.text.count("is past its time-out; its thread is abandoned") == 3


def test_a_handlers_time_out_wakes_a_sleeping_worker(running):
    handlers, gate = Handlers(), threading.Event()
    handlers.on(PingTest, name="h", timeout_seconds=0.05, retry=[])(lambda event: gate.wait(20))
    app = running(handlers, threads=1, BILLHOOK_LEASE_SECONDS=30)
    time.sleep(0.2)
    seconds = []
    for number in range(5):
        started = time.monotonic()
        deliver(app, message_id=f"m{number}")
        until(lambda number=number: states(app)["dead"] == number + 1)
        seconds.append(time.monotonic() - started)
    gate.set()

    assert max(seconds) < scaled(1.5)  # the slow look, and a renewal, come later


@pytest.mark.slow
def test_abandoned_threads_that_returned_are_not_counted(app_with):
    handlers = Handlers()
    handlers.on(PingTest, name="h", timeout_seconds=0.02, retry=[])(lambda event: time.sleep(0.3))
    app = app_with(handlers=[handlers], BILLHOOK_LEASE_SECONDS=30)

    with in_a_thread(get_state(app).worker(1), max_abandoned_threads=6) as thread:
        for wave in range(3):
            for number in range(4):
                deliver(app, message_id=f"m{wave}-{number}")
            until(lambda wave=wave: states(app)["dead"] + states(app)["done"] == 4 * wave + 4, 20)
            time.sleep(0.4)  # all of them have come back
        assert states(app)["dead"] >= 6
        assert thread.is_alive()


def test_a_stopped_thread_engine_restarts_only_by_start(app_with):
    handlers, calls = Handlers(), []
    handlers.on(PingTest, name="h")(lambda event: calls.append(1))
    app = app_with(handlers=[handlers], BILLHOOK_ENGINE="thread")
    engine = get_state(app).engine
    deliver(app)
    until(lambda: calls == [1])

    engine.stop()
    deliver(app)
    time.sleep(0.2)
    between = list(calls)
    engine.start()

    until(lambda: calls == [1, 1])
    assert between == [1]


# --- an answer that was lost ----------------------------------------------------------------------


@pytest.fixture
def line(postgres_url):
    """To an inbox on PostgreSQL."""
    new_inbox(postgres_url)
    with proxied(postgres_url) as proxy:
        yield proxy


CLAIMING = b'"state":"running"'
"""In the rows of runs that are claimed as they are made."""


def lose_answers(line, app_with, *, after, until_there_are, wait_seconds=4.0):
    """An app whose worker is told that turns failed which are committed; the calls that it made.

    From the first on that says `after`, until there are runs in that state.
    """
    handlers, calls = Handlers(), []
    handlers.on(PingTest, name="h")(lambda event, delivery: calls.append((delivery.key, delivery.attempt)))
    app = app_with(handlers=[handlers], BILLHOOK_INBOX_URL=line.url, BILLHOOK_LEASE_SECONDS=60)
    for number in range(3):
        deliver(app, message_id=f"m{number}")
    line.marker = after, b"COMMIT"
    with in_a_thread(get_state(app).worker(2)):
        until(lambda: until_there_are in [state for state, _ in runs(app)])
        line.marker = line.fatal = None
        deadline = time.monotonic() + wait_seconds
        while len(calls) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        until(lambda: states(app)["done"] == len({key for key, _ in calls}))
    return app, calls


def test_claims_of_a_commit_without_an_answer_are_released(line, postgres_url, app_with, caplog):
    app, calls = lose_answers(line, app_with, after=CLAIMING, until_there_are="running")

    assert "worker poll failed, retrying in" in caplog.text
    assert sorted(calls) == [("m0", 1), ("m1", 1), ("m2", 1)]
    assert runs(app) == [("succeeded", 1)] * 3
    assert rows(postgres_url, "SELECT count(*) FROM failure") == [(0,)]


@pytest.mark.slow
def test_without_that_they_would_wait_for_their_lease(line, app_with, monkeypatch):
    monkeypatch.setattr(InboxTransaction, "release_orphaned", lambda *_: 0)

    app, calls = lose_answers(line, app_with, after=CLAIMING, until_there_are="running", wait_seconds=1.5)

    assert len(calls) < 3
    assert ("running", 1) in runs(app)


def test_a_result_of_a_commit_without_an_answer_is_settled_once(line, app_with, caplog):
    app, calls = lose_answers(line, app_with, after=b"finished_at=", until_there_are="succeeded")

    assert "worker poll failed, retrying in" in caplog.text
    assert sorted(calls) == [("m0", 1), ("m1", 1), ("m2", 1)]
    assert runs(app) == [("succeeded", 1)] * 3


def test_an_uncertain_commit_is_followed_by_two_orphan_checks():
    leases = LeaseTable(1, lease_seconds=0.3, held=set())

    assert leases.orphan_check_at == math.inf
    leases.mark_uncertain()
    assert leases.orphan_check_at <= time.monotonic()
    leases.record_commit((), None, datetime.now(UTC), orphans_checked=True)
    assert time.monotonic() < leases.orphan_check_at <= time.monotonic() + 0.1
    leases.record_commit((), None, datetime.now(UTC), orphans_checked=True)
    assert leases.orphan_check_at == math.inf


@pytest.mark.long
def test_a_loop_that_does_not_poll_counts_as_stalled_until_it_does(running, monkeypatch):
    monkeypatch.setattr("billhook.engines.worker.STALLED_SECONDS", 0.5)
    worker = get_state(running(Handlers(), start_now=False)).worker(1)
    assert not worker.is_stalled
    until(lambda: worker.is_stalled)
    monkeypatch.setattr("billhook.engines.worker.STALLED_SECONDS", scaled(4.0))  # its longest pause is 2 s
    until(lambda: worker.is_stalled, 20)

    with in_a_thread(worker):
        until(lambda: not worker.is_stalled)
        time.sleep(2.5)
        assert not worker.is_stalled
