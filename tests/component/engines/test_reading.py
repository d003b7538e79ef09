"""Events of types of the user's own: what their models raise, however long they take, on every database."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections import Counter
from datetime import timedelta
from hashlib import sha256

import pytest
from pydantic import field_validator

from billhook import Handlers
from billhook.basics.type_names import types_read
from billhook.engines import handler_pool, reading
from billhook.engines.pacing import READING_LOCKED_SECONDS
from billhook.engines.readers import READERS
from billhook.errors import ConfigError, InvalidPayload
from billhook.events import EVENT_TYPES, PingTest
from billhook.events.base import Event, _registered
from billhook.extension import get_state
from billhook.inbox import Counted, InboxTransaction, NextTimes
from billhook.inbox.operating.operations import discard, erase, replay
from support.apps import deliver, inbox_at
from support.engines import (
    EVERY_ENGINE,
    foreign_engine,
    option_for,
    plan,
    plan_and_claim,
    runs,
    states,
)
from support.inbox_view import column, incoming, rows
from support.processes import until
from support.timeouts import scaled

pytestmark = pytest.mark.usefixtures("inbox_url")


class Mute(Exception):
    """Has no text, and none can be made."""

    def __str__(self):
        raise BaseException("no text either")  # noqa: TRY002


class Unreadable(Exception):
    """Lets nobody look at where it was raised."""

    def __getattribute__(self, name):
        if name in ("__traceback__", "__cause__", "__context__"):
            raise RuntimeError(name)
        return super().__getattribute__(name)


class Own:
    """Two event types of a user's own, whose models do what `act` says, and their handlers' calls."""

    def __init__(self):
        self.act, self.read, self.calls = Counter(), [], []
        self.open = threading.Event()
        self.handlers = Handlers()
        own = self

        class Order(Event):
            key: str
            identify = ("key",)

            @field_validator("key")
            @classmethod
            def check(cls, value):
                own.read.append(value)
                own.act.get(value, lambda: None)()
                return value

        class Parcel(Event):
            key: str

            check = field_validator("key")(classmethod(lambda cls, value: own._check(value)))

        self.types = (Order, Parcel)
        self.handlers.on(Order, name="book")(lambda event, delivery: self.calls.append(event.key))
        self.handlers.on(Parcel, name="send")(lambda event, delivery: self.calls.append(event.key))
        self.handlers.on(PingTest, name="ping")(lambda event, delivery: self.calls.append(delivery.key))

    def _check(self, value):
        self.read.append(value)
        self.act.get(value, lambda: None)()
        return value

    def raises(self, key, error):
        def act():
            raise error

        self.act[key] = act

    def hangs(self, *keys):
        """Models that wait until the test opens them."""
        for key in keys:
            self.act[key] = lambda: self.open.wait(30)


@pytest.fixture
def own():
    made = Own()
    yield made
    made.open.set()
    for model in made.types:
        _registered.pop(model.type, None)


def order(app, key, event_type="Order"):
    body = b"{}" if event_type == "PingTest" else json.dumps({"key": key}).encode()
    return get_state(app).inbox.put(incoming(key, event_type=event_type, body=body)).delivery_id


def errors(app):
    return [
        json.loads(error)["error"] for error in column(inbox_at(app), "SELECT error FROM delivery") if error
    ]


# --- which types are read by runs -----------------------------------------------------------------


def test_the_types_of_the_service_are_planned_without_a_reading(own, shop):
    dispatcher = get_state(shop(own.handlers)).dispatcher
    service = [name for name in EVENT_TYPES if name not in ("Order", "Parcel")]

    names = {name: dispatcher.reading.names[name] for name in (*service, "BrandNew", "Order")}

    assert len(service) == 23
    assert {name for name, its_own in names.items() if its_own} == {"Order"}
    assert names["Order"] == "reading Order"


def test_a_delivery_that_is_read_has_the_runs_of_its_handlers_only(own, shop):
    app = shop(own.handlers)

    assert deliver(app, b'{"key": "a"}', "Order").status_code == 200

    assert (own.read, own.calls) == (["a"], ["a"])  # the event is not parsed a second time
    assert runs(app) == [("book", "succeeded", 1)]
    assert rows(inbox_at(app), "SELECT state, identifier_1 FROM delivery") == [("done", "a")]


def test_a_delivery_without_a_handler_is_done_when_it_is_read(shop):
    class Lonely(Event):
        key: str

    app = shop(Handlers())
    try:
        order(app, "a", "Lonely")
        order(app, 5, "Lonely")
        get_state(app).handle_due()
    finally:
        del _registered["Lonely"]

    assert (states(app), runs(app)) == (["done", "quarantined"], [])


@pytest.mark.parametrize("names", [{"name": "reading Order"}, {"name": "a", "aliases": ["reading x"]}])
def test_no_handler_has_the_name_of_a_reading(names):
    with pytest.raises(ConfigError, match="names that begin with 'reading '"):
        Handlers().on(PingTest, **names)


def test_an_ordered_handler_may_have_more_types_than_the_name_of_a_reading(shop):
    class Keyed(Event, register=False):
        key: str

    # No database makes these shorter: PostgreSQL's indexes would refuse a name that has all of them.
    types = [type(f"T{sha256(bytes([n])).hexdigest()}", (Keyed,), {}) for n in range(100)]
    group, calls = Handlers(), []
    group.on(*types, name="in order", ordered_by="key")(lambda event, delivery: calls.append(delivery.key))
    try:
        app = shop(group)
        for number, model in enumerate(types[:3]):
            body, headers = b'{"key": "same"}', {"message_id": f"m{number}"}
            assert deliver(app, body, model.type, **headers).status_code == 200
        (name,) = {get_state(app).dispatcher.reading.names[model.type] for model in types}
    finally:
        for model in types:
            del _registered[model.type]

    assert calls == ["m0", "m1", "m2"]
    assert states(app) == ["done"] * 3
    assert len(name) < 1_000
    assert {*types_read(name)} < {model.type for model in types}


# --- what a model raises --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KeyError("x"), "KeyError: 'x'"),
        (BaseException("boo"), "BaseException: boo"),
        (asyncio.CancelledError(), "CancelledError"),
        (SystemExit(3), "SystemExit: 3"),
        (Mute(), "Mute: <exception str() failed>"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_a_model_raises_quarantines_its_delivery_and_no_other(own, shop, caplog, error, told):
    app = shop(own.handlers)
    own.raises("bad", error)

    answers = [deliver(app, b'{"key": "%s"}' % key, "Order").status_code for key in (b"bad", b"good")]

    assert answers == [200, 200]
    assert (states(app), own.calls) == (["quarantined", "done"], ["good"])
    assert errors(app) == [f"the event model of Order raised {told}"]
    assert runs(app) == [("book", "succeeded", 1)]
    assert f"delivery 1 (Order) is quarantined: the event model of Order raised {told}" in caplog.text


@pytest.mark.parametrize("make", [Unreadable, lambda: InvalidPayload("mine", [object()])])
def test_an_exception_that_cannot_be_described_quarantines_its_delivery(own, shop, make):
    app = shop(own.handlers)
    own.raises("bad", make())

    answers = [deliver(app, b'{"key": "%s"}' % key, "Order").status_code for key in (b"bad", b"good")]

    assert answers == [200, 200]
    assert (states(app), own.calls) == (["quarantined", "done"], ["good"])
    assert errors(app) == ["the event model of Order raised what cannot be described"]


@pytest.mark.parametrize("ends", ["returns", "raises"])
def test_a_child_process_that_a_model_forks_ends_with_it(own, shop, ends):
    app, children = shop(own.handlers), []

    def fork():
        children.append(os.fork())
        if children == [0] and ends == "raises":
            raise BaseException("boo")  # noqa: TRY002

    own.act["forks"], tests_own = fork, os.getpid()
    deliver(app, b'{"key": "forks"}', "Order")
    if os.getpid() != tests_own:  # the control: without the rule the child goes on with the suite
        os._exit(77)

    assert (states(app), own.calls) == (["done"], ["forks"])
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == (ends == "raises")


@pytest.mark.parametrize("engine", [name for name in EVERY_ENGINE if name != "inline"])
def test_what_a_model_raises_ends_no_engine(own, app_with, running, engine):
    app = app_with(handlers=[own.handlers], BILLHOOK_ENGINE=option_for(engine))
    own.raises("bad", BaseException("boo"))
    bad, good = order(app, "bad"), order(app, "good")

    executor = foreign_engine(engine, app)
    if executor is not None:
        for delivery_id in (bad, good):
            executor.execute(delivery_id)
    elif engine == "thread":
        get_state(app).engine.start()
    else:
        running.start(app)

    until(lambda: states(app) == ["quarantined", "done"])
    assert own.calls == ["good"]


@pytest.mark.parametrize("error", [MemoryError(), OSError(28, "no space"), TimeoutError("slow")])
def test_what_may_pass_is_read_three_times_alone_and_then_quarantined(
    own, stored_only, frozen_clock, caplog, error
):
    app = stored_only(own.handlers)
    own.raises("bad", error)
    delivery_id = order(app, "bad")
    state = get_state(app)

    seen = []
    for seconds in (0, 29, 1, 119, 1):
        frozen_clock.advance(seconds=seconds)
        state.handle_due()
        seen.append((len(own.read), runs(app, "handler, state, attempts, runs_alone")))

    name = "reading Order"
    assert seen[:4] == [
        (1, [(name, "due", 1, 1)]),
        (1, [(name, "due", 1, 1)]),
        (2, [(name, "due", 2, 1)]),
        (2, [(name, "due", 2, 1)]),
    ]
    assert seen[4] == (3, [])
    assert states(app) == ["quarantined"]
    (told,) = errors(app)
    assert told.startswith(f"the event model of Order raised {type(error).__name__}")
    assert told.endswith(", at the last of 3 readings")
    assert f"delivery {delivery_id} (Order) could not be read (attempt 1), again in 30 s" in caplog.text


def test_what_passes_is_handled(own, stored_only, frozen_clock):
    app = stored_only(own.handlers)
    own.raises("bad", OSError("for a moment"))
    order(app, "bad")
    get_state(app).handle_due()
    own.act.clear()

    frozen_clock.advance(seconds=30)
    get_state(app).handle_due()

    assert (states(app), own.calls, runs(app)) == (["done"], ["bad"], [("book", "succeeded", 1)])
    assert column(inbox_at(app), "SELECT id FROM failure") == []


def test_figures_have_a_quarantine_that_is_found_after_the_watermark_has_moved(
    own, stored_only, frozen_clock
):
    app = stored_only(own.handlers)
    own.raises("bad", OSError("for a while"))
    inbox = get_state(app).inbox
    order(app, "bad")
    get_state(app).handle_due()
    order(app, "later", "PingTest")
    for seconds in (30, 10, 10, 120):  # three readings, with the watermark moved between them
        frozen_clock.advance(seconds=seconds)
        get_state(app).handle_due()
        while inbox.advance_watermark(frozen_clock.now() + timedelta(minutes=1)):
            pass

    assert states(app) == ["quarantined", "done"]
    counts = inbox.read_counts("what", only=[Counted.QUARANTINED])
    assert [each.number for each in counts.values()] == [1]


@pytest.mark.parametrize("stopping", [True, False])
def test_only_while_the_process_stops_system_exit_is_no_fault_of_the_delivery(own, stored_only, stopping):
    app = stored_only(own.handlers)
    own.raises("bad", SystemExit(0))
    order(app, "bad")
    state = get_state(app)
    (claim,) = plan_and_claim(app, "w", state.dispatcher.clock.now())

    result = state.dispatcher.reading.attempt(claim, stopping=lambda: stopping)

    assert result.run_result.uncounted == stopping
    assert (result.planned is None) == stopping


def test_keyboard_interrupt_never_quarantines(own, stored_only):
    app = stored_only(own.handlers)
    own.raises("bad", KeyboardInterrupt())
    order(app, "bad")
    state, results = get_state(app), []
    (claim,) = plan_and_claim(app, "w", state.dispatcher.clock.now())

    thread = threading.Thread(target=lambda: results.append(state.dispatcher.attempt(claim)))
    thread.start()
    thread.join()

    assert (results[0].run_result.uncounted, results[0].planned) == (True, None)
    with pytest.raises(KeyboardInterrupt):  # in the thread of a user who presses Ctrl-C
        state.dispatcher.attempt(claim)


def test_a_reading_that_ends_its_process_three_times_is_quarantined(own, stored_only, frozen_clock):
    app = stored_only(own.handlers)
    order(app, "bad")
    state = get_state(app)
    for number in range(3):
        now = frozen_clock.now()
        claims = plan_and_claim(app, f"dies-{number}", now, lease_seconds=0)
        assert [(claim.handler, claim.suspect) for claim in claims] == [("reading Order", number > 0)]
        frozen_clock.advance(seconds=1)

    state.handle_due()

    assert (own.read, states(app), runs(app)) == ([], ["quarantined"], [])
    assert errors(app)[0].startswith("the worker died at the last of 3 readings as Order, or was silent")


def test_at_a_retry_what_a_model_raises_is_a_failed_attempt(own, stored_only, frozen_clock):
    app = stored_only(own.handlers)
    order(app, "bad")
    plan(app, frozen_clock.now())
    (claim,) = plan_and_claim(app, "w", frozen_clock.now(), lease_seconds=0)
    state = get_state(app)
    frozen_clock.advance(seconds=1)
    state.handle_due()
    assert own.calls == ["bad"]
    own.raises("bad", BaseException("boo"))

    failed = state.dispatcher.attempt(claim._replace(handler="book"))

    assert failed.run_result.error == "BaseException: boo"
    assert failed.run_result.due_at is not None


# --- order ----------------------------------------------------------------------------------------


def ordering(own):
    """Add a handler of an own type and of a PingTest, in order."""
    own.handlers = Handlers()
    order_type, parcel = own.types
    seen = lambda event, delivery: own.calls.append(delivery.key)  # noqa: E731
    own.handlers.on(order_type, parcel, name="in order", ordered_by="key")(seen)
    own.handlers.on(PingTest, name="ping")(seen)


def test_types_that_share_an_ordered_handler_are_read_in_the_order_of_receipt(own, stored_only, frozen_clock):
    ordering(own)
    app = stored_only(own.handlers)
    own.raises("first", OSError("for a moment"))
    order(app, "first", "Parcel")
    order(app, "second")
    order(app, "aside", "PingTest")
    get_state(app).handle_due()

    assert own.read == ["first"]
    assert own.calls == ["aside"]
    name = "reading Order, Parcel"
    assert runs(app, "handler, state")[:2] == [(name, "due"), (name, "waiting")]
    own.act.clear()
    frozen_clock.advance(seconds=30)
    get_state(app).handle_due()
    # An ordered run is not claimed as it is made, so its event is read for the handler once more.
    assert own.read == ["first", "first", "second", "first", "second"]
    assert own.calls == ["aside", "first", "second"]
    assert states(app) == ["done"] * 3


def test_a_quarantine_lets_the_next_in_its_order_be_read(own, shop):
    ordering(own)
    app = shop(own.handlers)
    own.raises("first", ValueError("no"))
    own.raises("second", BaseException("no"))

    for key, event_type in (("first", "Parcel"), ("second", "Order"), ("third", "Order")):
        order(app, key, event_type)
    get_state(app).handle_due()

    assert states(app) == ["quarantined", "quarantined", "done"]
    assert own.calls == ["third"]


# --- what operators do ----------------------------------------------------------------------------


@pytest.mark.parametrize("done_by", ["discard", "erase"])
def test_a_delivery_that_is_discarded_while_it_is_read_has_no_reading(
    own, stored_only, frozen_clock, done_by
):
    ordering(own)
    app = stored_only(own.handlers)
    own.raises("first", OSError("for long"))
    first, _ = order(app, "first"), order(app, "second")
    state = get_state(app)
    state.handle_due()

    if done_by == "discard":
        discard(state.inbox, [first], "no good", frozen_clock.now())
    else:
        erase(state.inbox, [first], frozen_clock.now(), discard_unfinished=True)
    state.handle_due()

    assert states(app) == ["done" if done_by == "discard" else "erased", "done"]
    assert (own.calls, runs(app)) == (["second"], [("in order", "succeeded", 1)])


def test_a_result_of_a_reading_that_was_discarded_changes_nothing(own, stored_only, frozen_clock):
    app = stored_only(own.handlers)
    delivery_id, state = order(app, "a"), get_state(app)
    (claim,) = plan_and_claim(app, "w", frozen_clock.now())
    result = state.dispatcher.attempt(claim)
    discard(state.inbox, [delivery_id], "no good", frozen_clock.now())

    with state.inbox.transaction("w") as transaction:
        ended = transaction.end_readings({claim.lease: result.planned.plan}, [], frozen_clock.now())

    assert ended == (set(), [])
    assert (states(app), runs(app)) == (["done"], [])


def test_a_replay_has_it_read_at_once(own, stored_only, frozen_clock):
    app = stored_only(own.handlers)
    own.raises("bad", OSError("for a moment"))
    delivery_id, state = order(app, "bad"), get_state(app)
    state.handle_due()
    own.act.clear()

    done = replay(state.inbox, [delivery_id], frozen_clock.now())
    state.handle_due()

    assert (done.deliveries, own.calls, states(app)) == (1, ["bad"], ["done"])


def test_no_first_run_is_made_of_a_delivery_that_is_being_read(own, stored_only, frozen_clock):
    app = stored_only(own.handlers)
    own.raises("bad", OSError("for a moment"))
    delivery_id, state = order(app, "bad"), get_state(app)
    state.handle_due()

    asked = lambda *_: pytest.fail("it is asked for options")  # noqa: E731
    assert replay(state.inbox, [delivery_id], frozen_clock.now(), handler="new", backfill=asked).added == 0


# --- models that take long ------------------------------------------------------------------------


def test_a_model_that_hangs_holds_up_nothing_else(own, running):
    app = running(own.handlers, threads=1)
    keys = [f"hangs-{number}" for number in range(5)]
    own.hangs(*keys)
    for key in keys:
        order(app, key)
    until(lambda: len(own.read) == 3)  # a thread is left for other types

    began = time.monotonic()
    order(app, "parcel", "Parcel")
    order(app, "ping", "PingTest")
    until(lambda: {"parcel", "ping"} <= {*own.calls})

    assert time.monotonic() - began < scaled(1)
    assert len([key for key in own.read if key in keys]) == 3
    own.open.set()
    until(lambda: len(own.calls) == 7)


def test_a_reading_that_is_renewed_leaves_the_window_of_handlers_as_it_is(own, running):
    """A slow model does not say that handlers are slow."""
    app = running(own.handlers, start_now=False, BILLHOOK_LEASE_SECONDS=300)
    own.hangs("hangs")
    order(app, "hangs")
    worker = get_state(app).worker(2)
    worker._poll()
    worker._leases.window, worker._leases._renew_at = 64, 0.0
    held = len(worker._leases.readings)

    worker._poll()
    own.open.set()
    worker.close()

    assert (held, worker._leases.window) == (1, 64)


def test_at_a_renewal_readings_that_wait_for_a_thread_are_left_to_other_workers(own, running, monkeypatch):
    app = running(own.handlers, start_now=False, BILLHOOK_LEASE_SECONDS=300)
    keys = [f"hangs-{number}" for number in range(READERS + 2)]
    own.hangs(*keys)
    for key in keys:
        order(app, key)
    worker, released = get_state(app).worker(2), []
    worker._own_readers._most["reading Order"] = len(keys)  # as after quick ones
    until(lambda: worker._poll() is not None and len(worker._leases.readings) == len(keys))
    until(lambda: len(own.read) == READERS)
    worker._leases._renew_at = 0.0
    release = worker._leases.release_later
    monkeypatch.setattr(worker._leases, "release_later", lambda runs: released.extend(runs) or release(runs))

    worker._poll()
    own.open.set()
    worker.close()

    assert len(released) == 2


def test_readers_claim_readings_and_no_runs_of_handlers(own, running, monkeypatch):
    app, claim, asked = running(own.handlers, start_now=False), InboxTransaction.claim, []

    def noting(transaction, *to, which, **more):
        if "most" in more:  # as a claim for readers has it
            asked.append([which("reading Order"), which("book")])
        return claim(transaction, *to, which=which, **more)

    monkeypatch.setattr(InboxTransaction, "claim", noting)
    order(app, "a")
    worker = get_state(app).worker(2)

    worker._poll()
    worker.close()

    assert asked == [[True, False]]


@pytest.mark.parametrize(("due_in", "expected"), [(1.0, 1.0), (-1.0, READING_LOCKED_SECONDS)])
def test_a_worker_sleeps_until_a_reading_is_due_and_soon_tries_one_again_that_was_locked(
    own, running, due_in, expected
):
    worker = get_state(running(own.handlers, start_now=False)).worker(2)
    now = worker._dispatcher.clock.now()
    due_at = now + timedelta(seconds=due_in)

    seconds = worker._seconds_to_sleep(NextTimes(due_at, None, due={"reading Order": due_at}), now)
    worker.close()

    assert seconds == expected


def test_in_the_threads_of_handlers_a_model_that_hangs_would_hold_them_up(own, running):
    """The control of the test above."""
    app = running(own.handlers, start_now=False)
    own.hangs("hangs")
    running.start(app, 1)._readers = None
    order(app, "hangs")
    until(lambda: own.read)

    order(app, "ping", "PingTest")
    time.sleep(1)

    assert own.calls == []
    own.open.set()
    until(lambda: len(own.calls) == 2)


def test_beside_a_slow_model_no_handler_is_called_twice(own, running):
    """The leases, of half a second here, are renewed whatever a model does."""

    def slow(event, delivery):
        own.calls.append("slow")
        time.sleep(2)

    own.handlers.on(PingTest, name="slow")(slow)
    own.act["takes long"] = lambda: time.sleep(2)
    app = running(own.handlers, count=2)
    order(app, "ping", "PingTest")
    order(app, "takes long")

    until(lambda: states(app) == ["done", "done"], 15)

    assert Counter(own.calls) == Counter(["ping", "slow", "takes long"])
    assert own.read == ["takes long"]
    assert set(runs(app, "state, attempts")) == {("succeeded", 1)}


def test_a_reading_past_its_time_out_is_read_again_and_then_quarantined(own, running, monkeypatch):
    monkeypatch.setattr(handler_pool, "READING_SECONDS", 0.2)
    monkeypatch.setattr(reading, "READ_AGAIN_SECONDS", (0.1, 0.1))
    app = running(own.handlers)
    own.hangs("hangs")
    order(app, "hangs")

    until(lambda: states(app) == ["quarantined"], 20)

    assert own.read == ["hangs"] * 3
    text = "TimeoutError: the event model of Order did not return within 0.2 s, at the last of 3 readings"
    assert errors(app) == [text]


def test_at_a_retry_a_model_has_its_time_though_the_handler_has_none(own, running, monkeypatch):
    monkeypatch.setattr(handler_pool, "READING_SECONDS", 0.2)
    app = running(own.handlers, start_now=False, BILLHOOK_RETRY_SCHEDULE_SECONDS=(600,))
    order(app, "hangs")
    state = get_state(app)
    state.handle_due()
    replay(state.inbox, [1], state.dispatcher.clock.now(), handler="book")
    own.hangs("hangs")

    running.start(app)

    until(lambda: runs(app, "state, attempts") == [("due", 1)])
    error = "TimeoutError: the event model of Order did not return within 0.2 s"
    assert runs(app, "last_error") == [(error,)]


def test_a_worker_stops_in_order_beside_a_model_that_hangs(own, app_with):
    app = app_with(handlers=[own.handlers])
    own.hangs("hangs")
    order(app, "hangs")
    worker = get_state(app).worker(1)
    thread = threading.Thread(target=worker.run, args=(0.5,))
    thread.start()
    until(lambda: own.read)

    worker.stop()
    thread.join(10)

    worker.close()
    assert not thread.is_alive()
    assert runs(app, "handler, state, uncounted_attempts, runs_alone") == [("reading Order", "due", 1, 0)]


def test_no_reader_is_started_for_the_types_of_the_service(own, running):
    readers = lambda: {each for each in threading.enumerate() if each.name == "billhook-reader"}  # noqa: E731
    before = readers()
    app = running(own.handlers)
    order(app, "ping", "PingTest")
    until(lambda: own.calls == ["ping"])

    assert readers() <= before
