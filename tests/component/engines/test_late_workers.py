"""Workers that stood still for longer than their leases call nothing again that has returned there."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager

import pytest

from billhook import Handlers
from billhook.events import PingTest
from billhook.extension import get_state
from support.inbox_view import incoming, open_inbox, rows
from support.processes import until

THREADS = 4
LEASE_SECONDS = 30
QUICK, SLOW = ([f"{kind}{number}" for number in range(THREADS)] for kind in ("quick", "slow"))
ONCE = dict.fromkeys([*QUICK, *SLOW, "another"], 1)
PLACES = ("in the read", "after the read", "before the writes", "before the commit", "after the commit")


class Late:
    """A worker whose thread stands still at one place of its next poll, until all that it started returned.

    Meanwhile the clock goes on by two lease times.
    """

    def __init__(self, app, where, clock, monkeypatch, place):
        self.state, self.where, self.clock = get_state(app), where, clock
        self.place, self.armed = place, False
        self.stands_still, self.goes_on = threading.Event(), threading.Event()
        database = self.state.inbox.database
        self.read, self.write = database.read, database.write
        monkeypatch.setattr(database, "read", self._read)
        monkeypatch.setattr(database, "write", self._write)
        self.worker = self.state.worker(THREADS)
        self.thread = threading.Thread(target=self.worker.run, args=(5.0,))

    @contextmanager
    def _read(self, **options):
        with self.read(**options) as connection:
            yield connection
            self._reach("in the read")
        self._reach("after the read")

    @contextmanager
    def _write(self, **options):
        with self.write(**options) as connection:
            self._reach("before the writes")
            yield connection
            self._reach("before the commit")
        self._reach("after the commit")

    def _reach(self, place):
        if self.armed and place == self.place and threading.current_thread() is self.thread:
            self.armed = False
            self.stands_still.set()
            self.goes_on.wait(20)

    def put(self, *keys):
        for key in keys:
            self.state.inbox.put(incoming(key, at=self.clock.now()))
        self.worker.wake()

    def stand_still(self, handlers):
        """Let the worker start a run in each thread, and stand still; then let the handlers return."""
        self.thread.start()
        self.put(*QUICK)  # after these it claims more than it has threads for
        until(lambda: rows(self.where, "SELECT count(*) FROM delivery WHERE state = 'done'") == [(THREADS,)])
        self.put(*SLOW)
        until(lambda: len(handlers.called) == 2 * THREADS)
        self.armed = True
        self.put("another")
        assert self.stands_still.wait(20)
        handlers.may_return.set()
        until(lambda: len(handlers.returned) == 2 * THREADS)
        self.clock.advance(seconds=2 * LEASE_SECONDS)

    def finish(self):
        """Go on until all is handled; the time of suspects comes too."""
        self.goes_on.set()
        unfinished = "SELECT count(*) FROM delivery WHERE state != 'done'"

        def done():
            self.clock.advance(seconds=1)
            return rows(self.where, unfinished) == [(0,)]

        until(done, 20)


class Slow(Handlers):
    """A handler that does not return from some deliveries before it may."""

    def __init__(self):
        super().__init__()
        self.called, self.returned, self.may_return = [], [], threading.Event()
        self.on(PingTest, name="slow")(self.handle)

    def handle(self, event: PingTest, delivery) -> None:
        self.called.append(delivery.key)
        if delivery.key in SLOW:
            self.may_return.wait(20)
        self.returned.append(delivery.key)


@pytest.fixture
def handlers():
    return Slow()


@pytest.fixture
def late(app_with, where, frozen_clock, monkeypatch, handlers):
    made = []

    def make(place="in the read", held=None):
        app = app_with(
            handlers=[handlers],
            clock=frozen_clock,
            BILLHOOK_ENGINE="worker",
            BILLHOOK_LEASE_SECONDS=LEASE_SECONDS,
        )
        if held is not None:
            monkeypatch.setattr(get_state(app).inbox, "held", held)
        made.append(Late(app, where, frozen_clock, monkeypatch, place))
        return made[-1]

    yield make
    handlers.may_return.set()
    for each in made:
        each.goes_on.set()
        each.worker.stop()
        each.thread.join(20)
        each.worker.close()


@pytest.mark.usefixtures("inbox_url")
@pytest.mark.parametrize("place", PLACES)
def test_a_worker_calls_nothing_again_that_returned_while_it_stood_still(late, handlers, place):
    worker = late(place)
    worker.stand_still(handlers)

    worker.finish()

    assert Counter(handlers.called) == ONCE


class Forgetful(set):
    """Leases of a process that does not know what its other workers hold."""

    def add(self, element):
        pass


def handled_beside_a_late_worker(late, handlers, held=None):
    """How often each handler was called by two workers of one process, of which the first stands still."""
    first = late(held=held)
    first.stand_still(handlers)
    second = first.state.worker(THREADS)
    thread = threading.Thread(target=second.run, args=(5.0,))
    thread.start()
    try:
        until(lambda: "another" in handlers.returned)
        first.clock.advance(seconds=LEASE_SECONDS)  # the time of suspects
        second.wake()
        if held is None:
            held_by_first = "SELECT count(*) FROM run WHERE state = 'running'"
            until(lambda: rows(first.where, held_by_first) == [(THREADS,)])
        else:  # until the second one called one again: before, the late results of the first still count

            def called_again():
                first.clock.advance(seconds=1)
                second.wake()
                return len(handlers.called) > len(ONCE)

            until(called_again)
        first.finish()
    finally:
        second.stop()
        thread.join(20)
        second.close()
    return Counter(handlers.called)


@pytest.mark.usefixtures("inbox_url")
def test_another_worker_of_the_process_takes_nothing_over_from_it(late, handlers):
    calls = handled_beside_a_late_worker(late, handlers)

    assert calls == ONCE


@pytest.mark.usefixtures("inbox_url")
def test_a_worker_that_took_it_over_would_be_noticed(late, handlers):
    calls = handled_beside_a_late_worker(late, handlers, Forgetful())

    assert max(calls.values()) >= 2


@pytest.mark.usefixtures("inbox_url")
@pytest.mark.parametrize("place", ["in the read", "after the commit"])
def test_what_another_process_made_due_and_did_not_claim_is_not_called_again_either(
    late, where, handlers, place
):
    worker = late(place)
    worker.stand_still(handlers)
    other, now = open_inbox(where), worker.clock.now()
    with other.transaction("other") as transaction:
        assert transaction.claim(0, now, now) == []
    assert rows(where, "SELECT count(*) FROM failure") == [(THREADS,)]
    worker.clock.advance(seconds=LEASE_SECONDS)

    worker.finish()

    assert Counter(handlers.called) == ONCE
    states = "SELECT state, attempts, last_error, runs_alone, count(*) FROM run GROUP BY 1, 2, 3, 4"
    assert rows(where, states) == [("succeeded", 1, None, 0, 2 * THREADS + 1)]
