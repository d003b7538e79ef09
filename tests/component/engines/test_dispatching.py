"""From a stored delivery to settled runs, in one thread and with a clock that stands still."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest
from flask import current_app
from pydantic import field_validator

from billhook import Discard, Handlers, signals
from billhook.events import InvoiceApproved, PingTest
from billhook.events.base import Event, _registered
from billhook.extension import get_state
from billhook.inbox import StoredDelivery
from billhook.inbox.running.leases import LOST
from billhook.inbox.tables.records import fingerprint
from support.apps import deliver, inbox_at
from support.engines import handling, plan, runs, states
from support.inbox_view import change, incoming, not_called_again, rows
from support.signing import APPROVED


def later(app, clock, seconds):
    clock.advance(seconds=seconds)
    return get_state(app).handle_due()


FAIL = ValueError("not today")
NAMES = (
    *("delivery_accepted", "delivery_quarantined"),
    *("handler_succeeded", "handler_retrying", "handler_dead"),
)


def failing(calls, error=FAIL, good_from=99):
    def handler(event, delivery):
        calls.append(delivery.attempt)
        if delivery.attempt < good_from:
            raise error

    return handler


# --- success --------------------------------------------------------------------------------------


def test_the_handlers_of_a_delivery_are_called_in_the_order_of_their_registration(shop, frozen_clock):
    """Those of a first attempt, and those that are tried again."""
    handlers, calls = Handlers(), []
    names = [f"h{number * 7 % 20}" for number in range(20)]

    def fails(name):
        def handler(event):
            calls.append(name)
            if len(calls) <= len(names):
                raise FAIL

        return handler

    for name in names:
        handlers.on(InvoiceApproved, name=name)(fails(name))
    app = shop(handlers)

    deliver(app, APPROVED, "InvoiceApproved")
    first, calls[:] = [*calls], [*calls]
    for _ in range(10):
        later(app, frozen_clock, 3600)

    assert first == names
    assert calls[len(names) :] == names


def test_a_handler_gets_its_event_as_a_model_and_the_delivery_as_facts(shop, frozen_clock):
    handlers, given = Handlers(), []
    handlers.on(InvoiceApproved)(lambda event, delivery: given.append((event, delivery, current_app.name)))
    app = shop(handlers, name="my-shop")

    deliver(app, APPROVED, "InvoiceApproved", message_id="msg_1", headers={"X-More": "1", "Cookie": "no"})

    ((event, delivery, in_context_of),) = given
    assert (type(event), event.invoice_id, in_context_of) == (InvoiceApproved, "inv_1", "my-shop")
    assert (delivery.key, delivery.source, delivery.event_type) == ("msg_1", "default", "InvoiceApproved")
    assert (delivery.attempt, delivery.body) == (1, APPROVED)
    assert delivery.received_at == frozen_clock.now()
    assert abs((delivery.signed_at - frozen_clock.now()).total_seconds()) < 60
    assert delivery.headers["X-More"] == delivery.headers["x-more"] == "1"
    assert delivery.headers["Webhook-Id"] == "msg_1"
    assert delivery.headers["Content-Type"] == "application/json"
    assert "Cookie" not in delivery.headers


# --- failure --------------------------------------------------------------------------------------


def test_a_failed_handler_is_tried_again_on_schedule_until_it_is_dead(shop, frozen_clock):
    calls = []
    app = shop(handling(failing(calls), name="h"))
    deliver(app)

    made = [later(app, frozen_clock, seconds) for seconds in (9, 1, 59, 1, 100_000)]

    assert made == [0, 1, 0, 1, 0]
    assert calls == [1, 2, 3]
    assert runs(app, "state, attempts, last_error") == [("dead", 3, "ValueError: not today")]
    assert states(app) == ["dead"]
    assert runs(app, "uncounted_attempts") == [(0,)]  # the handler was there: each attempt counts
    failures = rows(inbox_at(app), "SELECT attempt, traceback FROM failure ORDER BY id")
    assert [(attempt, "raise error" in traceback) for attempt, traceback in failures] == [
        (1, True), (2, True), (3, True),
    ]  # fmt: skip


def test_discard_ends_a_run_without_a_failure(shop, frozen_clock):
    calls = []
    app = shop(handling(failing(calls, Discard("a test ping")), name="h", retry=[]))
    deliver(app)

    assert later(app, frozen_clock, 100_000) == 0
    assert runs(app, "state, attempts, last_error") == [("discarded", 1, "Discard: a test ping")]
    assert states(app) == ["done"]
    assert rows(inbox_at(app), "SELECT count(*) FROM failure") == [(0,)]


@pytest.mark.parametrize(
    ("stored", "has"),
    [
        ({"event_type": "InvoiceApproved"}, True),  # one of its two handlers is ordered
        ({"event_type": "PingTest"}, False),
        ({"event_type": "InvoiceApproved", "source": "us"}, False),  # the ordered one is not for it
        ({"event_type": "", "type_field": "type"}, True),  # it may be of any type
        ({"event_type": ""}, False),  # of none, and not to be read either
        ({"event_type": "PingTest", "type_field": "type"}, False),  # read by now
    ],
)
def test_a_delivery_has_options_if_one_of_its_handlers_is_ordered(shop, stored, has):
    handlers = Handlers()
    handlers.on(InvoiceApproved, PingTest, name="plain")(lambda event: None)
    ordered = handlers.on(InvoiceApproved, name="ordered", ordered_by="invoice_id", sources=("default",))
    ordered(lambda event: None)
    dispatcher = get_state(shop(handlers)).dispatcher
    about = {"delivery_id": 1, "source": "default", "key": "k", "body": b"{}", "headers": "{}"}

    found = StoredDelivery(**{**about, "signed_at": None, "received_at": None, **stored})

    assert dispatcher.has_options(found) is has


# --- names that come and go -----------------------------------------------------------------------


def test_a_run_of_a_renamed_handler_is_its_alias_holders(shop, app_with, frozen_clock):
    old, new, calls = Handlers(), Handlers(), []
    old.on(PingTest, name="old")(failing([], good_from=9))
    app = shop(old)
    deliver(app)
    new.on(PingTest, name="new", aliases=["old"])(failing(calls, good_from=1))

    renamed = shop(new)
    later(renamed, frozen_clock, 10)

    assert calls == [2]
    assert runs(renamed) == [("old", "succeeded", 2)]


def test_a_run_of_an_unregistered_handler_fails_and_ends_dead(shop, frozen_clock):
    old = Handlers()
    old.on(PingTest, name="gone")(failing([]))
    deliver(shop(old))

    app = shop(Handlers())
    for _ in range(3):
        later(app, frozen_clock, 60)

    ((state, error),) = runs(app, "state, last_error")
    assert state == "dead"
    # The second attempt is none of an issue: an old worker beside new code may have had it.
    issues = rows(inbox_at(app), "SELECT fingerprint IS NOT NULL FROM failure ORDER BY id")
    assert [bool(one) for (one,) in issues] == [True, False, True]
    assert error == (
        "LookupError: no handler of PingTest is named 'gone' here: if it has a new name or module, add "
        'aliases=["gone"] there, or have another handler take over its runs with `flask --app shop billhook '
        "deliveries replay --handler gone --to NEW`; if it was removed, `flask --app shop billhook "
        "deliveries discard --handler gone --reason removed` ends its deliveries, and with them what is "
        "unfinished of their other handlers"
    )


def test_a_run_lost_at_its_last_attempt_is_not_called_again_and_of_the_issue_of_lost_ones(
    stored_only, frozen_clock
):
    calls = []
    app = stored_only(handling(failing(calls), name="kills"))
    deliver(app)
    plan(app, frozen_clock.now())
    change(inbox_at(app), "UPDATE run SET attempts = 3")
    get_state(app).handle_due()

    assert (calls, runs(app, "state, last_error")) == ([], [("dead", not_called_again(3))])
    assert rows(inbox_at(app), "SELECT fingerprint FROM failure") == [(fingerprint("kills", LOST),)]


def test_a_later_subscriber_with_a_taken_name_fails_only_its_own_run(shop, frozen_clock):
    handlers, calls = Handlers(), []
    handlers.on(PingTest, name="h")(lambda event: calls.append(1))
    app = shop(handlers)

    def make():
        def subscriber(sender, *, event, delivery): ...

        return subscriber

    kept = [make(), make()]
    for subscriber in kept:
        signals.invoice_approved.connect(subscriber, sender=app)

    deliver(app, APPROVED, "InvoiceApproved")
    deliver(app)

    assert calls == [1]
    assert states(app) == ["planned", "done"]
    state, error = runs(app, "state, last_error")[0]
    assert (state, "two handlers are named " in error) == ("due", True)


# --- quarantine -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event_type", "body", "error", "loc"),
    [
        ("InvoiceApproved", b"{broken", "JSON", None),
        ("InvoiceApproved", b"\xff", "", None),
        ("InvoiceApproved", b"[]", "the body is JSON, but not an object", None),
        ("InvoiceApproved", b'{"date": "2026-01-15T09:30:00Z"}', "InvoiceApproved", ["invoiceId"]),
        ("BrandNew", b"nope", "", None),
    ],
)
def test_an_unreadable_delivery_is_quarantined_and_signalled_once(
    shop, observe, event_type, body, error, loc
):
    handlers, calls = Handlers(), []
    handlers.on_any()(calls.append)
    app = shop(handlers)
    observed = observe(app, *NAMES)

    reply = deliver(app, body, event_type)
    get_state(app).handle_due()

    assert reply.json == {"status": "accepted"}
    assert states(app) == ["quarantined"]
    assert calls == []
    ((stored,),) = rows(inbox_at(app), "SELECT error FROM delivery")
    assert error in json.loads(stored)["error"]
    assert [detail["loc"] for detail in json.loads(stored)["details"]] == ([loc] if loc else [])
    facts = {"delivery_id": 1, "event_type": event_type, "error": stored}
    assert observed[1:] == [("delivery_quarantined", facts)]


def test_a_quarantine_is_signalled_by_the_worker_that_planned_it(shop, observe):
    app = shop(Handlers())
    state, observed = get_state(app), observe(app, "delivery_quarantined")
    state.inbox.put(incoming("k", body=b"{"))
    planned = state.dispatcher.plan(state.inbox.received(1))

    with state.inbox.transaction("w") as transaction:
        pass
    for planned_here in ([], [1]):
        state.dispatcher.report(transaction, [], set(), planned, planned_here)

    assert len(observed) == 1


def test_an_event_model_that_breaks_is_a_quarantine_and_stops_nothing_else(shop):
    class BrokenModel(Event):
        x: int

        @field_validator("x")
        @classmethod
        def explode(cls, value):
            raise KeyError("a mistake of the user's own")

    calls = []
    app = shop(handling(calls.append))
    try:
        deliver(app, b'{"x": 1}', "BrokenModel")
        deliver(app)
    finally:
        del _registered["BrokenModel"]

    assert states(app) == ["quarantined", "done"]
    assert len(calls) == 1


def test_memory_that_is_missing_for_a_model_is_no_fault_of_the_delivery(shop, monkeypatch):
    def fail(*_, **__):
        raise MemoryError

    app = shop(Handlers())
    get_state(app).inbox.put(incoming("k"))
    with monkeypatch.context() as patch:
        patch.setattr("billhook.engines.dispatcher.event_of", fail)
        with pytest.raises(MemoryError):
            plan(app, get_state(app).dispatcher.clock.now())

    assert states(app) == ["received"]


@pytest.mark.parametrize(
    ("body", "sent_as", "expected", "error"),
    [
        (b"{", None, [1], "InvalidJSON"),
        (APPROVED, None, [1], "looks like InvoiceApproved"),
        (APPROVED, "InvoiceApproved", [1, 2], "not today"),  # an operator chose the type
    ],
)
def test_a_delivery_is_read_again_for_a_retry(shop, frozen_clock, body, sent_as, expected, error):
    calls = []
    app = shop(handling(failing(calls), name="h"))
    deliver(app)
    change(inbox_at(app), "UPDATE delivery SET body = ?, sent_as = ?", body, sent_as)

    later(app, frozen_clock, 10)

    assert (calls, runs(app, "state, attempts")) == (expected, [("due", 2)])
    assert error in runs(app, "last_error")[0][0]


# --- what observers are told ----------------------------------------------------------------------


def test_each_attempt_is_signalled_once_with_its_arguments(shop, observe, frozen_clock):
    handlers = Handlers()
    handlers.on(PingTest, name="bad", retry=[10])(failing([]))
    handlers.on(PingTest, name="good")(lambda event: None)
    handlers.on(PingTest, name="picky")(failing([], Discard("no")))
    app = shop(handlers)
    observed = observe(app, *NAMES)

    deliver(app, message_id="msg_1")
    due_at = frozen_clock.now() + timedelta(seconds=10)
    later(app, frozen_clock, 10)

    attempts = [
        (name, facts.pop("handler"), facts.pop("delivery").attempt, facts) for name, facts in observed[1:]
    ]
    assert sorted(attempts[:3], key=lambda attempt: attempt[1]) == [
        ("handler_retrying", "bad", 1, {"error": FAIL, "due_at": due_at}),
        ("handler_succeeded", "good", 1, {}),
        ("handler_succeeded", "picky", 1, {}),
    ]
    assert attempts[3:] == [("handler_dead", "bad", 2, {"error": FAIL})]


@pytest.mark.parametrize(
    "error", [ValueError("observer"), SystemExit(1), GeneratorExit(), asyncio.CancelledError()]
)
def test_an_observer_that_raises_stops_neither_the_worker_nor_other_observers(
    shop, observe, frozen_clock, error
):
    handlers = Handlers()
    handlers.on(PingTest, name="bad", retry=[10])(failing([]))
    handlers.on(PingTest, name="good")(lambda event: None)
    app = shop(handlers)

    def explode(sender, **facts):
        raise error

    for name in NAMES:
        getattr(signals, name).connect(explode, sender=app)
    observed = observe(app, *NAMES)

    statuses = [deliver(app).status_code, deliver(app, b"{", "InvoiceApproved").status_code]
    later(app, frozen_clock, 10)

    assert statuses == [200, 200]
    assert runs(app) == [("bad", "dead", 2), ("good", "succeeded", 1)]
    assert {name for name, _ in observed} == set(NAMES)


def test_a_failure_of_storage_after_the_commit_changes_no_answer(shop):
    handlers = Handlers()

    @handlers.on(PingTest, name="h")
    def breaks_the_inbox(event):
        change(inbox_at(app), "DROP TABLE failure")
        raise ValueError("and fails")

    app = shop(handlers)

    assert deliver(app).json == {"status": "accepted"}
    assert states(app) == ["planned"]
