"""What a supervisor records of its workers that died, and has told of those that never started."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from billhook.cli.deaths import MARGIN_SECONDS, DeathRecorder
from billhook.engines.watch import Watch
from billhook.errors import InboxUnavailable
from billhook.inbox.watching.issues import list_issues
from support.inbox_view import rows
from support.processes import until

ROW = "SELECT handlers, died_at IS NOT NULL FROM billhook_worker"


@pytest.fixture
def ended():
    """The id of a process that has ended, and when it began."""
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid, began


def die(recorder, times, *, had_started):
    """Record the deaths of so many children, one after another."""
    for _ in range(times):
        time.sleep(2 * MARGIN_SECONDS)
        began = time.monotonic()
        process = subprocess.Popen([sys.executable, "-c", ""])
        process.wait()
        recorder.record(process.pid, began, had_started)


def test_workers_that_die_before_they_have_started_are_told_by_their_parent(inbox, where):
    watch = Watch(inbox, inbox.now)
    die(DeathRecorder(inbox, watch), 3, had_started=False)

    until(lambda: list_issues(inbox), 20)
    (one,) = list_issues(inbox)

    text = "workers die again and again: 3 in 1 min, before they have loaded the handlers"
    assert one.title == text
    assert rows(where, ROW) == [(None, 1)] * 3


def test_those_that_had_started_are_left_to_their_successors(inbox, where):
    watch = Watch(inbox, inbox.now)
    die(DeathRecorder(inbox, watch), 3, had_started=True)

    until(lambda: len(rows(where, ROW)) == 3, 20)
    assert list_issues(inbox) == []


def test_an_inbox_that_is_away_ends_no_recorder(inbox, where, ended, monkeypatch, caplog):
    recorder = DeathRecorder(inbox, Watch(inbox, inbox.now))

    def away(**_):
        raise InboxUnavailable("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr(inbox.database, "write", away)
        recorder.record(*ended, True)
        until(lambda: "could not record that a worker died: the database is away" in caplog.text, 20)

    recorder.record(*ended, True)

    until(lambda: rows(where, ROW) == [(None, 1)], 20)
