"""Whoever lives looks for issues and tells people: a worker, a web process, or a timer."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from billhook.engines import watch
from billhook.engines.watch import WEB_PATIENCE, Watch
from billhook.errors import InboxUnavailable
from billhook.extension import get_state
from billhook.inbox import WorkerRecord
from billhook.inbox.issues import list_issues
from billhook.inbox.notifications import looked_at, record_look
from support.inbox_view import NOON
from support.processes import until

SECOND = timedelta(seconds=1)


def lose_a_worker(inbox, at):
    inbox.record_worker(WorkerRecord("host:1:x", "worker", 1, at), at)


def titles(inbox):
    return [one.title for one in list_issues(inbox)]


def test_the_first_look_of_a_process_is_at_once_however_short_its_life(inbox, clock):
    lose_a_worker(inbox, NOON - timedelta(minutes=2))

    made = Watch(inbox, clock.now)
    made.start()

    until(lambda: titles(inbox) == ["no worker is alive"], 20)
    made.stop()


def test_the_pause_after_a_look_is_nine_times_as_long_as_the_look_took(inbox, clock, monkeypatch):
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(watch, "update_issues", lambda *_, **__: time.sleep(0.05))

    assert Watch(inbox, clock.now).look_and_send() >= 9 * 0.05


@pytest.mark.parametrize(("seconds", "looks"), [(0, False), (44, False), (45, True), (3_600, True)])
def test_a_web_process_looks_while_nobody_else_does(inbox, clock, seconds, looks):
    lose_a_worker(inbox, NOON - timedelta(minutes=2))
    record_look(inbox, NOON)
    clock.advance(seconds=seconds)
    made = Watch(inbox, clock.now)
    made._patience = WEB_PATIENCE

    made.look_and_send()

    assert titles(inbox) == (["no worker is alive"] if looks else [])
    assert (looked_at(inbox) == clock.now()) is (looks or not seconds)


def test_a_look_is_recorded_every_15_seconds_and_when_the_clock_was_ahead(inbox):
    for seconds, recorded in ((0, 0), (5, 0), (14, 0), (15, 15), (10, 10)):
        record_look(inbox, NOON + seconds * SECOND)
        assert looked_at(inbox) == NOON + recorded * SECOND


class Told:
    """Stands for the notifiers; `fails` is raised when it is to send."""

    def __init__(self, fails=None):
        self.calls, self.fails = [], fails

    def send_due(self):
        self.calls.append("send")
        if self.fails is not None:
            raise self.fails

    def unreadable(self, error):
        self.calls.append(type(error).__name__)
        if self.fails is not None:
            raise self.fails

    def readable(self):
        self.calls.append("readable")

    def stop(self):
        self.calls.append("stop")


def test_an_inbox_that_cannot_be_read_is_told_without_it_and_so_is_its_end(inbox, clock, monkeypatch, caplog):
    told = Told()
    made = Watch(inbox, clock.now, told, told)

    def away(**_):
        raise InboxUnavailable("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr(inbox.database, "read", away)
        pauses = [made.look_and_send() for _ in range(3)]
    made.look_and_send()

    assert told.calls == ["InboxUnavailable"] * 3 + ["readable", "send"]
    assert pauses == [watch.LOOK_SECONDS] * 3  # somebody waits: it is repeated in seconds
    assert caplog.text.count("could not look for issues") == 1


def test_what_fails_ends_no_watch(inbox, clock, monkeypatch, caplog):
    made = Watch(inbox, clock.now, Told(ValueError("a defect")), Told(OSError("a defect too")))
    made.look_and_send()
    assert "could not look for issues" in caplog.text

    def away(**_):
        raise InboxUnavailable("the database is away")

    monkeypatch.setattr(inbox.database, "read", away)
    made.look_and_send()
    assert "could not tell that the inbox cannot be read" in caplog.text


def test_it_can_be_stopped_and_started_again(inbox, clock):
    told = Told()
    made = Watch(inbox, clock.now, told, told)
    for number in (1, 2):
        made.start(WEB_PATIENCE)
        made.start(WEB_PATIENCE)
        made.stop()
        made.stop()
        assert told.calls.count("stop") == number


def test_a_web_process_with_addresses_tells_that_the_only_worker_is_gone(
    app_with, monkeypatch, hook, notify_file
):
    monkeypatch.setattr(watch, "WEB_SECONDS", 0.05)
    app = app_with(BILLHOOK_ENGINE="worker", BILLHOOK_NOTIFY_FILE=notify_file(hook.url))
    state = get_state(app)
    lose_a_worker(state.inbox, datetime.now(UTC) - timedelta(minutes=2))

    state.start()

    until(lambda: hook.titles == ["[billhook] critical: no worker is alive"], 30)
