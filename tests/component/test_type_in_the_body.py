"""A sender that names the type in the body: stored unread, and read when the delivery is planned."""

from __future__ import annotations

import json

import pytest

from billhook import Handlers, Source
from billhook.events import Event, InvoiceApproved, UnknownEvent
from billhook.events.base import _registered
from billhook.extension import get_state
from support.apps import deliver, inbox_at
from support.inbox_view import rows
from support.signing import PATH, SECRET, signed

pytestmark = pytest.mark.usefixtures("inbox_url")

ACME = f"{PATH}/acme"
COLUMNS = "event_type, type_field, state, sent_as, duplicate_slot"


class OrderPlaced(Event, register=False):
    order_id: str


@pytest.fixture
def order_placed():
    class OrderCreated(Event, type="orders/create"):
        order_id: str
        identify = ("order_id",)

    yield OrderCreated
    del _registered[OrderCreated.type]


@pytest.fixture
def acme(app_with, clock):
    """Make an app that stores deliveries of the source acme, whose type is in a field of the body."""

    def make(handlers=None, *, type_field="type", **more):
        source = Source("acme", secrets=[SECRET], type_field=type_field)
        more = {"BILLHOOK_ENGINE": "worker", **more}
        return app_with(handlers=[handlers or Handlers()], sources=[source], clock=clock, **more)

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


def test_types_with_and_without_a_class_reach_their_handlers_in_one_plan(acme):
    handlers, seen = Handlers(), []

    @handlers.on(InvoiceApproved)
    def approved(event):
        seen.append(event.invoice_id)

    @handlers.on_unknown()
    def unknown(event: UnknownEvent):
        seen.append((event.type, event.data["n"]))

    app = acme(handlers)
    send(app, {"type": "invoice.paid", "n": 1}, "a")
    deliver(app, b'{"date":"2026-01-15T09:30:00Z","invoiceId":"inv_1"}', "InvoiceApproved", message_id="b",
            at=get_state(app).dispatcher.clock.now())  # fmt: skip
    send(app, {"type": "a b", "n": 2}, "c")

    get_state(app).handle_due()

    assert seen == [("invoice.paid", 1), "inv_1", ("a b", 2)]
    assert [row[0] for row in stored(app)] == ["invoice.paid", "InvoiceApproved", "a b"]
