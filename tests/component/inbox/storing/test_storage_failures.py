"""While storage fails or hangs: one asks, the others are answered at once, and nothing ends for good."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

from billhook.errors import DeadlinePassed, InboxUnavailable, OutOfResources
from billhook.inbox.storing.probe import Probe
from support.inbox_view import change, incoming, open_inbox
from support.postgres import only_sqlite
from support.timeouts import scaled


def test_a_hanging_probe_uses_one_thread_and_holds_later_callers_no_longer_than_the_first():
    gate, writes = threading.Event(), []

    def write():
        writes.append(threading.current_thread())
        gate.wait(20)

    probe = Probe(write)
    with pytest.raises(DeadlinePassed, match=r"no write within 0\.2 s"):
        probe.ask(0.2)
    started = time.monotonic()
    for _ in range(20):
        with pytest.raises(DeadlinePassed):
            probe.ask(0.2)
    seconds = time.monotonic() - started
    gate.set()
    writes[0].join()
    probe.ask(20.0)

    assert seconds < scaled(0.2)
    assert len(writes) == 2  # one hung, shared by all; one afterwards


def test_a_probe_whose_thread_could_not_be_started_is_tried_again(monkeypatch):
    probe, writes = Probe(lambda: writes.append(1)), []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse_to_start)
        with pytest.raises(OutOfResources, match=r"the thread billhook-probe cannot be started"):
            probe.ask(0.2)

    probe.ask(5.0)

    assert writes == [1]


def refuse_to_start(thread):
    raise RuntimeError("can't start new thread")


def test_a_successful_probe_is_cached_for_max_age():
    now, writes = [100.0], []
    probe = Probe(lambda: writes.append(now[0]), monotonic=lambda: now[0])

    for moment in (100.0, 100.5, 100.99, 101.1, 102.0):
        now[0] = moment
        probe.ask(5.0, max_age_seconds=1.0)

    assert writes == [100.0, 101.1]
    probe.ask(5.0)
    assert writes == [100.0, 101.1, 102.0]


def test_a_bad_answer_is_never_given_again():
    answers = [InboxUnavailable("the disk is full"), None]

    def write():
        if (error := answers.pop(0)) is not None:
            raise error

    probe = Probe(write)

    with pytest.raises(InboxUnavailable, match="the disk is full"):
        probe.ask(5.0, max_age_seconds=60.0)
    probe.ask(5.0, max_age_seconds=60.0)

    assert answers == []


@only_sqlite
def test_readiness_is_not_cached_after_a_storage_failure(where, monkeypatch):
    inbox = open_inbox(where, deadline_seconds=2.5)
    monkeypatch.setattr(inbox._committer, "_insert_batch", _fail)
    with contextlib.suppress(InboxUnavailable):
        inbox.put(incoming("before-any-probe"))
    inbox.check_writable(max_age_seconds=60.0)
    change(where, "ALTER TABLE billhook_version RENAME TO lost")
    inbox.check_writable(max_age_seconds=60.0)

    with pytest.raises(InboxUnavailable, match="gone"):
        inbox.put(incoming("after-a-probe"))

    with pytest.raises(InboxUnavailable):
        inbox.check_writable(max_age_seconds=60.0)


def _fail(batch):
    raise InboxUnavailable("gone")
