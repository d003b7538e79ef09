"""One delivery from its message to its end, as a worker of a queue does it; leases are kept meanwhile."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest

from billhook import Handlers
from billhook.clock import SystemClock
from billhook.engines.messages import engine as engine_module
from billhook.engines.messages.isolation import Isolation
from billhook.errors import InboxUnavailable
from billhook.events import InvoiceApproved, PingTest
from billhook.extension import get_state
from support.apps import deliver, inbox_at
from support.engines import celery_engine, handling, plan_and_claim, runs, states
from support.inbox_view import change, value
from support.processes import in_children, until
from support.signing import APPROVED

pytestmark = pytest.mark.slow


class Shop:
    """An app whose deliveries are handled by an executor; `published` are the ids that it published."""

    def __init__(self, app, lease_seconds):
        self.app = app
        self.inbox = get_state(app).inbox
        self.published: list[int] = []
        self.executor = celery_engine(app, self.published, lease_seconds)

    def deliver(self, *arguments, **more):
        """Take a delivery; its id."""
        assert deliver(self.app, *arguments, **more).status_code == 200
        return value(inbox_at(self.app), "SELECT max(id) FROM delivery")


@pytest.fixture
def shop(app_with, frozen_clock):
    def make(handlers, *, clock=frozen_clock, lease_seconds=30.0, **config):
        config.setdefault("BILLHOOK_RETRY_SCHEDULE_SECONDS", (10, 60))
        return Shop(app_with(handlers=[handlers], clock=clock, **config), lease_seconds)

    return make


def noted(calls, name, error=None):
    def handler(event, delivery):
        calls.append((name, delivery.attempt))
        if error is not None:
            raise error

    return handler


# --- what a message does --------------------------------------------------------------------------


def test_a_second_message_and_one_for_no_delivery_do_nothing(shop):
    calls = []
    one = shop(handling(noted(calls, "h"), name="h"))
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
    assert runs(one.app) == [("a", "due", 1), ("b", "due", 1), ("c", "succeeded", 1)]
    assert (one.published, states(one.app)) == ([delivery_id] * 2, ["planned"])


@pytest.mark.parametrize("failures", [1, 2])
def test_a_message_is_tried_twice_where_the_inbox_is_unavailable(shop, monkeypatch, caplog, failures):
    calls = []
    made = shop(handling(noted(calls, "note"), name="note"))
    delivery_id = made.deliver()
    left = iter(range(failures))
    poll = made.inbox.poll

    def fail_at_first(*arguments, **more):
        if next(left, None) is not None:
            raise InboxUnavailable("the server reads only")
        return poll(*arguments, **more)

    monkeypatch.setattr(made.inbox, "poll", fail_at_first)
    monkeypatch.setattr(engine_module, "SWEEP_SECONDS", 0.01)
    engine_module.handle_message(made.executor, [delivery_id], {})

    assert calls == [("note", 1)] * (failures == 1)
    told = f"delivery {delivery_id} stays in the inbox: the server reads only"
    assert (told in caplog.messages) is (failures == 2)


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
    assert set(runs(one.app, "state")) == {("succeeded",)}


# --- what is not plain ----------------------------------------------------------------------------


def approved(shop, number):
    return shop.deliver(APPROVED.replace(b"09:30", b"09:3%d" % number), "InvoiceApproved")


def test_what_is_planned_along_with_an_ordered_delivery_is_left_to_its_own_message(shop):
    handlers, calls = Handlers(), []
    handlers.on(InvoiceApproved, name="ordered", ordered_by="invoice_id")(noted(calls, "ordered"))
    handlers.on(PingTest, name="plain")(noted(calls, "plain"))
    one = shop(handlers)
    plain, ordered = one.deliver(), approved(one, 0)

    one.executor.execute(ordered)

    assert (calls, one.published) == ([("ordered", 1)], [plain])


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
    until(lambda: "could not store the results" in caplog.text)
    change(inbox_at(one.app), "ALTER TABLE lost RENAME TO run")
    worker.join(20)

    assert (calls, runs(one.app)) == ([1], [("h", "succeeded", 1)])


def test_a_run_whose_result_cannot_be_settled_in_time_is_retried_after_its_lease(shop, monkeypatch):
    monkeypatch.setattr(engine_module, "SETTLE_SECONDS", 0.0)
    handlers = Handlers()
    refuse = "CREATE TRIGGER refuse BEFORE UPDATE ON run BEGIN SELECT RAISE(ABORT, 'refused'); END"
    handlers.on(PingTest, name="h")(lambda event: change(inbox_at(one.app), refuse))
    one = shop(handlers)
    delivery_id = one.deliver()

    with pytest.raises(InboxUnavailable, match="failed"):
        one.executor.execute(delivery_id)
    change(inbox_at(one.app), "DROP TRIGGER refuse")
    assert runs(one.app) == [("h", "running", 1)]  # called again when its lease ends


# --- leases ---------------------------------------------------------------------------------------


def claim_late(shop):
    """What another worker gets of the delivery's runs at this moment."""
    now = SystemClock().now()
    with shop.inbox.transaction("another") as transaction:
        return transaction.claim(1, now, now + timedelta(hours=1))


def test_the_lease_of_a_slow_handler_is_renewed_also_after_a_storage_failure(shop, caplog):
    handlers, others = Handlers(), []

    @handlers.on(PingTest, name="h")
    def slow(event):
        change(inbox_at(one.app), "ALTER TABLE run RENAME TO lost")
        until(lambda: "could not store the results" in caplog.text)
        change(inbox_at(one.app), "ALTER TABLE lost RENAME TO run")
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            others.extend(claim_late(one))
            time.sleep(0.05)

    one = shop(handlers, clock=SystemClock(), lease_seconds=1.5)
    one.executor.execute(one.deliver())

    assert others == []
    assert runs(one.app) == [("h", "succeeded", 1)]


def test_a_forked_child_has_threads_of_its_own_for_handlers(shop):
    one = shop(handling(lambda event: None, name="h", timeout_seconds=20))
    one.executor.execute(one.deliver())
    delivery_id = one.deliver()
    one.inbox.close()

    def child(_):
        one.executor.execute(delivery_id)
        return repr(runs(one.app, "state")).encode()

    assert in_children(1, child) == [repr([("succeeded",)] * 2).encode()]


# --- one alone among threads ----------------------------------------------------------------------


def test_a_suspect_waits_for_the_others_in_its_process_and_blocks_new_ones():
    isolation, told, release, inside = Isolation(30.0), [], threading.Event(), threading.Event()

    def beside(name):
        with isolation.shared():
            told.append(f"{name} in")
            inside.set()
            release.wait(30)
            told.append(f"{name} out")

    def alone():
        with isolation.alone(None):
            told.append("alone in")
            time.sleep(0.3)
            told.append("alone out")

    first = threading.Thread(target=beside, args=("first",))
    first.start()
    assert inside.wait(20)
    lone = threading.Thread(target=alone)
    lone.start()
    until(lambda: isolation._alone, 20)
    late = threading.Thread(target=beside, args=("late",))
    late.start()
    time.sleep(0.2)
    release.set()
    for one in (first, lone, late):
        one.join(30)

    assert told == ["first in", "first out", "alone in", "alone out", "late in", "late out"]


def test_a_suspect_that_runs_longer_than_a_lease_time_is_marked_as_not_alone(shop):
    handlers, calls, gate = Handlers(), [], threading.Event()

    @handlers.on(PingTest, name="h")
    def hangs(event, delivery):
        calls.append(delivery.key)
        if delivery.key == "hangs":
            gate.wait(30)

    one = shop(handlers, clock=SystemClock(), lease_seconds=0.6)
    hanging = one.deliver(message_id="hangs")
    plan_and_claim(one.app, "dies", SystemClock().now(), most=1, lease_seconds=0)
    first = threading.Thread(target=one.executor.execute, args=(hanging,))
    first.start()
    until(lambda: calls)
    started = time.monotonic()

    one.executor.execute(one.deliver(message_id="beside"))

    assert calls == ["hangs", "beside"]
    assert time.monotonic() - started > 0.3
    assert runs(one.app, "beside_others")[0] == (1,)
    gate.set()
    first.join(20)
    assert set(runs(one.app, "state")) == {("succeeded",)}
