"""What must not happen to a run when workers die, sleep past their leases, or meet broken code."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta

from billhook import Handlers, Retry
from billhook.clock import FrozenClock
from billhook.events import EVENT_TYPES, Event, PingTest
from billhook.extension import get_state
from support.apps import inbox_at
from support.inbox_view import close_inboxes, incoming, open_inbox
from support.processes import until

NOON = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)
# --- leases ---------------------------------------------------------------------------------------


def test_a_queued_run_whose_lease_ran_out_is_not_called(app_with):
    clock, handlers, calls, gate = FrozenClock(NOON), Handlers(), [], threading.Event()

    @handlers.on(PingTest)
    def slow(event, delivery):
        calls.append(delivery.key)
        gate.wait(10)

    app = app_with(handlers=[handlers], clock=clock, BILLHOOK_ENGINE="worker")
    app_state = get_state(app)
    for number in range(3):
        app_state.inbox.put(incoming(f"k{number}"))
    worker = app_state.worker(1)
    worker._leases.window = 3  # as after a run of quick handlers: two are claimed beyond the one thread
    thread = threading.Thread(target=worker.run, kwargs={"grace_seconds": 2})
    thread.start()

    until(lambda: calls == ["k0"])
    clock.advance(seconds=60)  # this process slept; in the meantime another has run everything
    with open_inbox(inbox_at(app)).transaction("another") as transaction:  # of a process of its own
        others = transaction.claim(10, clock.now(), clock.now() + timedelta(hours=1))
    gate.set()
    time.sleep(0.3)
    worker.stop()
    thread.join()
    app_state.close()
    close_inboxes()

    assert len(others) == 3
    assert calls == ["k0"]


# --- broken code ----------------------------------------------------------------------------------


class RateLimited(Retry):
    """A user's own, which forgot to call its parent."""

    def __init__(self, wait):
        self.wait = wait


class Worded(Retry):
    """A user's own, which says it in words."""

    def __init__(self):
        super().__init__()
        self.after_seconds = "a minute"


def test_a_broken_kind_of_retry_is_retried_by_the_schedule(app_with):
    handlers, calls = Handlers(), []

    @handlers.on(PingTest, retry=[0, 0, 0, 0])
    def h(event, delivery):
        calls.append(delivery.attempt)
        raise Worded() if delivery.attempt % 2 else RateLimited(5)

    app = app_with(handlers=[handlers], BILLHOOK_ENGINE="worker")
    app_state = get_state(app)
    app_state.inbox.put(incoming("k"))

    app_state.handle_due()
    app_state.close()

    assert calls == [1, 2, 3, 4, 5]


def test_on_any_handles_types_declared_later(app_with, monkeypatch):
    handlers, heard = Handlers(), []

    @handlers.on_any()
    def h(event, delivery):
        heard.append(delivery.event_type)

    class BrandNewThing(Event):
        """Declared after the decorator ran."""

    try:
        app = app_with(handlers=[handlers], BILLHOOK_ENGINE="worker")
        app_state = get_state(app)
        app_state.inbox.put(incoming("k", event_type="BrandNewThing"))
        app_state.handle_due()
        app_state.close()
    finally:
        import billhook.events.base as base

        base._registered.pop("BrandNewThing")

    assert heard == ["BrandNewThing"]
    assert "BrandNewThing" not in EVENT_TYPES
