"""The backlog's limit: what counts, when it is counted, and how far off that may be."""

from __future__ import annotations

import time

import pytest

from billhook.errors import BacklogFull
from billhook.inbox import PutStatus, RunState
from billhook.inbox.running.due import count_unfinished
from billhook.inbox.storing.committer import LEAST_AGE_SECONDS, BacklogLimit
from support.inbox_view import change, incoming, open_inbox, rows
from support.postgres import only_sqlite
from support.processes import until
from support.query_plans import statements
from support.runs import claim, planned, settle
from support.timeouts import Seconds, scaled


class Counting:
    """A count that takes its time, of a depth that is set from outside."""

    def __init__(self, clock, *, seconds):
        self.depth = 0
        self.times = []
        self._clock = clock
        self._seconds = seconds

    def __call__(self, limit):
        self.times.append(self._clock.now)
        self._clock.now += self._seconds
        return min(self.depth, limit)

    def closest(self):
        """The least time between the end of one count and the beginning of the next."""
        return min(b - a - self._seconds for a, b in zip(self.times, self.times[1:], strict=False))


def ask(gauge, clock, *, times, every, accepting=0):
    answers = []
    for _ in range(times):
        answers.append(gauge.full())
        gauge.add(accepting)
        clock.now += every
    return answers


# --- how often ------------------------------------------------------------------------------------


def test_the_backlog_is_counted_a_twentieth_of_the_time_at_most():
    for seconds in (0.0001, 0.01, 0.05, 2.0):
        clock = Seconds()
        count = Counting(clock, seconds=seconds)

        ask(BacklogLimit(count, 100, clock), clock, times=10_000, every=0.01)

        assert len(count.times) > 2
        least = max(LEAST_AGE_SECONDS, 20 * seconds)
        assert least - 1e-6 <= count.closest() <= least + 0.011, seconds  # it is asked every 0.01 s


def test_a_backlog_limit_that_counts_every_time_would_be_noticed():
    clock = Seconds()
    count = Counting(clock, seconds=0.01)

    for _ in range(10):
        BacklogLimit(count, 100, clock).full()  # a new one knows of no count before it
        clock.now += 0.005

    assert count.closest() < LEAST_AGE_SECONDS


@only_sqlite
def test_under_load_the_backlog_is_counted_rarely(where):
    inbox = open_inbox(where, backlog_limit=100_000)
    with statements(inbox) as asked:
        started = time.monotonic()
        for number in range(50):
            inbox.put(incoming(f"k{number}"))
        seconds = time.monotonic() - started

    counts = [one for one in asked if "count(" in one]
    assert 1 <= len(counts) <= seconds / LEAST_AGE_SECONDS + 1


# --- how well -------------------------------------------------------------------------------------


@only_sqlite
def test_deliveries_of_this_process_count_at_once_and_handled_ones_make_room_at_the_next_count(where):
    inbox = open_inbox(where, backlog_limit=3)
    for key in ("k0", "k1", "k1", "k1", "k2"):  # a duplicate waits for nothing
        inbox.put(incoming(key))
    with pytest.raises(BacklogFull, match="3 deliveries wait already"):
        inbox.put(incoming("k3"))
    change(where, "UPDATE delivery SET state = 'done' WHERE key = 'k0'")

    def accepted():
        try:
            return inbox.put(incoming("k3")).status is PutStatus.ACCEPTED
        except BacklogFull:
            return False

    started = time.monotonic()
    until(accepted)

    assert time.monotonic() - started < scaled(2.0)


def test_two_processes_exceed_the_limit_by_at_most_one_interval():
    clock = Seconds()
    stored = Counting(clock, seconds=0.001)
    gauges = [BacklogLimit(stored, 1000, clock) for _ in range(2)]
    while not all(gauge.full() for gauge in gauges):
        for gauge in gauges:
            if not gauge.full():
                stored.depth += 10
                gauge.add(10)
        clock.now += 0.01

    a_process_between_counts = 10 * (LEAST_AGE_SECONDS / 0.01 + 2)
    assert 1000 <= stored.depth <= 1000 + a_process_between_counts


def test_a_failed_count_raises_and_is_repeated():
    clock, answers = Seconds(), [RuntimeError("no disk"), 7]

    def count(limit):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    gauge = BacklogLimit(count, 5, clock)

    with pytest.raises(RuntimeError, match="no disk"):
        gauge.full()
    assert gauge.full()


# --- what counts ----------------------------------------------------------------------------------


def test_the_backlog_counts_deliveries_that_are_received_or_have_unfinished_runs(inbox, where):
    inbox.put(incoming("received"))
    for state in ("waiting", "due", "running"):
        several = planned(inbox, "h", "g", key=state)
        change(where, "UPDATE run SET state = ? WHERE delivery_id = ?", state, several)
    planned(inbox, key="done")
    planned(inbox, key="quarantined", error="e")
    settle(inbox, claim(inbox, only=planned(inbox, "h", key="dead")), RunState.DEAD)

    with inbox.database.read() as connection:
        found = [count_unfinished(connection, limit) for limit in (1, 3, 100)]

    assert rows(where, "SELECT count(*) FROM delivery") == [(7,)]
    assert found == [1, 3, 4]
