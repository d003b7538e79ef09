"""Handlers that are limited over all workers: in runs at once, and in starts in a time. On both databases."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from itertools import pairwise

import pytest

from billhook import Handlers
from billhook.engines.messages.sweeper import Sweeper
from billhook.events import CustomerCreated, InvoicePaymentStatusChanged, PingTest
from billhook.extension import get_state
from billhook.inbox.reading.deliveries import is_busy
from support.apps import deliver, inbox_at
from support.engines import (
    celery_engine,
    handling,
    inbox_of,
    noting,
    plan_and_claim,
    send,
    status_changed,
    swept,
)
from support.inbox_view import rows
from support.processes import until

# --- at most so many at once --------------------------------------------------------------------------


@pytest.mark.usefixtures("inbox_url")
def test_a_run_lost_with_its_worker_frees_its_place_after_its_lease(stored_only, frozen_clock):
    calls = []
    app = stored_only(noting(calls, at_most=1))
    state = get_state(app)
    inbox, now = inbox_of(app)
    send(app, 3)
    assert len(plan_and_claim(app, "a worker that dies", now)) == 1
    with inbox.transaction("another", state.dispatcher.limits) as transaction:
        assert transaction.claim(10, now, now) == []

    frozen_clock.advance(seconds=31)
    state.handle_due()

    assert sorted(calls) == ["PingTest-1", "PingTest-2", "PingTest-3"]


def test_a_retry_takes_no_place_while_it_waits(stored_only, frozen_clock):
    calls = []
    app = stored_only(noting(calls, failing=[1], at_most=1))
    send(app, 3)
    get_state(app).handle_due()
    assert calls == ["PingTest-1", "PingTest-2", "PingTest-3"]

    frozen_clock.advance(seconds=601)
    get_state(app).handle_due()
    assert calls[3:] == ["PingTest-1"]


@pytest.mark.slow
def test_celery_workers_keep_to_the_limit_and_publish_what_it_held(stored_only, frozen_clock):
    calls, messages, inner = [], [], []
    handlers = Handlers()

    @handlers.on(PingTest, name="note", at_most=1)
    def note(event, delivery):
        calls.append(delivery.key)
        if delivery.key == "PingTest-1":
            inner.append(len(calls))
            executor.execute(2)  # as another worker would, meanwhile
            inner.append(len(calls))

    app = stored_only(handlers)
    executor = celery_engine(app, messages)
    send(app, 2)

    executor.execute(1)
    assert (inner, messages) == ([1, 1], [2])
    executor.execute(messages.pop())

    assert calls == ["PingTest-1", "PingTest-2"]


@pytest.mark.slow
def test_a_sweep_publishes_no_run_that_has_no_room(stored_only, frozen_clock):
    app = stored_only(noting([], at_most=1))
    state = get_state(app)
    send(app, 2)
    assert len(plan_and_claim(app, "a slow worker", frozen_clock.now())) == 1
    frozen_clock.advance(seconds=2)

    assert swept(Sweeper(state.inbox, state.dispatcher)) == ([], 2.0)


@pytest.mark.slow
def test_celery_publishes_what_the_claim_of_a_suspect_releases(stored_only, frozen_clock):
    calls, messages = [], []
    app = stored_only(noting(calls, at_most=1))
    _, now = inbox_of(app)
    executor = celery_engine(app, messages)
    send(app, 2)
    assert len(plan_and_claim(app, "a worker that dies", now)) == 1
    frozen_clock.advance(seconds=31)

    executor.execute(1)
    assert 2 in messages
    while messages:
        executor.execute(messages.pop())

    assert sorted(calls) == ["PingTest-1", "PingTest-2"]


# --- so many in a time --------------------------------------------------------------------------------


def test_a_run_that_ends_does_not_put_off_the_next_start(stored_only, frozen_clock):
    handlers, starts = Handlers(), []
    begin = frozen_clock.now()

    @handlers.on(PingTest, name="note", rate="60/min")
    def note(event):
        starts.append((frozen_clock.now() - begin).total_seconds())
        frozen_clock.advance(seconds=0.75)

    app = stored_only(handlers)
    send(app, 4)
    for _ in range(80):
        get_state(app).handle_due()
        frozen_clock.advance(seconds=0.05)

    assert len(starts) == 4
    assert all(1.0 <= later - earlier < 1.1 for earlier, later in pairwise(starts))


@pytest.mark.usefixtures("inbox_url")
@pytest.mark.parametrize(("in_a_second", "number"), [(30, 45), (7, 8)])
def test_never_more_start_in_its_time_than_a_rate_says(stored_only, frozen_clock, in_a_second, number):
    calls, at = [], []
    app = stored_only(noting(calls, rate=f"{in_a_second}/s"))
    state, begin = get_state(app), frozen_clock.now()
    send(app, number)
    while len(calls) < number:
        before = len(calls)
        state.handle_due()
        at += [(frozen_clock.now() - begin).total_seconds()] * (len(calls) - before)
        start_at = state.inbox.next_times(state.dispatcher.limits).after(frozen_clock.now())
        frozen_clock.advance(seconds=(start_at - frozen_clock.now()).total_seconds() if start_at else 0)

    assert max(sum(one <= other < one + 1.0 for other in at) for one in at) <= in_a_second
    assert at[-1] < number / (0.9 * in_a_second)
    frozen_clock.advance(seconds=60)
    send(app, 2 * in_a_second, first=1 + number)
    state.handle_due()
    assert len(calls) - number < in_a_second / 10 + 1  # what was not used is not made up for


@pytest.mark.usefixtures("inbox_url")
def test_runs_that_are_claimed_together_count_each_and_against_the_rate_of_their_handler(stored_only):
    handlers = Handlers()
    handlers.on(PingTest, name="quick", rate="100/s")(lambda event: None)
    handlers.on(CustomerCreated, name="slow", rate="1/min")(lambda event: None)
    app = stored_only(handlers)
    _, now = inbox_of(app)
    send(app, 20)
    send(app, 2, "CustomerCreated")

    claimed = [
        sorted(
            claim.handler for claim in plan_and_claim(app, "a worker", now + timedelta(milliseconds=after))
        )
        for after in (0, 5, 11)
    ]

    assert claimed == [["quick"] * 5 + ["slow"], [], ["quick"]]


@pytest.mark.slow
def test_a_worker_without_a_free_thread_does_not_poll_at_the_rate(running):
    handlers, began, gate, writes = Handlers(), [], threading.Event(), []

    @handlers.on(CustomerCreated, name="slow")
    def slow(event, delivery):
        began.append(delivery.key)
        if delivery.key == "CustomerCreated-1000":
            gate.wait(60)

    handlers.on(PingTest, name="paced", rate="100/s")(lambda event: None)
    app = running(handlers, threads=1, start_now=False, BILLHOOK_LEASE_SECONDS=600)
    inbox, _ = inbox_of(app)
    transaction = inbox.transaction

    def noted_transaction(*args, **more):
        writes.append(time.monotonic())
        if len(began) < 100:
            time.sleep(0.02)  # in which the thread finishes all that is claimed: so the claim window grows
        return transaction(*args, **more)

    inbox.transaction = noted_transaction
    send(app, 100, "CustomerCreated")  # so that the worker claims more than its thread can start
    running.start(app, 1)
    until(lambda: len(began) == 100)
    send(app, 1, "CustomerCreated", first=1000)
    until(lambda: len(began) == 101)
    send(app, 20)
    until(lambda: rows(inbox_at(app), "SELECT count(*) FROM billhook_handler") == [(1,)])
    first = len(writes)
    time.sleep(2)
    polled = len(writes) - first
    gate.set()

    assert polled < 20  # in each interval of the rate it would be 200


# --- what runs wait for -------------------------------------------------------------------------------


def test_nothing_is_busy_while_runs_wait_for_a_later_start(stored_only, frozen_clock):
    app = stored_only(noting([], rate="1/d"))
    inbox, now = inbox_of(app)
    send(app, 3)
    state = get_state(app)
    state.handle_due()

    assert inbox.limits() == state.dispatcher.limits  # by which its overview knows what is limited
    assert not is_busy(inbox, now + timedelta(hours=1), state.dispatcher.limits)
    assert is_busy(inbox, now + timedelta(days=1), state.dispatcher.limits)


def claimable(stored_only, options):
    """The deliveries whose runs a worker may claim as it plans them, of one that is stored."""
    app = stored_only(handling(lambda event: None, InvoicePaymentStatusChanged, name="note", **options))
    if not inbox_of(app)[0].received(1):
        deliver(app, status_changed(), "InvoicePaymentStatusChanged")
    dispatcher, stored = get_state(app).dispatcher, inbox_of(app)[0].received(10)
    return [each.stored.delivery_id for each in dispatcher.plan(stored) if each.plan.claimable]


def test_only_runs_without_options_and_limits_are_claimed_as_they_are_planned(stored_only):
    options = [
        {"rate": "60/min"},
        {"at_most": 2},
        {"pause_after": 2},
        {"aliases": ["former"]},
        {"ordered_by": "invoice_id"},
        {"identity": ("invoice_id",)},
    ]

    assert claimable(stored_only, {}) == [1]
    assert [each for each in options if claimable(stored_only, each)] == []
