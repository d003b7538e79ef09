"""Handlers that are paused, or limited over all workers. What is asked of the database is asked of both."""

from __future__ import annotations

import logging
import threading
import time
from datetime import timedelta
from functools import partial
from itertools import pairwise

import pytest

from billhook import Handlers, signals
from billhook.engines.celery.executor import DeliveryExecutor
from billhook.engines.celery.sweeper import Sweeper
from billhook.errors import ConfigError, Discard
from billhook.events import EVENT_TYPES, CustomerCreated, InvoicePaymentStatusChanged, PingTest, sample
from billhook.extension import get_state
from billhook.inbox import DeliveryFilter
from billhook.inbox.admin import count, is_busy, page, with_runs
from support.apps import deliver, inbox_at
from support.inbox_view import rows
from support.processes import until

PAID = '{"invoiceId":"inv_1","billingStatus":"Paid","amountDue":0,"amountPaid":1,"total":10}'


def noting(calls, failing=(), **options):
    """Return handlers that note each key, and fail while the number of calls is in `failing`."""
    handlers = Handlers()

    @handlers.on(PingTest, name="note", **options)
    def note(event, delivery):
        calls.append(delivery.key)
        if len(calls) in failing:
            raise ValueError("not today")

    @handlers.on(CustomerCreated, name="other")
    def other(event, delivery):
        calls.append(f"other {delivery.key}")

    return handlers


def send(app, count, event_type="PingTest", first=1):
    """Deliver so many events."""
    for number in range(first, first + count):
        body = sample(EVENT_TYPES[event_type]).to_json()
        assert deliver(app, body, event_type, message_id=f"{event_type}-{number}").status_code == 200


def states(app):
    return rows(inbox_at(app), "SELECT handler, state, attempts FROM run ORDER BY id")


def shown(inbox):
    """The status of each delivery and of its runs, as operators see them."""
    listed = with_runs(inbox, list(reversed(page(inbox, DeliveryFilter(), 9))))
    return [(one.status, [each.status for each in one.runs]) for one in listed]


def inbox_of(app):
    state = get_state(app)
    return state.inbox, state.dispatcher.clock.now()


def sweeper_of(state, clock):
    """Return the sweeper of a Celery worker's main process, as the engine makes it."""
    limits = state.dispatcher.limits
    return Sweeper(state.inbox, clock, lambda: state.inbox.release_held("sweeper", limits, clock.now()))


@pytest.fixture
def stored_only(app_with, clock):
    """Make an app that stores deliveries; `get_state(app).handle_due()` handles them."""
    return lambda handlers, **more: app_with(
        handlers=[handlers],
        clock=clock,
        **{"BILLHOOK_ENGINE": "worker", "BILLHOOK_RETRY_SCHEDULE_SECONDS": (600, 600), **more},
    )


# --- pause --------------------------------------------------------------------------------------------


def test_a_paused_handler_is_not_called_and_loses_no_attempt(stored_only):
    calls = []
    app = stored_only(noting(calls))
    inbox, now = inbox_of(app)
    assert inbox.pause_handler("note", "the ledger is closed", now)
    send(app, 3)
    send(app, 1, "CustomerCreated")

    get_state(app).handle_due()

    assert calls == ["other CustomerCreated-1"]
    assert states(app) == [("note", "due", 0)] * 3 + [("other", "succeeded", 1)]
    assert [(one.name, one.since, one.why) for one in inbox.paused_handlers()] == [
        ("note", now, "the ledger is closed")
    ]

    assert inbox.resume_handler("note", now)
    get_state(app).handle_due()

    assert calls[1:] == ["PingTest-1", "PingTest-2", "PingTest-3"]
    assert states(app) == [("note", "succeeded", 1)] * 3 + [("other", "succeeded", 1)]
    assert inbox.paused_handlers() == []


def test_pausing_twice_keeps_the_time_and_resuming_twice_does_nothing(stored_only, clock):
    app = stored_only(noting([]))
    inbox, now = inbox_of(app)
    assert inbox.pause_handler("note", "first", now)
    clock.advance(seconds=60)
    assert not inbox.pause_handler("note", "second", clock.now())
    assert [(one.since, one.why) for one in inbox.paused_handlers()] == [(now, "second")]

    assert inbox.resume_handler("note", clock.now())
    assert not inbox.resume_handler("note", clock.now())
    assert not inbox.resume_handler("unheard of", clock.now())


def test_a_retry_of_a_paused_handler_waits_with_the_attempts_it_has(stored_only, clock):
    calls = []
    app = stored_only(noting(calls, failing=[1]))
    inbox, now = inbox_of(app)
    send(app, 1)
    get_state(app).handle_due()
    inbox.pause_handler("note", None, now)
    clock.advance(seconds=601)
    get_state(app).handle_due()
    assert (calls, states(app)) == (["PingTest-1"], [("note", "due", 1)])

    clock.advance(seconds=3 * 86_400)
    inbox.resume_handler("note", clock.now())
    get_state(app).handle_due()

    assert (calls, states(app)) == (["PingTest-1"] * 2, [("note", "succeeded", 2)])


def test_ordered_runs_of_a_paused_handler_keep_their_order(stored_only):
    calls, handlers = [], Handlers()

    @handlers.on(InvoicePaymentStatusChanged, name="follow", ordered_by="invoice_id")
    def follow(event, delivery):
        calls.append(delivery.key)

    app = stored_only(handlers)
    inbox, now = inbox_of(app)
    inbox.pause_handler("follow", None, now)
    for number in range(4):
        deliver(app, PAID.encode(), "InvoicePaymentStatusChanged", message_id=f"msg_{number}")
        get_state(app).handle_due()
    assert calls == []
    assert sorted(state for _, state, _ in states(app)) == ["due", "waiting", "waiting", "waiting"]

    inbox.resume_handler("follow", now)
    get_state(app).handle_due()

    assert calls == ["msg_0", "msg_1", "msg_2", "msg_3"]


@pytest.mark.usefixtures("inbox_url")
def test_runs_stored_under_a_former_name_are_paused_with_the_handler(stored_only):
    calls = []
    app = stored_only(noting(calls, aliases=["former"]))
    inbox, now = inbox_of(app)
    send(app, 1)
    state = get_state(app)
    planned = state.dispatcher.plan(inbox.received(10))
    with inbox.transaction("older code") as transaction:
        transaction.plan([one.plan for one in planned], now)
    with inbox.database.write() as connection:
        connection.exec_driver_sql("UPDATE run SET handler = 'former'")
    inbox.pause_handler("note", None, now)

    state.handle_due()
    assert calls == []
    assert shown(inbox) == [("paused", ["paused"])]
    assert count(inbox, DeliveryFilter(state="paused")) == 1

    inbox.resume_handler("note", now)
    state.handle_due()
    assert calls == ["PingTest-1"]
    assert count(inbox, DeliveryFilter(state="paused")) == 0


@pytest.mark.usefixtures("inbox_url")
def test_a_handler_that_was_paused_under_a_former_name_is_not_called(stored_only):
    calls = []
    app = stored_only(noting(calls, aliases=["former"]))
    inbox, now = inbox_of(app)
    inbox.pause_handler("former", None, now)
    send(app, 2)

    get_state(app).handle_due()
    assert calls == []
    assert shown(inbox) == [("paused", ["paused"])] * 2
    assert count(inbox, DeliveryFilter(state="paused")) == 2

    inbox.resume_handler("former", now)
    get_state(app).handle_due()
    assert calls == ["PingTest-1", "PingTest-2"]


@pytest.mark.usefixtures("inbox_url")
def test_a_run_that_waits_for_a_limit_is_not_shown_as_paused(stored_only):
    """Beside another handler that is paused: what holds a run is told by its own handler."""
    app = stored_only(noting([], rate="1/d"))
    inbox, now = inbox_of(app)
    inbox.pause_handler("other", None, now)
    send(app, 2)
    send(app, 1, "CustomerCreated")
    get_state(app).handle_due()

    assert shown(inbox) == [("done", ["succeeded"]), ("waiting", ["due"]), ("paused", ["paused"])]
    assert [count(inbox, DeliveryFilter(state=each)) for each in ("paused", "waiting")] == [1, 1]


def test_nothing_is_busy_while_runs_wait_for_a_later_start(stored_only, clock):
    app = stored_only(noting([], rate="1/d"))
    inbox, now = inbox_of(app)
    send(app, 3)
    get_state(app).handle_due()

    assert not is_busy(inbox, now + timedelta(hours=1))
    assert is_busy(inbox, now + timedelta(days=1))


@pytest.mark.usefixtures("inbox_url")
def test_many_runs_of_a_paused_handler_do_not_hold_up_another(stored_only):
    calls = []
    app = stored_only(noting(calls))
    inbox, now = inbox_of(app)
    inbox.pause_handler("note", None, now)
    send(app, 30)
    send(app, 1, "CustomerCreated")
    state = get_state(app)
    planned = state.dispatcher.plan(inbox.received(100))
    with inbox.transaction("a worker", state.dispatcher.limits) as transaction:
        transaction.plan([one.plan for one in planned], now)
        claims = transaction.claim(2, now, now)

    assert [claim.handler for claim in claims] == ["other"]
    with inbox.database.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM run WHERE attempts > 0").scalar() == 1


def claimable(stored_only, options):
    """The deliveries whose runs a worker may claim as it plans them, of one that is stored."""
    handlers = Handlers()
    handlers.on(InvoicePaymentStatusChanged, name="note", **options)(lambda event: None)
    app = stored_only(handlers)
    if not inbox_of(app)[0].received(1):
        deliver(app, PAID.encode(), "InvoicePaymentStatusChanged")
    dispatcher, stored = get_state(app).dispatcher, inbox_of(app)[0].received(10)
    return list(dispatcher.claimable(dispatcher.plan(stored)))


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


@pytest.mark.slow
def test_a_sibling_of_a_paused_handler_is_called_by_the_same_message(stored_only):
    calls, handlers = [], Handlers()
    for name in ("first", "second", "third"):
        handlers.on(PingTest, name=name)(partial(lambda name, event: calls.append(name), name))
    app = stored_only(handlers)
    state = get_state(app)
    inbox, now = inbox_of(app)
    executor = DeliveryExecutor(inbox, state.dispatcher, lease_seconds=30.0, publish=lambda _: None)
    inbox.pause_handler("first", None, now)
    send(app, 1)

    executor.execute(1)

    assert sorted(calls) == ["second", "third"]


@pytest.mark.slow
def test_celery_publishes_what_a_resume_releases_though_the_queue_is_not_empty(stored_only, clock):
    app = stored_only(noting([]))
    state = get_state(app)
    inbox, now = inbox_of(app)
    executor = DeliveryExecutor(inbox, state.dispatcher, lease_seconds=30.0, publish=lambda _: None)
    sweeper = sweeper_of(state, clock)
    inbox.pause_handler("note", None, now)
    send(app, 2)
    executor.execute(1)
    executor.execute(2)
    clock.advance(seconds=60)
    inbox.resume_handler("note", clock.now())

    assert sweeper.due(5.0, lambda: 100) == [1, 2]
    for delivery_id in (1, 2):
        sweeper.mark_published(delivery_id)
    assert sweeper.due(5.0, lambda: 100) == []


# --- pause after failures -----------------------------------------------------------------------------


def test_a_handler_that_fails_so_often_in_a_row_is_paused_loudly(stored_only, caplog):
    calls, told = [], []
    app = stored_only(noting(calls, failing=range(1, 100), pause_after=3))
    inbox, now = inbox_of(app)
    send(app, 5)

    observing = signals.handler_paused.connected_to(lambda _, **facts: told.append(facts), sender=app)
    with observing, caplog.at_level(logging.ERROR, "billhook.engines"):
        get_state(app).handle_due()

    why = "3 failed attempts in a row, the last one: ValueError: not today"
    assert len(calls) == 3
    assert told == [{"handler": "note", "why": why}]
    assert [(one.name, one.since, one.why) for one in inbox.paused_handlers()] == [("note", now, why)]
    assert [record.levelname for record in caplog.records if "paused" in record.message] == ["ERROR"]
    assert (
        f"handler note paused: {why}; its deliveries wait for `flask --app shop billhook handlers resume"
        in caplog.text
    )


def test_a_success_begins_the_count_anew_and_so_does_resume(stored_only):
    calls = []
    app = stored_only(noting(calls, failing=[1, 2, 4, 5, 7, 8, 9], pause_after=3))
    inbox, now = inbox_of(app)
    send(app, 20)

    get_state(app).handle_due()
    assert len(calls) == 9
    inbox.resume_handler("note", now)
    get_state(app).handle_due()

    assert len(calls) == 20
    assert inbox.paused_handlers() == []


def test_control_without_the_option_a_failing_handler_goes_on(stored_only):
    calls = []
    app = stored_only(noting(calls, failing=range(1, 100)))
    send(app, 5)

    get_state(app).handle_due()

    assert len(calls) == 5


def test_what_a_handler_discards_is_no_failure_and_no_success(stored_only):
    calls, handlers = [], Handlers()

    @handlers.on(PingTest, name="note", pause_after=3)
    def note(event, delivery):
        calls.append(delivery.key)
        raise ValueError if len(calls) in (2, 4) else Discard("not ours")

    app = stored_only(handlers)
    send(app, 6)
    get_state(app).handle_due()

    assert len(calls) == 6
    assert inbox_of(app)[0].paused_handlers() == []
    assert rows(inbox_at(app), "SELECT failures FROM billhook_handler") == [(2,)]


def test_runs_that_are_superseded_are_no_failures(stored_only):
    calls, handlers = [], Handlers()

    @handlers.on(
        InvoicePaymentStatusChanged, name="follow", ordered_by="invoice_id", newest_only=True, pause_after=2
    )
    def follow(event, delivery):
        calls.append(delivery.key)

    app = stored_only(handlers)
    for number in range(5):
        deliver(app, PAID.encode(), "InvoicePaymentStatusChanged", message_id=f"msg_{number}")
    get_state(app).handle_due()

    assert calls == ["msg_4"]
    assert inbox_of(app)[0].paused_handlers() == []


@pytest.mark.usefixtures("inbox_url")
def test_a_lowered_number_of_failures_counts_those_before(stored_only):
    calls = []
    failing = noting(calls, failing=range(1, 100), pause_after=5)
    app = stored_only(failing)
    inbox, now = inbox_of(app)
    send(app, 4)
    get_state(app).handle_due()
    assert inbox.paused_handlers() == []

    lowered = get_state(stored_only(noting(calls, failing=range(1, 100), pause_after=2)))
    with inbox.transaction("newer code", lowered.dispatcher.limits) as transaction:
        [claim] = transaction.claim(1, now + timedelta(days=1), now + timedelta(days=2))
        transaction.settle([lowered.dispatcher.attempt(claim).run_result])
        transaction.apply_limits(now)

    assert [one.name for one in inbox.paused_handlers()] == ["note"]


def test_failures_are_counted_over_all_workers(running):
    calls = []
    app = running(noting(calls, failing=range(1, 100), pause_after=4), count=3, BILLHOOK_LEASE_SECONDS=30)
    inbox, _ = inbox_of(app)
    for number in range(1, 5):
        send(app, 1, first=number)
        until(lambda number=number: len(calls) == number)
    until(inbox.paused_handlers)
    send(app, 3, first=5)
    send(app, 1, "CustomerCreated")
    until(lambda: "other CustomerCreated-1" in calls)

    assert len(calls) == 5


# --- at most so many at once --------------------------------------------------------------------------


class Together:
    """A handler that records how many of its calls were under way at once."""

    def __init__(self, seconds):
        self.most = self.now = self.calls = 0
        self._seconds = seconds
        self._lock = threading.Lock()

    def __call__(self, event):
        with self._lock:
            self.now += 1
            self.calls += 1
            self.most = max(self.most, self.now)
        time.sleep(self._seconds)
        with self._lock:
            self.now -= 1


def together(seconds, **options):
    handlers, calls = Handlers(), Together(seconds)
    handlers.on(PingTest, name="slow", **options)(calls)
    return handlers, calls


def test_so_many_runs_are_under_way_at_once_over_several_workers(running):
    handlers, calls = together(0.01, at_most=3)
    app = running(handlers, count=3, threads=4, BILLHOOK_LEASE_SECONDS=30)
    send(app, 30)

    until(lambda: calls.calls == 30, 60)

    assert 1 <= calls.most <= 3


def test_control_without_the_option_more_are_under_way(running):
    handlers, calls = together(0.05)
    app = running(handlers, count=3, threads=4, BILLHOOK_LEASE_SECONDS=30)
    send(app, 30)

    until(lambda: calls.calls == 30, 60)

    assert calls.most > 3


@pytest.mark.usefixtures("inbox_url")
def test_a_run_lost_with_its_worker_frees_its_place_after_its_lease(stored_only, clock):
    calls = []
    app = stored_only(noting(calls, at_most=1))
    state = get_state(app)
    inbox, now = inbox_of(app)
    send(app, 3)
    planned = state.dispatcher.plan(inbox.received(10))
    with inbox.transaction("a worker that dies", state.dispatcher.limits) as transaction:
        transaction.plan([one.plan for one in planned], now)
        assert len(transaction.claim(10, now, now + timedelta(seconds=30))) == 1
    with inbox.transaction("another", state.dispatcher.limits) as transaction:
        assert transaction.claim(10, now, now) == []

    clock.advance(seconds=31)
    state.handle_due()

    assert sorted(calls) == ["PingTest-1", "PingTest-2", "PingTest-3"]


def test_a_retry_takes_no_place_while_it_waits(stored_only, clock):
    calls = []
    app = stored_only(noting(calls, failing=[1], at_most=1))
    send(app, 3)
    get_state(app).handle_due()
    assert calls == ["PingTest-1", "PingTest-2", "PingTest-3"]

    clock.advance(seconds=601)
    get_state(app).handle_due()
    assert calls[3:] == ["PingTest-1"]


@pytest.mark.slow
def test_celery_workers_keep_to_the_limit_and_publish_what_it_held(stored_only, clock):
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
    state = get_state(app)
    executor = DeliveryExecutor(state.inbox, state.dispatcher, lease_seconds=30.0, publish=messages.append)
    send(app, 2)

    executor.execute(1)
    assert (inner, messages) == ([1, 1], [2])
    executor.execute(messages.pop())

    assert calls == ["PingTest-1", "PingTest-2"]


@pytest.mark.slow
def test_a_sweep_that_may_release_nothing_waits_for_the_next_chance(stored_only, clock):
    app = stored_only(noting([], at_most=1))
    state = get_state(app)
    inbox, now = inbox_of(app)
    send(app, 2)
    planned = state.dispatcher.plan(inbox.received(10))
    with inbox.transaction("a slow worker", state.dispatcher.limits) as transaction:
        transaction.plan([one.plan for one in planned], now)
        assert len(transaction.claim(10, now, now + timedelta(seconds=60))) == 1
    sweeper = sweeper_of(state, clock)
    clock.advance(seconds=2)

    assert sweeper.due(0.0, lambda: 0) == []
    assert sweeper.pause_seconds(0.0) == 1.0


@pytest.mark.usefixtures("inbox_url")
def test_one_look_releases_no_more_than_the_limit(stored_only):
    app = stored_only(noting([], at_most=2))
    state = get_state(app)
    inbox, now = inbox_of(app)
    inbox.pause_handler("note", None, now)
    send(app, 10)
    planned = state.dispatcher.plan(inbox.received(10))
    with inbox.transaction("a worker", state.dispatcher.limits) as transaction:
        transaction.plan([one.plan for one in planned], now)
        assert transaction.claim(10, now, now) == []
    inbox.resume_handler("note", now)

    released, again_at = inbox.release_held("a sweep", state.dispatcher.limits, now)

    assert (len(released), again_at) == (2, now + timedelta(seconds=1))


@pytest.mark.usefixtures("inbox_url")
def test_a_released_run_is_due_since_its_delivery_was_received(stored_only, clock):
    calls = []
    app = stored_only(noting(calls, at_most=1))
    inbox, now = inbox_of(app)
    send(app, 2)
    inbox.pause_handler("note", None, now)
    get_state(app).handle_due()
    clock.advance(seconds=60)
    send(app, 2, "CustomerCreated")
    state = get_state(app)
    planned = state.dispatcher.plan(inbox.received(10))
    with inbox.transaction("a worker", state.dispatcher.limits) as transaction:
        transaction.plan([one.plan for one in planned], clock.now())
    clock.advance(seconds=60)
    inbox.resume_handler("note", clock.now())

    state.handle_due()

    assert calls == ["PingTest-1", "PingTest-2", "other CustomerCreated-1", "other CustomerCreated-2"]


@pytest.mark.slow
def test_celery_publishes_what_the_claim_of_a_suspect_releases(stored_only, clock):
    calls, messages = [], []
    app = stored_only(noting(calls, at_most=1))
    state = get_state(app)
    inbox, now = inbox_of(app)
    executor = DeliveryExecutor(inbox, state.dispatcher, lease_seconds=30.0, publish=messages.append)
    send(app, 2)
    planned = state.dispatcher.plan(inbox.received(10))
    with inbox.transaction("a worker that dies", state.dispatcher.limits) as transaction:
        transaction.plan([one.plan for one in planned], now)
        assert len(transaction.claim(10, now, now + timedelta(seconds=10))) == 1
    clock.advance(seconds=11)

    executor.execute(1)
    assert 2 in messages
    while messages:
        executor.execute(messages.pop())

    assert sorted(calls) == ["PingTest-1", "PingTest-2"]


# --- so many in a time --------------------------------------------------------------------------------


@pytest.mark.usefixtures("inbox_url")
def test_runs_start_at_the_rate(stored_only, clock):
    calls = []
    app = stored_only(noting(calls, rate="60/min"))
    send(app, 5)
    counted = []
    for _ in range(6):
        get_state(app).handle_due()
        counted.append(len(calls))
        clock.advance(seconds=1)

    assert counted == [1, 2, 3, 4, 5, 5]
    clock.advance(seconds=60)
    send(app, 5, first=6)
    get_state(app).handle_due()
    assert len(calls) == 6  # what was not used is not made up for


def test_the_longest_waiting_starts_first_while_more_arrive_than_may_start(stored_only, clock):
    calls = []
    app = stored_only(noting(calls, rate="30/min"))
    for number in range(1, 11):  # one a second, where one in two seconds may start
        send(app, 1, first=number)
        get_state(app).handle_due()
        clock.advance(seconds=1)
    for _ in range(20):
        get_state(app).handle_due()
        clock.advance(seconds=1)

    assert calls == [f"PingTest-{number}" for number in range(1, 11)]


@pytest.mark.usefixtures("inbox_url")
def test_the_longest_waiting_starts_first_at_a_limit_of_runs_at_once(stored_only):
    calls = []
    app = stored_only(noting(calls, at_most=1))
    state = get_state(app)
    inbox, now = inbox_of(app)
    limits = state.dispatcher.limits

    def plan_and_claim(name, moment):
        planned = state.dispatcher.plan(inbox.received(10))
        with inbox.transaction(name, limits) as transaction:
            transaction.plan([one.plan for one in planned], moment)
            return transaction.claim(10, moment, moment + timedelta(seconds=60))

    send(app, 1)
    (first,) = plan_and_claim("a worker", now)
    send(app, 2, first=2)
    assert plan_and_claim("another", now) == []
    attempt = state.dispatcher.attempt(first)
    send(app, 1, first=4)
    planned = state.dispatcher.plan(inbox.received(10))
    with inbox.transaction("a worker", limits) as transaction:
        transaction.plan([one.plan for one in planned], now)
        transaction.settle([attempt.run_result])
        transaction.apply_limits(now)
        (second,) = transaction.claim(10, now, now + timedelta(seconds=60))

    assert second.delivery.key == "PingTest-2"


def test_a_run_that_ends_does_not_put_off_the_next_start(stored_only, clock):
    handlers, starts = Handlers(), []
    begin = clock.now()

    @handlers.on(PingTest, name="note", rate="60/min")
    def note(event):
        starts.append((clock.now() - begin).total_seconds())
        clock.advance(seconds=0.75)

    app = stored_only(handlers)
    send(app, 4)
    for _ in range(80):
        get_state(app).handle_due()
        clock.advance(seconds=0.05)

    assert len(starts) == 4
    assert all(1.0 <= later - earlier < 1.1 for earlier, later in pairwise(starts))


@pytest.mark.slow
def test_a_high_rate_starts_several_together_and_never_more_in_its_time(stored_only, clock):
    calls, at = [], []
    app = stored_only(noting(calls, rate="100/s"))
    begin = clock.now()
    send(app, 150)
    for _ in range(5_000):
        before = len(calls)
        get_state(app).handle_due()
        at += [(clock.now() - begin).total_seconds()] * (len(calls) - before)
        if len(calls) == 150:
            break
        clock.advance(seconds=0.004)

    assert len(calls) == 150
    assert max(sum(one <= other < one + 1.0 for other in at) for one in at) <= 100
    assert at[-1] < 150 / 90


@pytest.mark.usefixtures("inbox_url")
def test_a_rate_that_divides_no_second_is_never_exceeded(stored_only, clock):
    calls = []
    app = stored_only(noting(calls, rate="7/s"))
    begin = clock.now()
    send(app, 8)
    for _ in range(8):
        get_state(app).handle_due()
        last_at = clock.now()
        release_at = get_state(app).inbox.poll(1)[1].release_at
        if release_at is not None:
            clock.advance(seconds=(release_at - clock.now()).total_seconds())

    assert len(calls) == 8
    assert last_at - begin >= timedelta(seconds=1)


def test_running_workers_share_the_rate(running):
    times, handlers = [], Handlers()
    handlers.on(PingTest, name="paced", rate="20/s")(lambda event: times.append(time.monotonic()))
    app = running(handlers, count=3, threads=2, BILLHOOK_LEASE_SECONDS=30)
    send(app, 21)

    until(lambda: len(times) == 21, 60)

    # A thread may start late, and then the next one comes sooner: the whole cannot be faster.
    assert max(times) - min(times) > 20 / 20 * 0.9


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


# --- options ------------------------------------------------------------------------------------------


def test_a_limit_that_means_nothing_is_refused():
    for options in (
        {"at_most": 0},
        {"at_most": 1.5},
        {"at_most": True},
        {"at_most": 1001},
        {"pause_after": -1},
        {"rate": 10},
        {"rate": "10"},
        {"rate": "0/s"},
        {"rate": "1001/s"},
        {"rate": "10 / s"},
        {"rate": "10/week"},
    ):
        with pytest.raises(ConfigError, match=next(iter(options))):
            Handlers().on(PingTest, **options)
