"""Several processes sweep one inbox: each delivery has as many messages as if one did, and none waits."""

from __future__ import annotations

import random
from collections import Counter, deque

import pytest

from billhook import Handlers
from billhook.engines.messages import sweeper as sweeper_module
from billhook.engines.messages.sweeper import MAX_TURN_SECONDS, Sweeper, turn_at
from billhook.events import CustomerCreated, InvoicePaymentStatusChanged, PingTest, sample
from billhook.extension import get_state
from support.apps import deliver
from support.engines import FOREIGN, celery_engine, states, status_changed
from support.runs import settle
from support.sweeping import Watch

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("inbox_url")]
DELIVERIES = 20
TURNS = [1, 5, 10, 20, 40]
"""The seconds from one turn to the next."""


@pytest.fixture
def watch_of(stored_only, frozen_clock, monkeypatch):
    """Makes a Watch of an app with these handlers."""
    return lambda handlers: Watch(stored_only(handlers), frozen_clock, monkeypatch)


@pytest.fixture
def watch(watch_of):
    return watch_of(Handlers())


def limiting(at_most):
    handlers = Handlers()
    handlers.on(PingTest, name="note", at_most=at_most)(lambda event: None)
    return handlers


def messages(watch, sweepers, pauses):
    """Which process sent which delivery after each pause: a dictionary of lists; each sweeps twice."""
    turns = []
    for pause in pauses:
        watch.pass_by(pause)
        sent = {}
        for number, sweeper in enumerate([*sweepers, *sweepers]):
            for delivery_id in watch.sweep(sweeper):
                sent.setdefault(delivery_id, []).append(number % len(sweepers))
        turns.append(sent)
    return turns


# --- the messages of a delivery -----------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_each_turn_of_a_delivery_is_taken_once_however_many_sweep(watch, workers):
    sweepers = watch.share(workers)
    ids = [watch.put(str(number)) for number in range(DELIVERIES)]

    turns = messages(watch, sweepers, TURNS)

    assert [{*map(len, sent.values())} for sent in turns] == [{1}] * len(TURNS)
    assert [sorted(sent) for sent in turns] == [ids] * len(TURNS)
    # Each worker has its share, and no delivery depends on one of them.
    by_worker = Counter(number for sent in turns for (number,) in sent.values())
    assert len(by_worker) == workers
    first, second = turns[:2]
    assert all((first[each] == second[each]) == (workers == 1) for each in ids)


def test_control_workers_that_do_not_know_of_each_other_send_a_message_each(watch):
    watch.put("k")
    sweepers = [watch.sweeper, *(Sweeper(watch.inbox, watch.sweeper.dispatcher) for _ in range(4))]

    assert [*map(len, messages(watch, sweepers, TURNS)[0].values())] == [5]


@pytest.mark.parametrize("workers", [1, 3])
def test_a_retry_has_one_message_at_once_however_long_the_queue_is(watch, workers):
    sweepers = watch.share(workers)
    watch.plan(watch.put("k"), "h")
    watch.claim()
    watch.queued = 10_000

    turns = messages(watch, sweepers, [29, 1, 30, 60])  # its lease ends after 30 s

    assert [[*map(len, sent.values())] for sent in turns] == [[], [1], [], []]


@pytest.mark.parametrize("workers", [1, 3])
def test_nothing_is_sent_again_while_the_queue_has_a_message_for_each(watch, workers):
    sweepers = watch.share(workers)
    first, *_ = (watch.put(str(number)) for number in range(3))
    watch.queued = 3
    turns = messages(watch, sweepers, [1, 30, 60])
    watch.queued = 0
    room = messages(watch, sweepers, [1])
    watch.queued = 10_000  # of other tasks, too, and there are always as many
    until_an_hour = messages(watch, sweepers, [MAX_TURN_SECONDS - 93, 1])

    assert turns == [{}] * 3
    assert {*map(len, room[0].values())} == {1}
    assert [{*map(len, sent.values())} for sent in until_an_hour] == [set(), {1}]
    assert len(until_an_hour[1]) == 3
    assert first in room[0]


def test_of_what_waits_only_so_many_are_sent_again_as_the_queue_has_messages_too_few(watch):
    ids = [watch.put(str(number)) for number in range(5)]
    watch.queued = 3
    watch.pass_by(1)
    at_first = watch.sweep()
    watch.pass_by(5)

    assert (at_first, watch.sweep()) == ([], ids[:2])


def test_a_backlog_longer_than_a_sweep_reads_is_not_sent_again_as_it_moves_up(watch, monkeypatch):
    monkeypatch.setattr(sweeper_module, "LIMIT", 2)
    for number in range(4):
        watch.plan(watch.put(str(number)), "h")
    watch.queued = 4
    watch.pass_by(60)
    sent = []
    for _ in range(2):
        sent += watch.sweep()
        settle(watch.inbox, watch.claim(), owner="worker")

    assert sent == []


@pytest.mark.parametrize("engine_of", FOREIGN.values(), ids=FOREIGN)
def test_two_workers_of_an_engine_share_the_deliveries(stored_only, frozen_clock, monkeypatch, engine_of):
    app, sweeps, sent = stored_only(Handlers()), [], Counter()
    watch = Watch(app, frozen_clock, monkeypatch)
    for engine in (engine_of(app), engine_of(app)):
        monkeypatch.setattr(engine._publisher, "start", lambda sweep, _: sweeps.append(sweep))
        engine.register()
        engine.start_sweeping()
    ids = [watch.put(str(number)) for number in range(DELIVERIES)]
    watch.pass_by(1)
    for sweep in sweeps:
        sweep(lambda: 0, lambda delivery_id: sent.update([delivery_id]))

    assert sent == dict.fromkeys(ids, 1)


# --- workers that come and go -------------------------------------------------------------------------


def test_what_a_worker_does_not_send_another_one_sends_at_the_next_turn(watch):
    alive, hangs = watch.share(2)
    ids = [watch.put(str(number)) for number in range(DELIVERIES)]

    first, second = messages(watch, [alive], [1, 5])
    watch.lose(hangs)
    watch.pass_by(60)  # it is not seen for a minute: all is the other's
    late = [watch.put(str(number)) for number in range(100, 100 + DELIVERIES)]
    (third,) = messages(watch, [alive], [1])

    assert 0 < len(first) < DELIVERIES
    assert {*first, *second} == {*ids}
    assert not {*first} & {*second}
    assert {*late} <= {*third}


def test_a_worker_that_comes_takes_a_share_and_no_delivery_is_sent_twice(watch):
    (one,) = watch.share(1)
    ids = [watch.put(str(number)) for number in range(DELIVERIES)]
    (before,) = messages(watch, [one], [1])
    sweepers = [one, *watch.share(1)]
    watch.queued = 100
    later = [watch.put(str(number)) for number in range(100, 100 + DELIVERIES)]
    for each in later:
        watch.plan(each, "h")
        watch.claim(only=each)

    after, retries = messages(watch, sweepers, [1, 29])

    assert ([*before], after) == (ids, {})
    assert {*map(len, retries.values())} == {1}
    assert {number for (number,) in (retries[each] for each in later)} == {0, 1}


# --- limits -------------------------------------------------------------------------------------------


def test_one_process_serves_a_handler_with_a_limit_and_looks_often_meanwhile(watch_of):
    watch = watch_of(limiting(1))
    sweepers = watch.share(3)
    for number in range(4):
        watch.plan(watch.put(str(number)), "note")
    sent, pauses = [], []
    for _ in range(4):
        watch.pass_by(0.1)
        for number, sweeper in enumerate(sweepers):
            for delivery_id in watch.sweep(sweeper):
                sent.append((number, delivery_id))
                pauses.append(watch.pause)
        settle(watch.inbox, watch.claim(), owner="worker")
    server, _ = sent[0]
    pauses.append(watch.sweep(sweepers[server]) or watch.pause)
    watch.pass_by(2)
    pauses.append(watch.sweep(sweepers[server]) or watch.pause)

    assert [delivery_id for _, delivery_id in sent] == [1, 2, 3, 4]
    assert {number for number, _ in sent} == {server}
    assert pauses == [*[0.1] * 5, 2.0]


def test_a_run_that_has_no_room_for_a_moment_is_not_sent_again_for_that(watch_of):
    watch = watch_of(limiting(1))
    first, other = (watch.put(each) for each in "ab")
    watch.plan(first, "note")
    watch.plan(other, "note")
    watch.queued = 10
    watch.pass_by(60)  # as after a pause
    sent = [watch.sweep()]
    claimed = watch.claim(only=other)
    sent.append(watch.sweep())
    settle(watch.inbox, claimed, owner="worker")

    assert [*sent, watch.sweep()] == [[first], [], []]


# --- all together -------------------------------------------------------------------------------------


class Lossy:
    """A queue whose messages are lost, come twice, or are dropped when they have waited too long."""

    def __init__(self, chance):
        self.chance, self.waiting, self.second = chance, deque(), 0
        self.lost = self.twice = self.dropped = 0

    def extend(self, ids):
        for delivery_id in ids:
            fate = self.chance.random()
            self.lost += fate < 0.3
            self.twice += fate > 0.85
            copies = 0 if fate < 0.3 else 2 if fate > 0.85 else 1
            self.waiting += [(self.second, delivery_id)] * copies

    def take(self):
        """The next message's delivery; None without one."""
        while self.waiting:
            since, delivery_id = self.waiting.popleft()
            if self.second - since <= 6:
                return delivery_id
            self.dropped += 1
        return None


@pytest.mark.parametrize(("seed", "workers"), [(1, 1), (2, 3)])
def test_each_run_is_called_as_often_as_its_attempts_whatever_becomes_of_messages(
    stored_only, frozen_clock, monkeypatch, seed, workers
):
    handlers, calls = Handlers(), Counter()
    failing = {"plain": 0, "flaky": 2, "ordered": 1}

    def noted(name):
        def handle(event, delivery):
            calls[name, delivery.key] += 1
            if delivery.attempt <= failing[name]:
                raise ValueError("as it should")

        return handle

    handlers.on(PingTest, CustomerCreated, name="plain")(noted("plain"))
    handlers.on(CustomerCreated, name="flaky")(noted("flaky"))
    handlers.on(InvoicePaymentStatusChanged, name="ordered", ordered_by="invoice_id")(noted("ordered"))
    app = stored_only(handlers, BILLHOOK_RETRY_SCHEDULE_SECONDS=(3, 3, 3))
    watch, queue, sent = Watch(app, frozen_clock, monkeypatch), Lossy(random.Random(seed)), Counter()
    sweepers, engine = watch.share(workers), celery_engine(app, queue)
    bodies = {
        "PingTest": b"{}",
        "CustomerCreated": sample(CustomerCreated).to_json(),
        "InvoicePaymentStatusChanged": status_changed(),
    }
    for number in range(15):
        event_type = [*bodies][number % 3]
        assert deliver(app, bodies[event_type], event_type, message_id=f"{event_type} {number}").json
        queue.extend([number + 1])
    while {*states(app)} & {"received", "planned"}:
        queue.second += 1
        assert queue.second < 600, "something waits for ever"
        watch.pass_by(1)
        for sweeper in sweepers:
            watch.queued = len(queue.waiting)
            published = watch.sweep(sweeper)
            sent.update(published)
            queue.extend(published)
        if (delivery_id := queue.take()) is not None:
            engine.execute(delivery_id)

    assert queue.lost > 0 < queue.twice
    assert queue.dropped > 0
    assert {(name, count) for (name, _), count in calls.items()} == {
        (name, failures + 1) for name, failures in failing.items()
    }
    assert len(calls) == 20
    # Unread, and then before each attempt of any of its runs, a delivery has its turns.
    turns = turn_at(queue.second) + 1
    assert max(sent.values()) <= turns * (1 + 3 + 1)
    assert get_state(app).inbox is watch.inbox
