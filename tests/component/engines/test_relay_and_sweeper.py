"""The relay waits for nobody and nobody for it; the sweep finds what it let go of, and floods nothing."""

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

from billhook.clock import FrozenClock, SystemClock
from billhook.engines.celery import relay as relay_module
from billhook.engines.celery import sweeper as sweeper_module
from billhook.engines.celery.relay import Publisher, Relay
from billhook.engines.celery.sweeper import Sweeper
from billhook.errors import OutOfResources
from billhook.inbox import RunPlan
from support.inbox_view import NOON, change, incoming
from support.processes import in_children, until
from support.timeouts import scaled

LEASE = timedelta(seconds=30)
TASK = "billhook.handle"

pytestmark = pytest.mark.slow


@pytest.fixture
def bare_url(tmp_path) -> str:
    """Of a file alone: what is asked of the database is tested beside the inbox, on each kind."""
    (tmp_path / "billhook.db").touch(0o600)
    return f"sqlite:///{tmp_path / 'billhook.db'}"


# --- the sweep ------------------------------------------------------------------------------------


class Watch:
    """A sweeper of an inbox, whose broker's queue holds `queued` messages; moves both clocks."""

    def __init__(self, inbox, monkeypatch):
        self.inbox, self.clock, self.queued, self.asked = inbox, FrozenClock(NOON), 0, 0
        self._moment = 1000.0
        monkeypatch.setattr(sweeper_module.time, "monotonic", lambda: self._moment)
        self.sweeper = Sweeper(inbox, self.clock)

    def pass_by(self, seconds):
        self.clock.advance(seconds=seconds)
        self._moment += seconds

    def put(self, key):
        return self.inbox.put(replace(incoming(key), received_at=self.clock.now())).delivery_id

    def plan(self, delivery_id, *handlers):
        with self.inbox.transaction("planner") as transaction:
            transaction.plan([RunPlan(delivery_id, handlers)], self.clock.now())

    def claim(self):
        with self.inbox.transaction("worker") as transaction:
            return transaction.claim(1, self.clock.now(), self.clock.now() + LEASE)

    def sweep(self, delay_seconds=0.0):
        """What is rung for; every ring is taken."""
        ids = self.sweeper.due(delay_seconds, self._length)
        for delivery_id in ids:
            self.sweeper.mark_published(delivery_id)
        return ids

    def _length(self):
        self.asked += 1
        return self.queued


@pytest.fixture
def watch(inbox, monkeypatch):
    return Watch(inbox, monkeypatch)


def test_the_sweeper_publishes_a_delivery_older_than_its_message_could_be(watch):
    delivery_id = watch.put("k")

    looks = [watch.sweep()]
    watch.pass_by(1)
    looks.append(watch.sweep())

    assert looks == [[], [delivery_id]]


def test_a_web_sweeper_waits_for_the_workers_sweepers(watch):
    first = watch.put("k")
    watch.plan(first, "h")
    second = watch.put("l")

    watch.pass_by(4.9)
    early = watch.sweep(delay_seconds=5)
    watch.pass_by(0.1)

    assert (early, watch.sweep(delay_seconds=5)) == ([], [first, second])


def test_while_messages_wait_in_the_queue_nothing_is_added_for_half_a_minute(watch):
    delivery_id = watch.put("k")
    watch.queued = 1

    looks = []
    for seconds in (1, 15, 14, 1):
        watch.pass_by(seconds)
        looks.append(watch.sweep())

    assert looks == [[], [], [], [delivery_id]]


def test_the_sweeper_republishes_one_delivery_ever_more_seldom(watch):
    watch.put("k")
    watch.pass_by(1)

    rings = []
    for second in range(0, 3 * 3600, 30):
        if watch.sweep():
            rings.append(second)
        watch.pass_by(30)

    assert rings == [0, 30, 90, 210, 450, 930, 1890, 3810, 7410]  # at last every hour


def test_the_sweeper_publishes_a_due_retry_despite_a_long_queue(watch):
    delivery_id = watch.put("k")
    watch.plan(delivery_id, "h")
    watch.claim()
    watch.queued = 10_000

    before = watch.sweep()
    watch.pass_by(30)  # its lease ended, as it would if its worker died

    assert (before, watch.sweep(), watch.sweep()) == ([], [delivery_id], [])


def test_the_sweeper_starts_over_when_a_delivery_is_due_for_another_reason(watch):
    delivery_id = watch.put("k")
    watch.plan(delivery_id, "h")
    watch.pass_by(1)
    first = watch.sweep()
    watch.claim()
    watch.pass_by(30)

    assert (first, watch.sweep()) == ([delivery_id], [delivery_id])


def test_the_sweeper_forgets_handled_deliveries(watch):
    watch.plan(watch.put("k"), "h")
    watch.sweep()
    watch.claim()

    watch.sweep()

    assert watch.sweeper._pending == {}


def test_the_sweeper_reads_the_queue_length_only_when_needed(watch):
    watch.sweep()
    assert watch.asked == 0
    watch.put("k")
    watch.pass_by(1)
    watch.sweep()
    watch.sweep()
    assert watch.asked == 1


def test_the_next_sweep_is_when_a_run_is_due_and_within_two_seconds(watch, monkeypatch):
    monkeypatch.setattr(sweeper_module, "LIMIT", 2)
    pauses = []

    def sweep(delay_seconds=0.0):
        watch.sweep(delay_seconds)
        pauses.append(round(watch.sweeper.pause_seconds(delay_seconds), 3))

    sweep()
    watch.plan(watch.put("k"), "h")
    watch.claim()
    watch.pass_by(29)
    sweep()  # a lease ends in one second
    sweep(delay_seconds=0.5)
    watch.pass_by(0.995)
    sweep()
    for key in "abc":
        watch.put(key)
    watch.pass_by(2)
    sweep()  # as many as one look may find: more may wait
    sweep()  # all of them rung for already

    assert pauses == [2.0, 1.0, 1.5, 0.01, 0.1, 2.0]


# --- the relay ----------------------------------------------------------------------------------


def celery_app(broker="memory://"):
    """A Celery app with our task's name in it, and a queue of its own."""
    app = Celery("shop", broker=broker, set_as_current=False)
    app.conf.update(task_default_queue=f"relay-{token_hex(4)}", broker_connection_timeout=1)

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
def relay():
    """Makes relays from an inbox, if they are to sweep, to the broker of a Celery app; stops them."""
    made = []

    def make(app, inbox=None):
        made.append(Relay(lambda: Publisher(app, TASK), lambda: Sweeper(inbox, SystemClock())))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@contextmanager
def black_hole():
    """The URL of a broker that takes connections and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"amqp://guest:guest@127.0.0.1:{server.getsockname()[1]}//"


def test_a_published_message_is_an_id_in_json_and_nothing_else(relay):
    app = celery_app()

    assert relay(app).publish(42)

    (message,) = until(lambda: messages(app))
    assert (message.content_type, message.headers["task"]) == ("application/json", TASK)
    assert message.decode()[:2] == [[42], {}]
    assert message.headers["ignore_result"] is True
    assert (message.headers["eta"], message.headers["expires"]) == (None, None)


def test_a_relay_whose_thread_could_not_be_started_publishes_later(relay, monkeypatch):
    app = celery_app()
    one = relay(app)

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OutOfResources, match="the thread billhook-relay cannot be started"):
            one.publish(1)

    assert one.publish(2)
    assert until(lambda: ids_in(app)) == [2]


def test_publishing_waits_for_no_broker_and_drops_what_exceeds_its_buffer(relay, monkeypatch):
    monkeypatch.setattr(relay_module, "QUEUE_LIMIT", 100)
    with black_hole() as broker:
        one = relay(celery_app(broker))

        started = time.monotonic()
        taken = [one.publish(number) for number in range(150)]
        seconds = time.monotonic() - started

    assert taken.count(False) in (49, 50)  # one may be on its way already
    assert seconds < scaled(0.5)


def test_starts_that_fail_leave_nothing_in_the_queue(relay, monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    one = relay(celery_app())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(3):
        with pytest.raises(OutOfResources):
            one.start(5.0)

    assert one._ids.qsize() == 0


def test_an_unreachable_broker_is_logged_once(relay, caplog):
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    one = relay(celery_app(f"amqp://guest:secret@127.0.0.1:{port}//"))

    for number in range(3):
        one.publish(number)
    until(lambda: one._failures >= 2, seconds=15)

    told = [record for record in caplog.records if "broker unavailable" in record.message]
    assert [record.levelno for record in told] == [logging.WARNING]
    assert "refused" in told[0].message
    assert "secret" not in caplog.text


def test_a_relay_sweeps_only_after_it_is_started_with_a_delay(relay, inbox):
    app = celery_app()
    delivery_id = inbox.put(incoming("k")).delivery_id
    one = relay(app, inbox)
    one.publish(7)
    assert until(lambda: ids_in(app)) == [7]
    time.sleep(0.1)
    assert ids_in(app) == []

    one.start(0.0)

    assert until(lambda: ids_in(app)) == [delivery_id]


def test_publishing_continues_while_the_inbox_is_unreadable_and_the_sweep_is_repeated(
    relay, inbox, where, caplog, monkeypatch
):
    monkeypatch.setattr(relay_module, "INBOX_PAUSE_SECONDS", 0.1)
    app = celery_app()
    delivery_id = inbox.put(incoming("k")).delivery_id
    change(where, "ALTER TABLE run RENAME TO lost")
    one = relay(app, inbox)

    one.start(0.0)
    until(lambda: "sweep failed, retrying in" in caplog.text)
    one.publish(7)
    assert until(lambda: ids_in(app)) == [7]
    change(where, "ALTER TABLE lost RENAME TO run")

    assert until(lambda: ids_in(app)) == [delivery_id]


def test_stopping_sends_what_waits_and_nothing_is_taken_up_again(relay):
    app = celery_app()
    one = relay(app)
    for number in range(50):
        one.publish(number)

    one.stop()
    one.publish(99)
    one.start(0.0)

    assert ids_in(app) == list(range(50))
    assert "billhook-relay" not in [thread.name for thread in threading.enumerate()]


def test_stopping_does_not_wait_for_a_broker_that_never_answers(relay):
    with black_hole() as broker:
        one = relay(celery_app(broker))
        one.publish(1)
        started = time.monotonic()
        one.stop()
        seconds = time.monotonic() - started

    assert seconds < scaled(4)


def test_a_signal_handler_may_halt_the_relay_while_it_publishes(relay):
    one = relay(celery_app())
    one.publish(0)
    before = signal.signal(signal.SIGUSR1, lambda *_: one.request_stop())
    try:
        sender = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
        sender.start()
        until(lambda: one.publish(1) and one._stopping)
    finally:
        signal.signal(signal.SIGUSR1, before)

    until(lambda: not one._thread.is_alive())

    assert one._stopping
    assert not one._thread.is_alive()


def test_a_forked_child_publishes_over_a_new_connection(relay):
    app = celery_app()
    one = relay(app)
    one.publish(1)
    assert until(lambda: ids_in(app)) == [1]

    def child(number):
        one.publish(number)
        return repr(until(lambda: ids_in(app))).encode()

    assert in_children(2, child) == [b"[0]", b"[1]"]
    one.publish(2)
    assert until(lambda: ids_in(app)) == [2]


def test_a_task_that_is_routed_by_a_key_has_no_queue_to_ask():
    app = celery_app()
    app.conf.task_routes = {TASK: {"exchange": "elsewhere", "routing_key": "x", "queue": None}}

    assert Publisher(app, TASK).queue_length() == 0
