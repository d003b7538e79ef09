"""The courier waits for nobody and nobody for it; the sweep finds what it let go of, and floods nothing."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from secrets import token_hex

import pytest
from celery import Celery, Task
from kit import NOON, change, in_children, incoming, until
from patience import within

from billhook.clock import FrozenClock, SystemClock
from billhook.engines import courier as courier_module
from billhook.engines import sweep as sweep_module
from billhook.engines.courier import Courier
from billhook.engines.doorbell import Doorbell
from billhook.engines.sweep import Sweep
from billhook.inbox import Plan

LEASE = timedelta(seconds=30)
TASK = "billhook.handle"


# --- the sweep ------------------------------------------------------------------------------------


class Watch:
    """A sweep of an inbox, whose broker's queue holds `queued` messages; moves both clocks."""

    def __init__(self, inbox, monkeypatch):
        self.inbox, self.clock, self.queued, self.asked = inbox, FrozenClock(NOON), 0, 0
        self._moment = 1000.0
        monkeypatch.setattr(sweep_module.time, "monotonic", lambda: self._moment)
        self.sweep = Sweep(inbox, self.clock)

    def pass_by(self, seconds):
        self.clock.advance(seconds=seconds)
        self._moment += seconds

    def put(self, key):
        return self.inbox.put(replace(incoming(key), received_at=self.clock.now())).delivery_id

    def plan(self, delivery_id, *handlers):
        with self.inbox.turn("planner") as turn:
            turn.plan([Plan(delivery_id, handlers)], self.clock.now())

    def claim(self):
        with self.inbox.turn("worker") as turn:
            return turn.claim(1, self.clock.now(), self.clock.now() + LEASE)

    def look(self, patience_seconds=0.0):
        """What is rung for; every ring is taken."""
        ids = self.sweep.look(patience_seconds, self._length)
        for delivery_id in ids:
            self.sweep.rang(delivery_id)
        return ids

    def _length(self):
        self.asked += 1
        return self.queued


@pytest.fixture
def watch(inbox, monkeypatch):
    return Watch(inbox, monkeypatch)


def test_a_delivery_is_rung_for_once_it_is_older_than_its_message_could_be(watch):
    delivery_id = watch.put("k")

    looks = [watch.look()]
    watch.pass_by(1)
    looks.append(watch.look())

    assert looks == [[], [delivery_id]]


def test_those_in_the_workers_are_given_time_to_ring_first(watch):
    first = watch.put("k")
    watch.plan(first, "h")
    second = watch.put("l")

    watch.pass_by(4.9)
    early = watch.look(patience_seconds=5)
    watch.pass_by(0.1)

    assert (early, watch.look(patience_seconds=5)) == ([], [first, second])


def test_while_messages_wait_in_the_queue_nothing_is_added_for_half_a_minute(watch):
    delivery_id = watch.put("k")
    watch.queued = 1

    looks = []
    for seconds in (1, 15, 14, 1):
        watch.pass_by(seconds)
        looks.append(watch.look())

    assert looks == [[], [], [], [delivery_id]]


def test_one_delivery_is_rung_for_again_ever_more_seldom(watch):
    watch.put("k")
    watch.pass_by(1)

    rings = []
    for second in range(0, 3 * 3600, 30):
        if watch.look():
            rings.append(second)
        watch.pass_by(30)

    assert rings == [0, 30, 90, 210, 450, 930, 1890, 3810, 7410]  # at last every hour


def test_a_retry_is_rung_for_when_it_is_due_however_long_the_queue_is(watch):
    delivery_id = watch.put("k")
    watch.plan(delivery_id, "h")
    watch.claim()
    watch.queued = 10_000

    before = watch.look()
    watch.pass_by(30)  # its lease ended, as it would if its worker died

    assert (before, watch.look(), watch.look()) == ([], [delivery_id], [])


def test_what_waits_for_something_else_by_now_is_rung_for_anew(watch):
    delivery_id = watch.put("k")
    watch.plan(delivery_id, "h")
    watch.pass_by(1)
    first = watch.look()
    watch.claim()
    watch.pass_by(30)

    assert (first, watch.look()) == ([delivery_id], [delivery_id])


def test_what_was_handled_is_forgotten(watch):
    watch.plan(watch.put("k"), "h")
    watch.look()
    watch.claim()

    watch.look()

    assert watch.sweep._seen == {}


def test_the_queue_is_only_asked_for_where_that_matters(watch):
    watch.look()
    assert watch.asked == 0
    watch.put("k")
    watch.pass_by(1)
    watch.look()
    watch.look()
    assert watch.asked == 1


def test_the_next_look_is_when_something_is_due_and_after_two_seconds_at_most(watch, monkeypatch):
    monkeypatch.setattr(sweep_module, "LIMIT", 2)
    pauses = []

    def look(patience_seconds=0.0):
        watch.look(patience_seconds)
        pauses.append(round(watch.sweep.pause_seconds(patience_seconds), 3))

    look()
    watch.plan(watch.put("k"), "h")
    watch.claim()
    watch.pass_by(29)
    look()  # a lease ends in one second
    look(patience_seconds=0.5)
    watch.pass_by(0.995)
    look()
    for key in "abc":
        watch.put(key)
    watch.pass_by(2)
    look()  # as many as one look may find: more may wait
    look()  # all of them rung for already

    assert pauses == [2.0, 1.0, 1.5, 0.01, 0.1, 2.0]


# --- the courier ----------------------------------------------------------------------------------


def celery_app(broker="memory://"):
    """A Celery app with our task's name in it, and a queue of its own."""
    app = Celery("shop", broker=broker, set_as_current=False)
    app.conf.update(task_default_queue=f"courier-{token_hex(4)}", broker_connection_timeout=1)

    @app.task(name=TASK, base=Task, shared=False)
    def handle(*arguments):
        """Nobody calls it here."""

    return app


def messages(app):
    """What is in the app's queue, taken out of it."""
    found = []
    with app.connection_for_read() as connection:
        queue = app.amqp.queues[app.conf.task_default_queue](connection.default_channel)
        queue.declare()
        while (message := queue.get(no_ack=True)) is not None:
            found.append(message)
    return found


def ids_in(app):
    return [message.decode()[0][0] for message in messages(app)]


@pytest.fixture
def courier():
    """Makes couriers from an inbox, if they are to sweep, to the broker of a Celery app; stops them."""
    made = []

    def make(app, inbox=None):
        made.append(Courier(lambda: Doorbell(app, TASK), lambda: Sweep(inbox, SystemClock())))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@contextmanager
def black_hole():
    """The URL of a broker that takes connections and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"amqp://guest:guest@127.0.0.1:{server.getsockname()[1]}//"


def test_a_ring_is_a_message_with_an_id_in_json_and_nothing_else(courier):
    app = celery_app()

    assert courier(app).ring(42)

    (message,) = until(lambda: messages(app))
    assert (message.content_type, message.headers["task"]) == ("application/json", TASK)
    assert message.decode()[:2] == [[42], {}]
    assert message.headers["ignore_result"] is True
    assert (message.headers["eta"], message.headers["expires"]) == (None, None)


def test_ringing_waits_for_no_broker_and_lets_go_of_what_is_too_much(courier, monkeypatch):
    monkeypatch.setattr(courier_module, "QUEUE_LIMIT", 100)
    with black_hole() as broker:
        one = courier(celery_app(broker))

        started = time.monotonic()
        taken = [one.ring(number) for number in range(150)]
        seconds = time.monotonic() - started

    assert taken.count(False) in (49, 50)  # one may be on its way already
    assert seconds < within(0.5)


def test_a_broker_that_is_away_is_told_of_once(courier, caplog):
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    one = courier(celery_app(f"amqp://guest:secret@127.0.0.1:{port}//"))

    for number in range(3):
        one.ring(number)
    until(lambda: one._failures >= 2, seconds=15)

    told = [record for record in caplog.records if "the broker takes no messages" in record.message]
    assert [record.levelno for record in told] == [logging.WARNING]
    assert "refused" in told[0].message
    assert "secret" not in caplog.text


def test_what_is_in_the_inbox_is_swept_up(courier, inbox):
    app = celery_app()
    delivery_id = inbox.put(incoming("k")).delivery_id

    courier(app, inbox).start(0.0)

    assert until(lambda: ids_in(app)) == [delivery_id]


def test_a_courier_that_only_rings_sweeps_nothing_until_it_is_told_to(courier, inbox):
    app = celery_app()
    delivery_id = inbox.put(incoming("k")).delivery_id
    one = courier(app, inbox)
    one.ring(7)
    assert until(lambda: ids_in(app)) == [7]
    time.sleep(0.1)
    assert ids_in(app) == []

    one.start(0.0)

    assert until(lambda: ids_in(app)) == [delivery_id]


def test_an_inbox_that_cannot_be_read_stops_no_rings_and_is_looked_at_again(
    courier, inbox, where, caplog, monkeypatch
):
    monkeypatch.setattr(courier_module, "INBOX_PAUSE_SECONDS", 0.1)
    app = celery_app()
    delivery_id = inbox.put(incoming("k")).delivery_id
    change(where, "ALTER TABLE run RENAME TO lost")
    one = courier(app, inbox)

    one.start(0.0)
    until(lambda: "no look for deliveries that wait" in caplog.text)
    one.ring(7)
    assert until(lambda: ids_in(app)) == [7]
    change(where, "ALTER TABLE lost RENAME TO run")

    assert until(lambda: ids_in(app)) == [delivery_id]


def test_stopping_sends_what_waits_and_nothing_is_taken_up_again(courier):
    app = celery_app()
    one = courier(app)
    for number in range(50):
        one.ring(number)

    one.stop()
    one.ring(99)
    one.start(0.0)

    assert ids_in(app) == list(range(50))
    assert "billhook-courier" not in [thread.name for thread in threading.enumerate()]


def test_stopping_does_not_wait_for_a_broker_that_never_answers(courier):
    with black_hole() as broker:
        one = courier(celery_app(broker))
        one.ring(1)
        started = time.monotonic()
        one.stop()
        seconds = time.monotonic() - started

    assert seconds < within(4)


def test_a_signal_may_halt_it_in_the_middle_of_a_ring(courier):
    one = courier(celery_app())
    one.ring(0)
    before = signal.signal(signal.SIGUSR1, lambda *_: one.halt())
    try:
        sender = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
        sender.start()
        until(lambda: one.ring(1) and one._stopping)
    finally:
        signal.signal(signal.SIGUSR1, before)

    until(lambda: not one._thread.is_alive())


def test_a_forked_child_rings_over_a_connection_of_its_own(courier):
    app = celery_app()
    one = courier(app)
    one.ring(1)
    assert until(lambda: ids_in(app)) == [1]

    def child(number):
        one.ring(number)
        return repr(until(lambda: ids_in(app))).encode()

    assert in_children(2, child) == [b"[0]", b"[1]"]
    one.ring(2)
    assert until(lambda: ids_in(app)) == [2]


def test_a_task_that_is_routed_by_a_key_has_no_queue_to_ask():
    app = celery_app()
    app.conf.task_routes = {TASK: {"exchange": "elsewhere", "routing_key": "x", "queue": None}}

    assert Doorbell(app, TASK).waiting() == 0
