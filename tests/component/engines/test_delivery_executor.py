"""One delivery from its message to its end, as a Celery worker does it; leases are kept meanwhile."""

from __future__ import annotations

import re
import threading
import time
from datetime import timedelta

import pytest

from billhook import Handlers
from billhook.clock import SystemClock
from billhook.engines.celery import executor
from billhook.engines.celery.executor import DeliveryExecutor, Heartbeat
from billhook.errors import InboxUnavailable, OutOfResources
from billhook.events import InvoiceApproved, PingTest
from billhook.extension import get_state
from support.apps import deliver, inbox_at
from support.inbox_view import change, rows
from support.processes import in_children, until
from support.signing import APPROVED

pytestmark = pytest.mark.slow


class Shop:
    """An app whose deliveries are handled by an executor; `published` are the ids that it published."""

    def __init__(self, app, clock, lease_seconds=30.0):
        self.app, self.clock = app, clock
        app_state = get_state(app)
        self.inbox = app_state.inbox
        self.published: list[int] = []
        self.executor = DeliveryExecutor(
            app_state.inbox,
            app_state.dispatcher,
            lease_seconds=lease_seconds,
            publish=lambda one: self.published.append(one),
        )

    def deliver(self, *arguments, **more):
        """Take a delivery; its id."""
        assert deliver(self.app, *arguments, **more).status_code == 200
        return rows(inbox_at(self.app), "SELECT max(id) FROM delivery")[0][0]

    def runs(self, columns="handler, state, attempts"):
        return rows(inbox_at(self.app), f"SELECT {columns} FROM run ORDER BY delivery_id, handler")

    def states(self):
        return [state for (state,) in rows(inbox_at(self.app), "SELECT state FROM delivery ORDER BY id")]


@pytest.fixture
def shop(app_with, clock):
    def make(handlers, *, clock=clock, lease_seconds=30.0, **config):
        config.setdefault("BILLHOOK_RETRY_SCHEDULE_SECONDS", (10, 60))
        return Shop(app_with(handlers=[handlers], clock=clock, **config), clock, lease_seconds)

    return make


def noted(calls, name, error=None):
    def handler(event, delivery):
        calls.append((name, delivery.attempt))
        if error is not None:
            raise error

    return handler


# --- what a message does --------------------------------------------------------------------------


def test_a_second_message_and_one_for_no_delivery_do_nothing(shop):
    handlers, calls = Handlers(), []
    handlers.on(PingTest, name="h")(noted(calls, "h"))
    one = shop(handlers)
    delivery_id = one.deliver()

    for each in (delivery_id, delivery_id, delivery_id + 1):
        one.executor.execute(each)

    assert calls == [("h", 1)]


def test_a_message_executes_one_run_and_publishes_the_delivery_for_the_others(shop):
    handlers, calls = Handlers(), []
    handlers.on(PingTest, name="a")(noted(calls, "a", ValueError("no")))
    handlers.on(PingTest, name="b")(noted(calls, "b", SystemExit(3)))
    handlers.on(PingTest, name="c")(noted(calls, "c"))
    one = shop(handlers)
    delivery_id = one.deliver()

    one.executor.execute(delivery_id)

    assert sorted(calls) == [("a", 1), ("b", 1), ("c", 1)]
    assert one.runs() == [("a", "due", 1), ("b", "due", 1), ("c", "succeeded", 1)]
    assert (one.published, one.states()) == ([delivery_id] * 2, ["planned"])


def test_a_hung_handler_leaves_its_siblings_to_other_messages(shop):
    handlers, calls, gate = Handlers(), [], threading.Event()
    handlers.on(PingTest, name="hung")(lambda event: gate.wait(20))
    handlers.on(PingTest, name="quick")(noted(calls, "quick"))
    one = shop(handlers)
    delivery_id = one.deliver()
    first = threading.Thread(target=one.executor.execute, args=(delivery_id,))
    first.start()
    until(lambda: one.published)

    one.executor.execute(delivery_id)  # the message that was published for

    assert calls == [("quick", 1)]
    gate.set()
    first.join()
    assert set(one.runs("state")) == {("succeeded",)}


# --- what is not plain ----------------------------------------------------------------------------


def approved(shop, number):
    return shop.deliver(APPROVED.replace(b"09:30", b"09:3%d" % number), "InvoiceApproved")


def test_ordered_runs_execute_in_order_of_receipt_for_any_message_order(shop):
    handlers, calls = Handlers(), []

    @handlers.on(InvoiceApproved, name="ordered", ordered_by="invoice_id")
    def ordered(event):
        calls.append(event.date.minute)

    one = shop(handlers)
    ids = [approved(one, number) for number in range(3)]

    one.executor.execute(ids[2])
    assert calls == []  # not its turn; but who is before it is published for
    assert set(one.published) == set(ids[:2])
    one.executor.execute(ids[0])
    assert ids[1] in one.published[2:]  # its turn came with the end of the first
    one.executor.execute(ids[1])
    one.executor.execute(one.published[-1])

    assert calls == [30, 31, 32]
    assert one.states() == ["done"] * 3


def test_all_earlier_deliveries_are_planned_beyond_one_batch(shop, monkeypatch):
    monkeypatch.setattr(executor, "PLAN_LIMIT", 2)
    handlers, calls = Handlers(), []
    handlers.on(InvoiceApproved, name="ordered", ordered_by="invoice_id")(lambda event: calls.append(1))
    one = shop(handlers)
    ids = [approved(one, number) for number in range(5)]

    one.executor.execute(ids[4])

    assert [state for (state,) in one.runs("state")] == ["due", "waiting", "waiting", "waiting", "waiting"]


# --- time-outs ------------------------------------------------------------------------------------


def test_a_handler_whose_lease_ended_before_it_was_called_is_not_called(shop, clock):
    handlers, calls = Handlers(), []
    handlers.on(PingTest, name="a", timeout_seconds=5)(noted(calls, "a"))
    handlers.on(PingTest, name="b", timeout_seconds=5)(noted(calls, "b"))
    one = shop(handlers)
    one.executor._publish = lambda _: clock.advance(seconds=60)  # this process slept between claim and call

    one.executor.execute(one.deliver())

    assert calls == []
    assert sorted(one.runs("state, attempts")) == [("due", 0), ("running", 1)]


# --- storage that fails ---------------------------------------------------------------------------


def test_a_result_is_retried_until_the_inbox_is_writable(shop, caplog):
    handlers, calls = Handlers(), []

    @handlers.on(PingTest, name="h")
    def handle(event):
        calls.append(1)
        change(inbox_at(one.app), "ALTER TABLE run RENAME TO lost")

    one = shop(handlers)
    delivery_id = one.deliver()
    worker = threading.Thread(target=one.executor.execute, args=(delivery_id,))
    worker.start()
    until(lambda: "could not settle run" in caplog.text)
    change(inbox_at(one.app), "ALTER TABLE lost RENAME TO run")
    worker.join(20)

    assert (calls, one.runs()) == ([1], [("h", "succeeded", 1)])


def test_a_run_whose_result_cannot_be_settled_in_time_is_retried_after_its_lease(shop, monkeypatch):
    monkeypatch.setattr(executor, "SETTLE_SECONDS", -1.0)
    handlers = Handlers()
    handlers.on(PingTest, name="h")(lambda event: change(inbox_at(one.app), "ALTER TABLE run RENAME TO lost"))
    one = shop(handlers)
    delivery_id = one.deliver()

    with pytest.raises(InboxUnavailable, match="failed"):
        one.executor.execute(delivery_id)
    change(inbox_at(one.app), "ALTER TABLE lost RENAME TO run")
    assert one.runs() == [("h", "running", 1)]  # called again when its lease ends


# --- leases ---------------------------------------------------------------------------------------


def claim_late(shop):
    """What another worker gets of the delivery's runs at this moment."""
    now = SystemClock().now()
    with shop.inbox.transaction("another") as transaction:
        return transaction.claim(1, now, now + timedelta(hours=1))


def test_the_lease_of_a_slow_handler_is_renewed(shop):
    handlers, others = Handlers(), []

    @handlers.on(PingTest, name="h")
    def slow(event):
        end = time.monotonic() + 2.0
        while time.monotonic() < end:
            others.extend(claim_late(one))
            time.sleep(0.05)

    one = shop(handlers, clock=SystemClock(), lease_seconds=0.6)
    one.executor.execute(one.deliver())

    assert others == []
    assert one.runs() == [("h", "succeeded", 1)]


def test_without_a_heartbeat_another_worker_would_take_it(shop):
    handlers, others = Handlers(), []

    @handlers.on(PingTest, name="h")
    def slow(event):
        one.executor._heartbeat._renew_at.clear()
        until(lambda: others.extend(claim_late(one)) or others)

    one = shop(handlers, clock=SystemClock(), lease_seconds=0.6)
    one.executor.execute(one.deliver())

    assert [claim.attempt for claim in others] == [2]


def test_the_heartbeat_stops_renewing_a_lost_lease(shop, caplog):
    handlers, held = Handlers(), []

    @handlers.on(PingTest, name="h")
    def slow(event):
        change(inbox_at(one.app), "UPDATE run SET token = token + 1")
        until(lambda: not one.executor._heartbeat._renew_at)
        held.append(one.runs("due_at"))

    one = shop(handlers, clock=SystemClock(), lease_seconds=0.6)
    one.executor.execute(one.deliver())

    assert held[0] == one.runs("due_at")  # not renewed: it is the other's to renew


def test_the_heartbeat_recovers_after_a_storage_failure(shop, caplog):
    handlers, others = Handlers(), []

    @handlers.on(PingTest, name="h")
    def slow(event):
        change(inbox_at(one.app), "ALTER TABLE run RENAME TO lost")
        until(lambda: re.search("could not renew [0-9]+ leases", caplog.text))
        change(inbox_at(one.app), "ALTER TABLE lost RENAME TO run")
        before = one.runs("due_at")
        until(lambda: one.runs("due_at") > before)

    one = shop(handlers, clock=SystemClock(), lease_seconds=0.9)
    one.executor.execute(one.deliver())

    assert (others, one.runs()) == ([], [("h", "succeeded", 1)])


def test_a_heartbeat_restarts_in_a_forked_child_and_sleeps_when_idle(shop):
    handlers = Handlers()
    handlers.on(PingTest, name="h")(lambda event: None)
    one = shop(handlers, clock=SystemClock(), lease_seconds=0.6)
    beat = Heartbeat(one.inbox, SystemClock(), lease_seconds=0.6)
    one.executor.execute(one.deliver())
    (claim,) = claims_of(one, one.deliver())
    with beat.renewing(claim):
        parents = beat._thread
        one.inbox.close()

        def child(_):
            with beat.renewing(claim):
                before = one.runs("due_at")
                until(lambda: one.runs("due_at") > before)
                mine = beat._thread
            until(lambda: not beat._awake.is_set())  # nothing is held: it sleeps until there is
            return repr(mine is not parents).encode()

        assert in_children(1, child) == [b"True"]


def test_a_heartbeat_whose_thread_could_not_be_started_renews_the_next_lease(shop, monkeypatch):
    handlers = Handlers()
    handlers.on(PingTest, name="h")(lambda event: None)
    one = shop(handlers, clock=SystemClock(), lease_seconds=0.6)
    beat = Heartbeat(one.inbox, SystemClock(), lease_seconds=0.6)
    (claim,) = claims_of(one, one.deliver())

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        refused = pytest.raises(OutOfResources, match="the thread billhook-heartbeat cannot be started")
        with refused, beat.renewing(claim):
            raise AssertionError("without a heartbeat nothing may begin")

    with beat.renewing(claim):
        before = one.runs("due_at")
        until(lambda: one.runs("due_at") > before)


def claims_of(shop, delivery_id):
    now = SystemClock().now()
    with shop.inbox.fast_path.read(delivery_id, now) as look:
        planned = get_state(shop.app).dispatcher.plan([look.stored])[0].plan
        return [look.plan_and_claim(planned, "test", now, now + timedelta(seconds=0.6))]
