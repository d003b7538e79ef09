"""Handlers that are paused, by an operator or after failures. The database is asked on both kinds."""

from __future__ import annotations

import logging

import pytest

from billhook import Handlers, signals
from billhook.engines.messages.sweeper import Sweeper
from billhook.errors import Discard
from billhook.events import PingTest
from billhook.extension import get_state
from billhook.inbox import DeliveryFilter
from billhook.inbox.reading.deliveries import count, page, with_runs
from support.apps import inbox_at
from support.engines import celery_engine, inbox_of, noting, plan, send, swept
from support.inbox_view import change, rows


def shown(inbox):
    """The status of each delivery and of its runs, as operators see them."""
    listed = with_runs(inbox, list(reversed(page(inbox, DeliveryFilter(), 9))))
    return [(one.status, [each.status for each in one.runs]) for one in listed]


# --- pause --------------------------------------------------------------------------------------------


def test_pausing_twice_keeps_the_time_and_resuming_twice_does_nothing(stored_only, frozen_clock):
    app = stored_only(noting([]))
    inbox, now = inbox_of(app)
    assert inbox.pause_handler("note", "first", now)
    frozen_clock.advance(seconds=60)
    assert not inbox.pause_handler("note", "second", frozen_clock.now())
    assert [(one.since, one.why) for one in inbox.paused_handlers()] == [(now, "second")]
    inbox.pause_handler("other", None, now)

    assert inbox.resume_handler("note")
    assert not inbox.resume_handler("note")
    assert not inbox.resume_handler("unheard of")
    assert [one.name for one in inbox.paused_handlers()] == ["other"]
    assert inbox.pause_handler("note", None, now)


@pytest.mark.usefixtures("inbox_url")
@pytest.mark.parametrize(("paused", "stored_under"), [("note", "former"), ("former", "note")])
def test_a_pause_under_one_name_of_a_handler_is_one_under_all(stored_only, paused, stored_under):
    calls = []
    app = stored_only(noting(calls, aliases=["former"]))
    inbox, now = inbox_of(app)
    send(app, 2)
    plan(app, now)
    change(inbox_at(app), "UPDATE run SET handler = ?", stored_under)
    inbox.pause_handler(paused, None, now)

    get_state(app).handle_due()
    assert calls == []

    inbox.resume_handler(paused)
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


@pytest.mark.slow
def test_celery_publishes_what_a_resume_releases_though_the_queue_is_not_empty(stored_only, frozen_clock):
    app = stored_only(noting([]))
    state = get_state(app)
    inbox, now = inbox_of(app)
    executor = celery_engine(app)
    sweeper = Sweeper(inbox, state.dispatcher)
    inbox.pause_handler("note", None, now)
    send(app, 2)
    executor.execute(1)
    executor.execute(2)
    frozen_clock.advance(seconds=60)
    inbox.resume_handler("note")

    assert swept(sweeper, queued=100)[0] == [1, 2]
    assert swept(sweeper, queued=100)[0] == []


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
    inbox, _ = inbox_of(app)
    send(app, 20)

    get_state(app).handle_due()
    assert len(calls) == 9
    inbox.resume_handler("note")
    get_state(app).handle_due()

    assert len(calls) == 20
    assert inbox.paused_handlers() == []


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


@pytest.mark.usefixtures("inbox_url")
def test_a_lowered_number_of_failures_counts_those_before(stored_only, frozen_clock):
    calls = []
    failing = noting(calls, failing=range(1, 100), pause_after=5)
    app = stored_only(failing)
    inbox, _ = inbox_of(app)
    send(app, 4)
    get_state(app).handle_due()
    assert inbox.paused_handlers() == []

    frozen_clock.advance(seconds=86_400)
    get_state(stored_only(noting(calls, failing=range(1, 100), pause_after=2))).handle_due()

    assert ([one.name for one in inbox.paused_handlers()], len(calls)) == (["note"], 5)
