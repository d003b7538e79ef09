"""Whoever lives looks for issues and tells people: a worker, a web process, or a timer."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from billhook.basics.process_identity import own_process
from billhook.engines import maintenance, watch
from billhook.engines.maintenance import Maintenance, MaintenanceOptions, WorkerRegistration
from billhook.engines.watch import WEB_PATIENCE, Watch
from billhook.errors import InboxUnavailable
from billhook.extension import get_state
from billhook.inbox import WorkerRecord
from billhook.inbox.watching.deaths import record_deaths
from billhook.inbox.watching.issues import list_issues
from billhook.inbox.watching.notifications import looked_at, record_look
from support.handler_lists import lists_of
from support.inbox_view import NOON
from support.processes import until
from support.timeouts import scaled

SECOND = timedelta(seconds=1)


def lose_a_worker(inbox, at):
    inbox.record_worker(WorkerRecord("host:1:x", "worker", 1, at), at)


def titles(inbox):
    return [one.title for one in list_issues(inbox)]


def test_the_first_look_of_a_process_is_at_once_however_short_its_life(inbox, frozen_clock):
    lose_a_worker(inbox, NOON - timedelta(minutes=2))

    made = Watch(inbox, frozen_clock.now)
    made.start()

    until(lambda: titles(inbox) == ["no worker is alive"], 20)
    made.stop()


def test_the_pause_after_a_look_is_nine_times_as_long_as_the_look_took(inbox, frozen_clock, monkeypatch):
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(watch, "update_issues", lambda *_, **__: time.sleep(0.05))

    assert Watch(inbox, frozen_clock.now).look_and_send() >= 9 * 0.05


@pytest.mark.parametrize(("seconds", "looks"), [(0, False), (29, False), (30, True), (3_600, True)])
def test_a_web_process_looks_while_nobody_else_does(inbox, frozen_clock, seconds, looks):
    lose_a_worker(inbox, NOON - timedelta(minutes=2))
    record_look(inbox, NOON)
    frozen_clock.advance(seconds=seconds)
    made = Watch(inbox, frozen_clock.now)
    made._patience = WEB_PATIENCE

    made.look_and_send()

    assert titles(inbox) == (["no worker is alive"] if looks else [])
    assert (looked_at(inbox) == frozen_clock.now()) is (looks or not seconds)


def test_a_worker_looks_in_vain_for_web_processes_until_it_has_lived_for_30_seconds(
    inbox, frozen_clock, monkeypatch
):
    """Workers that die again and again look at each start: nobody else would look any more."""
    before, seconds = looked_at(inbox), [100.0]
    monkeypatch.setattr(watch.time, "monotonic", lambda: seconds[0])
    made = Watch(inbox, frozen_clock.now)
    monkeypatch.setattr(made, "_work", lambda: None)
    made.start()
    for after, counts in ((0.0, False), (29.0, False), (30.0, True)):
        seconds[0] = 100.0 + after
        made.look_and_send()
        assert (looked_at(inbox) == before) is not counts


def test_a_web_process_goes_on_looking_until_another_process_does(inbox, frozen_clock):
    first, second = Watch(inbox, frozen_clock.now), Watch(inbox, frozen_clock.now)
    first._patience = second._patience = WEB_PATIENCE
    first.look_and_send()
    lose_a_worker(inbox, NOON - timedelta(minutes=2))
    frozen_clock.advance(seconds=10)
    second.look_and_send()
    assert titles(inbox) == []

    first.look_and_send()

    assert titles(inbox) == ["no worker is alive"]


def test_a_web_process_that_begins_to_handle_looks_at_once(inbox, frozen_clock):
    """Its watch runs already, and would look in ten seconds."""
    made = Watch(inbox, frozen_clock.now)
    made.start(WEB_PATIENCE)
    lose_a_worker(inbox, NOON - timedelta(minutes=2))

    made.start()

    until(lambda: made.is_first_look_over, 5)
    assert titles(inbox) == ["no worker is alive"]
    made.stop()


class Slow:
    """Stands for a notifier that takes its time."""

    def __init__(self):
        self.goes_on = threading.Event()

    def send_due(self):
        self.goes_on.wait(30)

    def stop(self):
        self.goes_on.set()


def maintained(inbox, clock, notifier=None):
    made = Watch(inbox, clock.now, notifier)
    registration = WorkerRegistration(inbox, "the next", "worker", lists_of(inbox))
    return Maintenance(inbox, MaintenanceOptions(watch=made), registration)


def test_a_worker_that_starts_where_others_died_returns_when_that_is_told(inbox, frozen_clock):
    """Of each that died before a process of this machine: the first run may end this one too."""
    process = own_process()._replace(pid_ticks=1)._asdict()
    for seconds in (-9, -6, -3):
        at = NOON + seconds * SECOND
        inbox.record_worker(WorkerRecord(f"died {seconds}", "worker", 1, at, **process), at)
        record_deaths(inbox, at + SECOND)
    made = maintained(inbox, frozen_clock)

    made.start(NOON)

    (title,) = titles(inbox)
    assert title.startswith("workers die again and again: 3 in 1 min")
    made.close()


@pytest.mark.parametrize(
    ("died", "stopping", "seconds"), [(True, False, 0.5), (True, True, 0.0), (False, False, 0.0)]
)
def test_a_start_waits_for_no_message_longer_than_its_limit(
    inbox, frozen_clock, monkeypatch, died, stopping, seconds
):
    monkeypatch.setattr(maintenance, "FIRST_LOOK_SECONDS", 0.5)
    if died:
        process = own_process()._replace(pid_ticks=1)._asdict()
        inbox.record_worker(WorkerRecord("died", "worker", 1, NOON, **process), NOON)
    slow = Slow()
    made = maintained(inbox, frozen_clock, slow)

    began = time.monotonic()
    made.start(NOON, lambda: stopping)
    took = time.monotonic() - began
    slow.stop()

    assert took >= seconds
    assert took < seconds + scaled(0.5)
    assert inbox.worker_seen_at() == NOON  # known before it takes a run
    made.close()


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


def test_an_inbox_that_cannot_be_read_is_told_without_it_and_so_is_its_end(
    inbox, frozen_clock, monkeypatch, caplog
):
    told = Told()
    made = Watch(inbox, frozen_clock.now, told, told)

    def away(**_):
        raise InboxUnavailable("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr(inbox.database, "read", away)
        pauses = [made.look_and_send() for _ in range(3)]
    made.look_and_send()

    assert told.calls == ["InboxUnavailable"] * 3 + ["readable", "send"]
    assert pauses == [watch.LOOK_SECONDS] * 3  # somebody waits: it is repeated in seconds
    assert caplog.text.count("could not look for issues") == 1


def test_what_fails_ends_no_watch(inbox, frozen_clock, monkeypatch, caplog):
    made = Watch(inbox, frozen_clock.now, Told(ValueError("a defect")), Told(OSError("a defect too")))
    made.look_and_send()
    assert "could not look for issues" in caplog.text

    def away(**_):
        raise InboxUnavailable("the database is away")

    monkeypatch.setattr(inbox.database, "read", away)
    made.look_and_send()
    assert "could not tell that the inbox cannot be read" in caplog.text


def test_it_can_be_stopped_and_started_again(inbox, frozen_clock):
    told = Told()
    made = Watch(inbox, frozen_clock.now, told, told)
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
