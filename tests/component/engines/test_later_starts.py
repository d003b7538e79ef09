"""A worker whose polls begin later in the indexes, as they do beside an open transaction on PostgreSQL."""

from __future__ import annotations

import pytest

from billhook.engines import Worker, pacing
from billhook.engines.serial import SerialWorker
from billhook.extension import get_state
from support.apps import inbox_at
from support.engines import noting, send, states
from support.inbox_view import change
from support.processes import until

pytestmark = pytest.mark.usefixtures("inbox_url")


def test_what_lies_before_is_handled_when_a_poll_begins_at_the_beginnings_again(stored_only, monkeypatch):
    monkeypatch.setattr(pacing, "WHOLE_SECONDS", -1.0)
    monkeypatch.setattr(pacing, "WHOLE_FACTOR", 1e9)
    calls = []
    app = stored_only(noting(calls))
    state = get_state(app)
    worker = Worker(state.inbox, state.dispatcher, threads=2, lease_seconds=30)
    keeps_entries = state.inbox.database.keeps_entries

    def polled(*expected):
        """Poll until the deliveries have these states, and three times more; what was called."""
        del calls[:]
        until(lambda: worker._poll_once() is not None and states(app) == [*expected], 30)
        for _ in range(3):
            worker._poll_once()
        return sorted(calls)

    try:
        send(app, 2)
        first = polled("done", "done")
        send(app, 1, first=3)
        polled("done", "done", "done")
        change(inbox_at(app), "DELETE FROM run WHERE delivery_id = 1")
        change(inbox_at(app), "UPDATE delivery SET state = 'received' WHERE id = 1")
        send(app, 1, first=4)
        later = polled("received" if keeps_entries else "done", "done", "done", "done")
        worker._pacing._whole_at = 0.0
        again = polled("done", "done", "done", "done")
    finally:
        worker.detach()
        worker.close()

    assert first == ["PingTest-1", "PingTest-2"]
    if keeps_entries:
        assert (later, again) == (["PingTest-4"], ["PingTest-1"])
    else:
        assert (later, again) == (["PingTest-1", "PingTest-4"], [])


def test_a_worker_of_messages_finds_a_run_that_is_due_for_long(stored_only, monkeypatch):
    monkeypatch.setattr(pacing, "WHOLE_SECONDS", -1.0)
    monkeypatch.setattr(pacing, "WHOLE_FACTOR", 1e9)
    calls = []
    app = stored_only(noting(calls))
    state = get_state(app)
    send(app, 2)
    worker = SerialWorker(state.inbox, state.dispatcher, lease_seconds=30, announce=list, settle_seconds=0.0)
    try:
        for delivery_id in (1, 2):
            worker.handle(delivery_id)
        change(
            inbox_at(app),
            "UPDATE run SET state = 'due', due_at = '2020-01-01 00:00:00' WHERE delivery_id = 1",
        )
        change(inbox_at(app), "UPDATE delivery SET state = 'planned' WHERE id = 1")

        worker.handle(1)
    finally:
        worker.close()

    assert calls == ["PingTest-1", "PingTest-2", "PingTest-1"]
