"""What every engine promises, on every database. The other files here are about one engine or rule each."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import Counter
from contextlib import closing
from dataclasses import replace

import pytest

from billhook import Handlers, effects
from billhook.basics.engine_kinds import ENGINES
from billhook.events import CustomerCreated, InvoicePaymentStatusChanged, PingTest, sample
from billhook.extension import get_state
from billhook.inbox.reading.deliveries import is_busy
from support.apps import inbox_at
from support.engines import (
    EVERY_ENGINE,
    foreign_engine,
    noting,
    option_for,
    plan_and_claim,
    runs,
    states,
    status_changed,
)
from support.inbox_view import change, column, incoming, not_called_again, rows
from support.processes import until

pytestmark = pytest.mark.usefixtures("inbox_url")


class Engine:
    """An app whose deliveries are stored while its engine rests, and handled when it is told to."""

    def __init__(self, name, app_with, running):
        self._name = name
        self._make, self._running = app_with, running
        self._wake = None

    def shop(self, handlers, lease_seconds=30):
        """Make the app."""
        options = {"BILLHOOK_ENGINE": option_for(self._name), "BILLHOOK_LEASE_SECONDS": lease_seconds}
        self.app = self._make(handlers=[handlers], **options)
        self.state = get_state(self.app)
        self.inbox = self.state.inbox

    @property
    def now(self):
        return self.state.dispatcher.clock.now()

    def store(self, key, event_type="PingTest", body=b"{}"):
        return self.inbox.put(incoming(key, event_type=event_type, body=body)).delivery_id

    def changed(self, key, *, in_body=False):
        """Store one of invoice inv_1, with its type in the body or beside it."""
        if in_body:
            body = status_changed().replace(b"{", b'{"type":"InvoicePaymentStatusChanged",')
            self.inbox.put(replace(incoming(key, event_type="", body=body), type_field="type"))
        else:
            self.store(key, "InvoicePaymentStatusChanged", status_changed())

    def claim_and_die(self, times):
        """Plan a run and lose it with so many workers, whose leases are over."""
        for number in range(times):
            assert len(plan_and_claim(self.app, f"dies-{number}", self.now, most=1, lease_seconds=0)) == 1

    def handle(self):
        """Have what is due handled, until nothing is."""
        if self._name == "inline":
            self.state.handle_due()
        elif ENGINES[self._name].is_foreign:
            self._execute()
        elif self._wake is not None:
            self._wake()
        elif self._name == "thread":
            self.state.engine.start()
            self._wake = lambda: self.state.engine.wake(0)
        else:
            self._wake = self._running.start(self.app, 1).wake
        until(lambda: not is_busy(self.inbox, self.now), 20)

    def _execute(self):
        """As messages to the workers of a queue have it done: the newest first, then those that follow."""
        messages = []
        executor = foreign_engine(self._name, self.app, messages)
        unfinished = "SELECT id FROM delivery WHERE state IN ('received', 'planned') ORDER BY id DESC"
        messages += column(inbox_at(self.app), unfinished)
        while messages:
            executor.execute(messages.pop(0))


@pytest.fixture(params=EVERY_ENGINE)
def engine(request, app_with, running):
    return Engine(request.param, app_with, running)


def test_every_delivery_is_handled_once_by_each_of_its_handlers(engine):
    handlers, calls = Handlers(), Counter()
    handlers.on(PingTest, name="a")(lambda event, delivery: calls.update([("a", delivery.key)]))
    handlers.on_any(name="b")(lambda event, delivery: calls.update([("b", delivery.key)]))
    engine.shop(handlers)
    for number in range(12):
        engine.store(f"m{number}")
    engine.store("other", "CustomerCreated", b"not JSON")
    engine.store("unheard of", "BrandNew")

    engine.handle()

    expected = [(name, f"m{n}") for name in "ab" for n in range(12)] + [("b", "unheard of")]
    assert calls == Counter(expected)
    assert states(engine.app) == ["done"] * 12 + ["quarantined", "done"]
    assert set(runs(engine.app, "state, attempts")) == {("succeeded", 1)}


def test_a_type_in_the_body_is_read_with_the_plan(engine):
    handlers, calls = Handlers(), []
    handlers.on(PingTest, name="a")(lambda event: calls.append("ping"))
    handlers.on_unknown(name="b")(lambda event, delivery: calls.append(delivery.event_type))
    engine.shop(handlers)
    for number, name in enumerate(("PingTest", "orders/create", " ")):
        body = b'{"type":"%s"}' % name.encode()
        engine.inbox.put(replace(incoming(f"m{number}", event_type="", body=body), type_field="type"))

    engine.handle()

    assert sorted(calls) == ["orders/create", "ping"]
    found = rows(inbox_at(engine.app), "SELECT event_type, state FROM delivery ORDER BY id")
    assert found == [("PingTest", "done"), ("orders/create", "done"), ("", "quarantined")]


def test_each_run_is_retried_by_its_own_schedule_until_it_is_dead(engine):
    handlers, calls = Handlers(), []

    def failing(event, delivery):
        calls.append(delivery.attempt)
        raise ValueError("not today")

    handlers.on(PingTest, name="dies", retry=[0, 0])(failing)
    handlers.on(PingTest, name="good")(lambda event: calls.append("good"))
    handlers.on(PingTest, name="later", retry=[600])(failing)
    engine.shop(handlers)
    engine.store("m")

    engine.handle()

    assert sorted(map(str, calls)) == ["1", "1", "2", "3", "good"]
    assert runs(engine.app) == [("dies", "dead", 3), ("good", "succeeded", 1), ("later", "due", 1)]
    assert states(engine.app) == ["planned"]
    assert rows(inbox_at(engine.app), "SELECT count(*) FROM failure") == [(4,)]


def test_attempts_that_fail_after_an_effect_do_not_repeat_it(engine, tmp_path):
    handlers, attempts, own = Handlers(), [], tmp_path / "own.db"

    @handlers.on(PingTest, name="book", retry=[0, 0])
    def book(event, delivery):
        with closing(sqlite3.connect(own, timeout=20)) as connection, connection:
            if delivery.once(connection):
                connection.execute("INSERT INTO payment VALUES (3)")
        attempts.append((delivery.replays, delivery.attempt))
        if delivery.attempt < 3:
            raise ConnectionError("after the effect")

    engine.shop(handlers)
    with closing(sqlite3.connect(own)) as connection:
        effects.create_all(connection)
        connection.execute("CREATE TABLE payment (amount INTEGER)")
    engine.store("m")

    engine.handle()

    assert attempts == [(0, 1), (0, 2), (0, 3)]
    assert rows(own, "SELECT count(*) FROM payment") == [(1,)]


@pytest.mark.parametrize("in_body", [False, True], ids=["type in a header", "type in the body"])
def test_runs_of_one_order_key_are_handled_in_order_of_receipt(engine, in_body):
    calls = []
    options = {"event_type": InvoicePaymentStatusChanged, "ordered_by": "invoice_id"}
    engine.shop(noting(calls, failing=[1], retry=[0], **options))
    for key in ("m1", "m2", "m3"):
        engine.changed(key, in_body=in_body)

    engine.handle()

    assert calls == ["m1", "m1", "m2", "m3"]
    assert states(engine.app) == ["done"] * 3


def test_of_several_that_wait_only_the_newest_is_handled(engine):
    calls = []
    options = {"event_type": InvoicePaymentStatusChanged, "ordered_by": "invoice_id"}
    engine.shop(noting(calls, newest_only=True, **options))
    for key in ("m1", "m2", "m3"):
        engine.changed(key)

    engine.handle()

    assert calls == ["m3"]
    superseded = ("discarded", "superseded by delivery 3")
    assert runs(engine.app, "state, last_error") == [superseded, superseded, ("succeeded", None)]
    assert states(engine.app) == ["done"] * 3


def test_a_paused_handler_is_not_called_until_it_is_resumed(engine):
    calls = []
    engine.shop(noting(calls))
    engine.inbox.pause_handler("note", None, engine.now)
    engine.store("m1")
    engine.store("m2")
    engine.store("m3", "CustomerCreated", sample(CustomerCreated).to_json())
    engine.handle()
    before, waiting = list(calls), runs(engine.app)

    engine.inbox.resume_handler("note")
    engine.handle()

    assert before == ["other m3"]
    assert waiting == [("note", "due", 0)] * 2 + [("other", "succeeded", 1)]
    until(lambda: sorted(calls) == ["m1", "m2", "other m3"])
    until(lambda: states(engine.app) == ["done"] * 3)


def test_a_handler_that_fails_so_often_in_a_row_is_paused(engine):
    calls = []
    engine.shop(noting(calls, failing=range(9), pause_after=2, retry=[600]))
    for number in range(5):
        engine.store(f"m{number}")
        engine.handle()

    assert [one.name for one in engine.inbox.paused_handlers()] == ["note"]
    assert len(calls) == 2
    assert sorted(runs(engine.app, "state, attempts")) == [("due", 0)] * 3 + [("due", 1)] * 2


def test_a_handler_at_its_limit_is_called_for_every_delivery_all_the_same(engine):
    calls = []
    engine.shop(noting(calls, at_most=1))
    for number in range(5):
        engine.store(f"m{number}")

    engine.handle()

    until(lambda: states(engine.app) == ["done"] * 5, 20)
    assert sorted(calls) == [f"m{number}" for number in range(5)]


@pytest.mark.parametrize(
    ("times", "called", "end"),
    [(1, ["m"], ("succeeded", 2, None)), (2, [], ("dead", 3, not_called_again(2)))],
    ids=["called again after the lease", "dead without another call"],
)
def test_a_run_that_takes_so_many_workers_along(engine, times, called, end):
    calls = []
    engine.shop(noting(calls, retry=[0]), lease_seconds=6)  # it is due again after a sixth of that
    engine.store("m")
    engine.claim_and_die(times)

    engine.handle()

    until(lambda: states(engine.app)[0] in ("done", "dead"), 20)
    assert calls == called
    assert runs(engine.app, "state, attempts, last_error") == [end]


def test_async_attempts_of_a_thread_share_one_loop_and_end_at_their_time_out(engine):
    handlers, loops, threads, cleaned_up = Handlers(), [], set(), []

    @handlers.on(PingTest, name="h", timeout_seconds=0.1, retry=[])
    async def hangs(event, delivery):
        loops.append(asyncio.get_running_loop())
        threads.add(threading.get_ident())
        if delivery.key == "hangs":
            try:
                await asyncio.sleep(60)
            finally:
                cleaned_up.append(True)

    engine.shop(handlers)
    for key in ("good", "hangs", "good again"):
        engine.store(key)

    engine.handle()

    cancelled = "TimeoutError: the handler did not return within 0.1 s, and was cancelled"
    assert runs(engine.app, "state, last_error") == [
        ("succeeded", None),
        ("dead", cancelled),
        ("succeeded", None),
    ]
    assert cleaned_up == [True]
    assert len({id(loop) for loop in loops}) == len(threads)


REFUSED = {
    "a text": "a check mark \u2713",
    "a row too large": "too long " * 1000,
}


def refuse(where, text, at_most):
    """Have the database refuse errors with `text`, and those that are longer."""
    bad = f"instr(NEW.error, '{text}') > 0 OR length(NEW.error) > {at_most}"
    if str(where).startswith("postgresql"):
        condition = bad.replace("instr", "strpos").replace("NEW.", "")
        change(where, f"ALTER TABLE failure ADD CONSTRAINT refuse CHECK (NOT ({condition}))")
    else:
        refusal = "SELECT RAISE(ABORT, 'refused')"
        change(where, f"CREATE TRIGGER refuse BEFORE INSERT ON failure WHEN {bad} BEGIN {refusal}; END")


@pytest.mark.parametrize("kind", REFUSED)
def test_a_result_that_the_database_refuses_is_stored_without_its_words_and_all_others_as_they_are(
    engine, kind, caplog
):
    """What its transaction did besides is told like that of any other."""
    handlers, calls = Handlers(), []

    @handlers.on(CustomerCreated, name="fails", retry=[], pause_after=1)
    def fails(event):
        calls.append("fails")
        raise ValueError(REFUSED[kind])

    handlers.on(PingTest, name="works")(lambda event: calls.append("works"))
    engine.shop(handlers)
    refuse(inbox_at(engine.app), "\u2713", 1_000)
    for number in range(6):
        engine.store(f"m{number}")
        if number == 3:
            engine.store("bad", "CustomerCreated", sample(CustomerCreated).to_json())

    engine.handle()

    assert sorted(calls) == ["fails"] + ["works"] * 6
    found = dict(rows(inbox_at(engine.app), "SELECT handler || state, last_error FROM run"))
    expected = {"failsdead": "the database refused the text of this error", "workssucceeded": None}
    assert found == expected
    assert [one[:24] for one in caplog.messages if " paused" in one] == ["handler fails paused: 1 "]
