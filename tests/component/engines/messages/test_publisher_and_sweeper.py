"""The publisher makes nobody wait; the sweep finds what it dropped, and does not flood the queue."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from contextlib import closing, contextmanager
from secrets import token_hex

import pytest
from celery import Task

from billhook import Handlers
from billhook.engines.celery import broker as broker_module
from billhook.engines.celery.broker import CeleryBroker
from billhook.engines.messages import publisher as publisher_module
from billhook.engines.messages import sweeper as sweeper_module
from billhook.engines.messages.broker import TASK
from billhook.engines.messages.publisher import Publisher
from billhook.errors import InboxUnavailable, OutOfResources
from billhook.events import PingTest
from support.engines import celery_app
from support.processes import in_children, until
from support.sweeping import Watch
from support.timeouts import scaled

pytestmark = pytest.mark.slow


# --- the sweep ------------------------------------------------------------------------------------


@pytest.fixture
def watch(stored_only, inbox_url, frozen_clock, monkeypatch):
    return Watch(stored_only(Handlers(), BILLHOOK_INBOX_URL=inbox_url), frozen_clock, monkeypatch)


@pytest.mark.parametrize(
    ("queued", "pauses", "published_at"),
    [
        (0, [0, 1], [1]),  # its message would have come by then
        (1, [1, 15, 13, 1, *[30] * 121], [3600]),  # its message may wait in the queue, or be lost after all
        (0, [1, *[30] * 300], [1, 31, 61, 91, 181, 331, 661, 1291, 2581, 5131, 8731]),  # at last every hour
    ],
)
def test_when_a_delivery_that_no_worker_takes_is_published(watch, queued, pauses, published_at):
    delivery_id = watch.put("k")
    watch.queued = queued
    second, told = 0, []
    for pause in pauses:
        watch.pass_by(pause)
        second += pause
        if found := watch.sweep():
            assert found == [delivery_id]
            told.append(second)

    assert told == published_at


@pytest.mark.parametrize(
    ("queued", "pauses", "published_at"),
    [
        (0, [1, *[2] * 6], [1, 3, 5, 7, 9, 11, 13]),  # its message was used up, where the limit was reached
        (1, [1, *[2] * 6], [1, 3, 5, 7, 9, 11, 13]),
        (2, [1, *[2] * 6], []),  # its message may wait, and another one would make the queue longer
        (2, [1, 28, 1, 30], [30, 60]),  # for so long other runs have had the room
    ],
)
def test_a_run_with_a_limit_is_published_less_often_while_the_queue_is_long(
    stored_only, inbox_url, frozen_clock, monkeypatch, queued, pauses, published_at
):
    handlers = Handlers()
    handlers.on(PingTest, name="note", at_most=1)(lambda event: None)
    watch = Watch(stored_only(handlers, BILLHOOK_INBOX_URL=inbox_url), frozen_clock, monkeypatch)
    watch.plan(watch.put("k"), "note")
    watch.queued = queued
    second, told = 0, []
    for pause in pauses:
        watch.pass_by(pause)
        second += pause
        told += [second] * len(watch.sweep())
    watch.queued = 0
    watch.pass_by(0.1)

    assert told == published_at
    assert len(watch.sweep()) == (queued == 2)  # at once, where the queue was long before


def test_after_a_failure_of_the_inbox_all_that_is_pending_is_published_at_once(watch, monkeypatch):
    """Workers have used up the messages meanwhile: their claims failed too."""
    delivery_id = watch.put("k")
    watch.pass_by(1)
    looks = [watch.sweep(), watch.sweep()]

    def fail(*_, **__):
        raise InboxUnavailable("away")

    for what in ("pending", "check_writable"):  # a standby can be read, so that it is asked for more
        watch.pass_by(30)
        with monkeypatch.context() as patch:
            patch.setattr(watch.inbox, what, fail)
            with pytest.raises(InboxUnavailable):
                watch.sweep()
        looks += [watch.sweep(), watch.sweep()]

    assert looks == [[delivery_id], []] * 3


def test_what_is_due_for_another_reason_is_published_again_despite_a_long_queue(watch):
    delivery_id = watch.put("k")
    watch.plan(delivery_id, "h")
    watch.pass_by(1)
    first = watch.sweep()
    watch.claim()
    watch.queued = 10_000
    claimed = watch.sweep()
    watch.pass_by(30)  # its lease ended, as it would if its worker died

    assert (first, claimed, watch.sweep(), watch.sweep()) == ([delivery_id], [], [delivery_id], [])


def test_the_sweeper_forgets_what_is_not_pending_any_more_half_a_minute_later(watch):
    watch.plan(watch.put("k"), "h")
    watch.sweep()
    (key,) = watch.sweeper._waiting
    watch.claim()
    watch.pass_by(29)
    watch.sweep()
    known = key in watch.sweeper._waiting  # it may be pending again, with the message that it has
    watch.pass_by(2)
    watch.sweep()

    assert (known, key in watch.sweeper._waiting) == (True, False)


def test_what_could_not_be_published_is_published_by_the_next_sweep(watch):
    first, second = watch.put("k"), watch.put("l")
    watch.pass_by(1)

    def publish(delivery_id):
        if delivery_id == second:
            raise ConnectionError("the broker is away")

    with pytest.raises(ConnectionError):
        watch.sweeper.sweep(lambda: 0, publish)

    assert (watch.sweep(), watch.sweep()) == ([second], [])
    assert first < second


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

    def sweep():
        watch.sweep()
        pauses.append(round(watch.pause, 3))

    sweep()
    watch.plan(watch.put("k"), "h")
    watch.claim()
    watch.pass_by(29)
    sweep()  # a lease ends in one second
    watch.pass_by(0.995)
    sweep()
    for key in "abc":
        watch.put(key)
    watch.pass_by(2)
    sweep()  # as many as one look may find: more may wait
    sweep()  # all of them rung for already

    assert pauses == [2.0, 1.0, 0.01, 0.1, 2.0]


# --- the publisher ----------------------------------------------------------------------------------


def shop(broker="memory://", seconds=1):
    """A Celery app with our task's name in it, and a queue of its own."""
    queue = f"publisher-{token_hex(4)}"
    app = celery_app(broker, task_default_queue=queue, broker_connection_timeout=seconds)

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
def publisher():
    """Makes publishers to the broker of a Celery app; stops them."""
    made = []

    def make(app):
        made.append(Publisher(lambda: CeleryBroker(app)))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@contextmanager
def black_hole():
    """The URL of a broker that takes connections and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"amqp://guest:guest@127.0.0.1:{server.getsockname()[1]}//"


def test_a_published_message_is_an_id_in_json_and_nothing_else(publisher):
    app = shop()

    assert publisher(app).publish(42)

    (message,) = until(lambda: messages(app))
    assert (message.content_type, message.headers["task"]) == ("application/json", TASK)
    assert message.decode()[:2] == [[42], {}]
    assert message.headers["ignore_result"] is True
    assert (message.headers["eta"], message.headers["expires"]) == (None, None)


def test_a_publisher_whose_thread_could_not_be_started_publishes_later(publisher, monkeypatch):
    app = shop()
    one = publisher(app)

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OutOfResources, match="the thread billhook-publisher cannot be started"):
            one.publish(1)

    assert one.publish(2)
    assert until(lambda: ids_in(app)) == [2]


def test_neither_publishing_nor_stopping_waits_for_a_broker_that_never_answers(publisher, monkeypatch):
    monkeypatch.setattr(publisher_module, "QUEUE_LIMIT", 100)
    monkeypatch.setattr(broker_module, "BROKER_TIMEOUT_SECONDS", 30)
    with black_hole() as broker:
        one = publisher(shop(broker, seconds=60))

        started = time.monotonic()
        taken = [one.publish(number) for number in range(150)]
        published = time.monotonic()
        one.stop()
        stopped = time.monotonic()

    assert taken.count(False) in (49, 50)  # one may be on its way already
    assert published - started < scaled(0.5)
    assert stopped - published < scaled(4)


def test_an_unreachable_broker_is_logged_once(publisher, caplog):
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    one = publisher(shop(f"amqp://guest:secret@127.0.0.1:{port}//"))

    for number in range(3):
        one.publish(number)
    until(lambda: one._failures >= 2, seconds=15)

    told = [record for record in caplog.records if "broker unavailable" in record.message]
    assert [record.levelno for record in told] == [logging.WARNING]
    assert "refused" in told[0].message
    assert "secret" not in caplog.text


def test_a_sweep_that_fails_is_repeated_and_what_is_queued_is_published_meanwhile(
    publisher, caplog, monkeypatch
):
    monkeypatch.setattr(publisher_module, "INBOX_PAUSE_SECONDS", 0.1)
    app, failing = shop(), [True]
    one = publisher(app)

    def sweep(queue_length, publish):
        if failing:
            raise InboxUnavailable("locked")
        publish(42)
        return 60.0

    one.start(sweep)
    until(lambda: "sweep failed, retrying in" in caplog.text)
    one.publish(7)
    assert until(lambda: ids_in(app)) == [7]
    failing.clear()

    assert until(lambda: ids_in(app)) == [42]


def test_stopping_sends_what_waits_and_nothing_is_taken_up_again(publisher):
    app = shop()
    one = publisher(app)
    for number in range(50):
        one.publish(number)

    one.stop()
    one.publish(99)
    one.start()

    assert ids_in(app) == list(range(50))
    assert "billhook-publisher" not in [thread.name for thread in threading.enumerate()]


def test_a_signal_handler_may_stop_the_publisher_while_it_publishes(publisher):
    one = publisher(shop())
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


def test_a_forked_child_publishes_over_a_new_connection(publisher):
    app = shop()
    one = publisher(app)
    one.publish(1)
    assert until(lambda: ids_in(app)) == [1]

    def child(number):
        one.publish(number)
        return repr(until(lambda: ids_in(app))).encode()

    assert in_children(2, child) == [b"[0]", b"[1]"]
    one.publish(2)
    assert until(lambda: ids_in(app)) == [2]


def test_a_task_that_is_routed_by_a_key_has_no_queue_to_ask():
    app = shop()
    app.conf.task_routes = {TASK: {"exchange": "elsewhere", "routing_key": "x", "queue": None}}

    assert CeleryBroker(app).queue_length() == 0
