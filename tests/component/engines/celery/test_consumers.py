"""Messages that no Celery worker consumes: one warning where that is certain, and none otherwise."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import pytest

from billhook import Handlers
from billhook.engines.celery import consumers as consumers_module
from billhook.engines.celery.consumers import LOOK_SECONDS, ConsumerWatch
from billhook.extension import get_state
from billhook.inbox import WorkerRecord
from billhook.inbox.watching.conditions import Facts
from billhook.inbox.watching.judgement import judge
from support.processes import until

NOW = datetime.now(UTC)


class FakeBroker:
    """Answers as workers would, by their process ids."""

    def __init__(self, workers, queue="billing"):
        self.workers, self.queue, self.asked = workers, queue, 0

    def queue_name(self):
        return self.queue

    def ask_workers(self):
        self.asked += 1
        if self.workers is None:
            raise ConnectionResetError("gone")
        return {f"celery@{pid}": names for pid, names in self.workers.items()}, [*self.workers]


class Watched:
    """A watch of an inbox whose workers have these process ids; `own` is what its own worker consumes."""

    def __init__(self, inbox, monkeypatch, caplog, broker, pids, own):
        self.inbox, self.broker, self._caplog, self._moment = inbox, broker, caplog, 1000.0
        monkeypatch.setattr(consumers_module.time, "monotonic", lambda: self._moment)
        for number, pid in enumerate(pids, 1):
            inbox.record_worker(WorkerRecord(f"w{number}", "celery", 1, NOW, host="h", pid=pid), NOW)
        self._watch = ConsumerWatch(broker, inbox, lambda: own)

    def look(self, times, *, is_unclaimed=True):
        """Look so often, as much later as workers are asked again; return the warnings until now."""
        for _ in range(times):
            self._moment += LOOK_SECONDS
            self._watch.look(NOW, is_unclaimed=is_unclaimed)
            self._watch.look(NOW, is_unclaimed=is_unclaimed)
        return [each.getMessage() for each in self._caplog.records if each.levelno == logging.WARNING]


@pytest.fixture
def watched(stored_only, monkeypatch, caplog):
    def make(broker, pids=(1, 2), own=("celery",)):
        return Watched(get_state(stored_only(Handlers())).inbox, monkeypatch, caplog, broker, pids, own)

    return make


def held(inbox, now):
    return [(one.subject, one.text) for one in judge(Facts(inbox, now, "celery")).holding
            if one.condition.name == "no-consumer"]  # fmt: skip


def test_a_queue_that_no_worker_consumes_is_warned_of_once_and_a_condition(watched):
    watch = watched(FakeBroker({1: ["celery"], 2: ["celery", "mail"]}))

    once, later = watch.look(1), watch.look(4)

    assert once == []  # a worker that is restarted is back by the next time
    assert [text.partition(":")[0] for text in later] == [
        "no Celery worker consumes the queue billing, which billhook.handle is routed to"
    ]
    assert watch.broker.asked == 5  # and not at every sweep
    watch.inbox._counts.close()
    assert held(watch.inbox, NOW) == [("billing", "no Celery worker consumes the queue billing")]
    assert held(watch.inbox, NOW + timedelta(seconds=50)) != []
    assert held(watch.inbox, NOW + timedelta(seconds=70)) == []


def test_it_is_warned_of_again_if_it_was_consumed_meanwhile(watched):
    watch = watched(FakeBroker({1: ["celery"], 2: []}))
    watch.look(3)
    watch.broker.workers = {1: ["celery"], 2: ["billing"]}
    watch.look(1)
    watch.broker.workers = {1: ["celery"], 2: []}

    assert len(watch.look(1)) == 1
    assert len(watch.look(3)) == 2


@pytest.mark.parametrize(
    ("workers", "pids", "own", "queue"),
    [
        ({1: ["celery"], 2: ["billing"]}, (1, 2), ("celery",), "billing"),
        ({1: ["celery"]}, (1, 2), ("celery",), "billing"),  # a busy one of the pool solo
        ({1: ["celery"], 7: ["mail"]}, (1, 2), ("celery",), "billing"),  # beside one of another program
        ({1: ["celery"]}, (1, 1), ("celery",), "billing"),  # in containers
        ({}, (1,), ("celery",), "billing"),
        (None, (1,), ("celery",), "billing"),  # the broker is away
        ({1: ["celery"]}, (1,), ("celery", "billing"), "billing"),
        ({1: ["celery"]}, (1,), None, "billing"),  # it connects again
        ({1: ["celery"]}, (1,), ("celery",), None),  # routed by exchange and routing key
    ],
)
def test_without_certainty_there_is_no_warning(watched, workers, pids, own, queue):
    watch = watched(FakeBroker(workers, queue), pids, own)

    assert watch.look(5) == []
    watch.inbox._counts.close()
    assert held(watch.inbox, NOW) == []


def test_workers_are_asked_only_while_a_message_is_sent_again_in_vain(watched):
    watch = watched(FakeBroker({1: ["celery"]}), pids=(1,))

    watch.look(1)
    watch.look(1, is_unclaimed=False)
    warned = watch.look(1)

    assert (watch.broker.asked, warned) == (2, [])


def test_a_worker_that_stopped_in_order_is_not_waited_for(watched):
    watch = watched(FakeBroker({1: ["celery"]}))
    watch.inbox.record_stop("w2")

    until(lambda: len(watch.look(2)) == 1)
