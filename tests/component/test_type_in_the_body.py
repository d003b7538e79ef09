"""A sender that names the type in the body: stored unread, and read when the delivery is planned."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from billhook import Handlers, Source, signals
from billhook.engines.first_runs import FirstRuns
from billhook.events import Event, InvoiceApproved
from billhook.events.base import _registered
from billhook.extension import get_state
from billhook.inbox.operating.operations import discard, erase, replay
from billhook.inbox.watching.overview import read_totals
from support.apps import deliver, inbox_at
from support.inbox_view import rows
from support.signing import PATH, SECRET, signed

pytestmark = pytest.mark.usefixtures("inbox_url")

ACME = f"{PATH}/acme"
COLUMNS = "event_type, type_field, state, sent_as, variant"


@pytest.fixture
def order_placed():
    class OrderCreated(Event, type="orders/create"):
        order_id: str
        identify = ("order_id",)

    yield OrderCreated
    del _registered[OrderCreated.type]


@pytest.fixture
def acme(app_with, frozen_clock):
    """Make an app that stores deliveries of the source acme, whose type is in a field of the body."""

    def make(handlers=None, *, type_field="type", **more):
        source = Source("acme", secrets=[SECRET], type_field=type_field)
        more = {"BILLHOOK_ENGINE": "worker", **more}
        return app_with(handlers=[handlers or Handlers()], sources=[source], clock=frozen_clock, **more)

    return make


def send(app, body, key="msg_1", **headers):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    made = signed(body, message_id=key, at=get_state(app).dispatcher.clock.now())
    del made["X-Webhook-Type"]
    answer = app.test_client().post(ACME, data=body, headers={**made, **headers})
    assert answer.status_code == 200
    return answer.json["status"]


def stored(app, columns=COLUMNS):
    return rows(inbox_at(app), f"SELECT {columns} FROM delivery ORDER BY id")


def reasons(app):
    return [json.loads(error)["error"] if error else None for (error,) in stored(app, "error")]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("type", {"type": "orders/create", "orderId": "o_1"}),
        ("event.type", {"orderId": "o_1", "event": {"type": "orders/create"}}),
    ],
)
def test_the_type_is_read_when_the_delivery_is_planned(acme, order_placed, path, body):
    handlers, seen = Handlers(), []

    @handlers.on(order_placed)
    def take(event, delivery):
        seen.append((event.order_id, delivery.event_type))

    app = acme(handlers, type_field=path)

    assert send(app, body) == "accepted"
    assert stored(app) == [("", path, "received", None, "")]

    get_state(app).handle_due()

    assert seen == [("o_1", "orders/create")]
    assert stored(app) == [("orders/create", path, "done", None, "")]
    assert stored(app, "identifier_1") == [("o_1",)]


def test_the_default_source_has_its_field_by_an_option(app_with, frozen_clock):
    app = app_with(BILLHOOK_TYPE_FIELD="event.type", BILLHOOK_ENGINE="inline", clock=frozen_clock)

    answer = deliver(app, b'{"event":{"type":"a b"}}', "PingTest", at=frozen_clock.now())

    assert answer.json == {"status": "accepted"}  # the header says nothing
    assert stored(app) == [("a b", "event.type", "done", None, "")]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"event": {}}, "no event type: the body has no field 'event.type'"),
        ([{"event": {"type": "a"}}], "the body is JSON, but not an object"),
        (b'{"event":{"type":"a"},"event":{"type":"b"}}', "an object in the body has the same key twice"),
    ],
    ids=repr,
)
def test_a_body_without_a_usable_type_is_quarantined_with_the_reason(acme, body, reason):
    app, seen = acme(type_field="event.type"), []

    def note(sender, *, delivery_id, event_type, error):
        seen.append((event_type, json.loads(error)["error"]))

    signals.delivery_quarantined.connect(note)
    assert send(app, body) == "accepted"
    get_state(app).handle_due()

    assert stored(app) == [("", "event.type", "quarantined", None, "")]
    ((event_type, told),) = seen
    assert event_type == ""
    assert told.startswith(reason)
    assert reasons(app) == [told]


def test_a_body_that_is_not_of_its_type_is_quarantined_under_the_type(acme):
    app = acme()

    send(app, {"type": "InvoiceApproved", "invoiceId": 5})
    get_state(app).handle_due()

    assert stored(app) == [("InvoiceApproved", "type", "quarantined", None, "")]
    assert reasons(app) == ["the body is not a valid InvoiceApproved, because of date, invoiceId"]


# --- duplicates and conflicts -------------------------------------------------------------------------

A, B = {"type": "a.first", "n": 1}, {"type": "b.second", "n": 1}


def test_the_same_bytes_are_a_duplicate_before_and_after_they_are_read(acme):
    app, seen = acme(), []

    def note(sender, *, source, key, event_type):
        seen.append((source, key, event_type))

    signals.delivery_duplicate.connect(note)
    assert [send(app, A), send(app, A)] == ["accepted", "duplicate"]
    get_state(app).handle_due()
    assert send(app, A) == "duplicate"

    assert stored(app) == [("a.first", "type", "done", None, "")]
    assert seen == [("acme", "msg_1", ""), ("acme", "msg_1", "a.first")]


def test_a_conflict_is_read_when_an_operator_replays_it(acme):
    app = acme()
    send(app, A)
    send(app, B)
    get_state(app).handle_due()

    conflict = stored(app, "id")[1]
    replayed = replay(get_state(app).inbox, conflict, get_state(app).dispatcher.clock.now())
    get_state(app).handle_due()

    assert replayed.requeued == 1
    assert stored(app, "event_type, state") == [("a.first", "done"), ("b.second", "done")]


def test_a_source_may_change_from_a_header_to_a_field_and_back(acme, app_with, frozen_clock):
    app = acme()
    header = app_with(sources=[Source("acme", secrets=[SECRET])], clock=frozen_clock)

    assert send(header, A, "1", **{"X-Webhook-Type": "PingTest"}) == "accepted"
    assert send(app, A, "1") == "duplicate"
    assert send(app, A, "2") == "accepted"
    for headers in ({}, {"X-Webhook-Type": "PingTest"}):
        assert send(header, A, "2", **headers) == "duplicate"
        assert send(header, B, "3", **headers) == "accepted"
    # The first that came without a type was quarantined, and is not the first of its key.
    assert send(header, A, "4") == "accepted"
    assert send(app, A, "4") == "accepted"

    assert [row[4] for row in stored(app)] == ["", "", "-", "", "-", ""]


def test_a_delivery_that_was_erased_before_it_was_read_is_known_by_its_key(acme):
    app = acme()
    send(app, A)
    inbox, now = get_state(app).inbox, get_state(app).dispatcher.clock.now()

    erase(inbox, [1], now, discard_unfinished=True)

    assert stored(app) == [("", "type", "erased", None, "")]
    assert [send(app, A), send(app, B)] == ["duplicate", "duplicate"]
    get_state(app).handle_due()
    assert stored(app) == [("", "type", "erased", None, "")]


# --- other processes ----------------------------------------------------------------------------------


def test_a_worker_that_does_not_know_the_source_reads_the_type_where_it_is_stored(
    acme, app_with, frozen_clock
):
    app, handlers, seen = acme(), Handlers(), []

    @handlers.on_any()
    def take(event):
        seen.append(event.type)

    worker = app_with(handlers=[handlers], clock=frozen_clock)

    send(app, A)
    get_state(worker).handle_due()

    assert seen == ["a.first"]
    assert stored(app) == [("a.first", "type", "done", None, "")]


def test_a_delivery_is_read_as_an_operator_named_it(acme):
    handlers, seen = Handlers(), []

    @handlers.on(InvoiceApproved)
    def take(event, delivery):
        seen.append(delivery.event_type)

    app = acme(handlers)
    send(app, {"invoiceId": "inv_1", "date": "2026-01-15T09:30:00Z"})
    get_state(app).handle_due()
    inbox, now = get_state(app).inbox, get_state(app).dispatcher.clock.now()

    assert replay(inbox, [1], now, as_type="InvoiceApproved").requeued == 1
    get_state(app).handle_due()

    assert seen == ["InvoiceApproved"]
    assert stored(app) == [("InvoiceApproved", "type", "done", "", "")]


def test_deliveries_without_a_type_are_read_by_a_field_that_an_operator_names(acme, app_with, frozen_clock):
    header = app_with(sources=[Source("acme", secrets=[SECRET])], clock=frozen_clock)
    wrong = acme(type_field="kind")
    send(header, A, "1")
    send(wrong, B, "2")
    send(wrong, {"type": "c.third"}, "2")
    deliver(header, b"[]", "PingTest", message_id="3", at=frozen_clock.now())
    state = get_state(wrong)
    state.handle_due()
    assert [row[:3] for row in stored(wrong)] == [
        ("", None, "quarantined"),
        ("", "kind", "quarantined"),
        ("", "kind", "quarantined"),
        ("PingTest", None, "quarantined"),
    ]

    # Without a field the one that is stored is read again; the first has none.
    ids = [delivery_id for (delivery_id,) in stored(wrong, "id")]
    assert replay(state.inbox, ids[:2], frozen_clock.now()).requeued == 1
    state.handle_due()
    done = replay(state.inbox, ids, frozen_clock.now(), type_field="type")
    state.handle_due()

    assert done.requeued == 2
    assert [row[:3] for row in stored(wrong)] == [
        ("a.first", "type", "done"),
        ("b.second", "type", "done"),
        ("", "kind", "quarantined"),  # a conflict
        ("PingTest", None, "quarantined"),
    ]


# --- order, content duplicates, engines ---------------------------------------------------------------


def test_order_and_content_keys_are_those_of_the_type_that_was_read(acme, order_placed):
    handlers, seen = Handlers(), []

    @handlers.on(order_placed, ordered_by="order_id", identity=("order_id",), identity_window_seconds=60)
    def take(event, delivery):
        seen.append(delivery.key)

    app = acme(handlers)
    for key, order in (("1", "o_1"), ("2", "o_2"), ("3", "o_1")):
        send(app, {"type": "orders/create", "orderId": order}, key)
    get_state(app).handle_due()

    assert seen == ["1", "2"]
    twins = "SELECT delivery_id, order_key IS NOT NULL, twin_of FROM run ORDER BY delivery_id"
    assert [row[::2] for row in rows(inbox_at(app), twins)] == [(1, None), (2, None), (3, 1)]


# --- figures ------------------------------------------------------------------------------------------


def figures(app):
    """By type and what: how many."""
    totals = read_totals(get_state(app).inbox)
    found = {(key.event_type, key.what): one.number for key, one in totals.items() if not key.handler}
    return {key: number for key, number in found.items() if number}


@pytest.mark.parametrize("steps", [3, 0], ids=["counted between", "-"])
def test_a_delivery_is_counted_by_its_type_once_it_is_read_and_no_figure_falls(
    acme, order_placed, frozen_clock, steps
):
    """A second failed reading counts, as each quarantine does, wherever the watermark is."""
    app, seen = acme(), []
    state = get_state(app)

    def look():
        seen.append(figures(app))
        for _ in range(steps):
            frozen_clock.advance(seconds=60)
            state.inbox.advance_watermark(frozen_clock.now())
            seen.append(figures(app))

    look()
    send(app, {"type": "orders/create", "orderId": "o_1"}, "1")
    send(app, {"kind": "x"}, "2")
    deliver(app, b"{}", "PingTest", message_id="3", at=frozen_clock.now())
    look()
    state.handle_due()
    look()
    assert replay(state.inbox, [2], frozen_clock.now()).requeued == 1
    look()
    state.handle_due()
    look()

    stored_only = {("PingTest", "accepted"): 1}
    read = {**stored_only, ("orders/create", "accepted"): 1, ("", "untyped"): 1}
    assert seen[:: steps + 1] == [{}, stored_only, read, read, {**read, ("", "untyped"): 2}]
    for before, after in pairwise(seen):
        assert all(after.get(key, 0) >= number for key, number in before.items()), (before, after)


def test_one_that_is_replayed_and_read_after_it_was_counted_without_a_type_is_accepted(
    acme, order_placed, frozen_clock
):
    app, now = acme(), frozen_clock.now
    state = get_state(app)
    body = {"type": "orders/create", "orderId": "o_1", "event": "orders/create"}
    send(app, body, "1")
    discard(state.inbox, [1], "not needed", now())
    send(app, {**body, "type": 5}, "2")
    state.handle_due()
    for _ in range(3):
        frozen_clock.advance(seconds=60)
        state.inbox.advance_watermark(now())

    assert replay(state.inbox, [1], now()).requeued == 1
    assert replay(state.inbox, [2], now(), type_field="event").requeued == 1
    state.handle_due()

    assert figures(app) == {("orders/create", "accepted"): 2, ("", "untyped"): 1}


def test_one_that_was_discarded_unread_gets_no_first_run_of_a_type_that_it_does_not_have(acme, frozen_clock):
    handlers = Handlers()
    handlers.on_any(name="every")(lambda event: None)
    app = acme(handlers)
    state, now = get_state(app), frozen_clock.now()
    send(app, {"type": "orders/create"})
    discard(state.inbox, [1], "not needed", now)

    replay(state.inbox, [1], now, handler="every", backfill=FirstRuns(state.dispatcher.handlers, "every"))

    assert rows(inbox_at(app), "SELECT event_type, handler FROM run, delivery") == []
