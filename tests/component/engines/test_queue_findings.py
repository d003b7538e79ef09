"""What `doctor` says of a Celery app's broker, and of workers that do not answer."""

from __future__ import annotations

import pytest

from billhook import Billhook
from billhook.doctor.examined import Setup
from billhook.doctor.queues import about_queues
from billhook.engines.celery.broker import CeleryBroker
from billhook.extension import get_state
from billhook.inbox import WorkerRecord
from support.engines import celery_app


@pytest.fixture
def found(plain_app):
    """Returns the level, code and text of what is found for a Celery app with a broker."""

    def ask(broker, *pids, **config):
        app = plain_app(BILLHOOK_ENGINE="celery")
        app.extensions["celery"] = celery_app(broker, **config)
        Billhook().init_app(app)
        state = get_state(app)
        now = state.dispatcher.clock.now()
        for pid in pids:
            state.inbox.record_worker(WorkerRecord(f"w{pid}", "celery", 1, now, pid=pid), now)
        return [(one.level, one.code, one.what) for one in about_queues(Setup.of_app(app))]

    return ask


def test_a_broker_that_is_away_is_named_without_its_password(found):
    ((level, code, text),) = found("redis://:geheim@127.0.0.1:1/0", 1)

    assert (level, code) == ("warning", "celery-broker")
    assert "geheim" not in text


def test_workers_that_do_not_answer_are_a_note_and_none_at_all_is_another_finding(found):
    text = "no Celery worker says which queues it consumes"

    assert found("memory://") == []
    assert found("memory://", 1) == [("note", "celery-silent", text)]


@pytest.mark.parametrize(
    ("consumed", "pids", "expected"),
    [
        (["mail"], (1,), ("error", "no Celery worker consumes the queue billing")),
        (
            ["mail"],
            (1, 2),
            ("warning", "none of the Celery workers that answered consumes the queue billing"),
        ),
        (["mail", "billing"], (1,), None),
    ],
)
def test_a_queue_without_a_consumer_is_an_error_where_all_answer(
    found, monkeypatch, consumed, pids, expected
):
    monkeypatch.setattr(CeleryBroker, "ask_workers", lambda _: ({"celery@a": consumed}, [1]))

    findings = found("memory://", *pids, task_routes={"billhook.*": {"queue": "billing"}})

    told = [(level, text.partition(",")[0]) for level, code, text in findings if code == "no-consumer"]
    assert told == [] if expected is None else told == [expected]
