"""billhook.testing as plain functions: deliveries through the real receiver, and retries without waiting."""

from __future__ import annotations

import sqlite3
import unittest
from contextlib import closing
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flask import Flask
from pydantic import Field

from billhook import Billhook, Delivery, Handlers, Retry, Source, effects, signals
from billhook.errors import ConfigError
from billhook.events import Event, InvoiceApproved, PingTest, UnknownEvent, sample
from billhook.events.base import _registered
from billhook.extension import get_state
from billhook.signing import TimestampedHMAC, TimestampedRSA
from billhook.testing import (
    Answer,
    DeadRun,
    dead,
    deliver,
    delivery_of,
    handled,
    make_app,
    options,
    pause_handler,
    paused,
    prepare,
    refused,
    resume_handler,
    settle,
)

ACCEPTED = Answer(200, {"status": "accepted"})


class Shop:
    """Handlers that fail as often as a test wants, and what they were called with."""

    def __init__(self, failures=0, error=RuntimeError):
        self.handlers = Handlers()
        self.calls = []
        self.failures = failures
        self.error = error
        self.handlers.on(InvoiceApproved, name="send", aliases=("mail",), retry=[60, 600])(self.send)

    def send(self, event: InvoiceApproved, delivery: Delivery) -> None:
        self.calls.append((event.invoice_id, delivery.attempt))
        if delivery.attempt <= self.failures:
            raise self.error("not yet")


# --- deliver --------------------------------------------------------------------------------------


def test_a_delivery_is_stored_and_handled_when_the_test_says_so(app_of):
    shop = Shop()
    app = app_of(shop.handlers)

    assert deliver(app, InvoiceApproved, invoice_id="inv_1") == ACCEPTED
    assert shop.calls == []
    assert settle(app) == 1

    assert shop.calls == [("inv_1", 1)]
    assert handled(app, shop.send) == [sample(InvoiceApproved, invoice_id="inv_1")]


def test_an_event_is_named_by_its_class_its_type_or_an_instance(app_of):
    handlers, seen = Handlers(), []
    handlers.on_any(name="seen")(seen.append)
    app = app_of(handlers)
    known = sample(InvoiceApproved, invoice_id="inv_1")
    unknown = UnknownEvent(type="MoonPhase", data={"invoice_id": "inv_1"})

    for given, stored in (
        (InvoiceApproved, known),
        ("InvoiceApproved", known),
        (sample(InvoiceApproved, invoice_id="inv_2"), known),
        ("MoonPhase", unknown),
        (UnknownEvent(type="MoonPhase", data={}), unknown),
    ):
        assert deliver(app, given, invoice_id="inv_1") == ACCEPTED
        settle(app)
        assert seen.pop() == handled(app, "seen")[-1] == stored


def test_a_misspelt_field_is_refused_with_the_nearest_name_and_nothing_is_sent(app_of):
    app = app_of(Shop().handlers)

    for name, meant in {"invoiceid": "invoice_id", "age": "age_seconds"}.items():
        for given in (InvoiceApproved, "InvoiceApproved", sample(InvoiceApproved)):
            with pytest.raises(TypeError, match=f"has no field '{name}': did you mean {meant}"):
                deliver(app, given, **{name: "x"})

    assert settle(app) == 0


def test_what_is_refused_is_told_with_its_cause(app_of):
    app = app_of(Shop().handlers)
    wrong = "whsec_bm90IHRoZSBzZWNyZXQgYXQgYWxsISE="

    ways = ({"signed": False}, {"signed": wrong}, {"age_seconds": 301}, {"age_seconds": -301})
    answers = [deliver(app, InvoiceApproved, **how) for how in ways]

    assert [answer.status for answer in answers] == [401] * 4
    assert refused(app) == ["missing", "mismatch", "stale", "future"]
    assert deliver(app, InvoiceApproved, age_seconds=299) == ACCEPTED


def test_each_source_signs_in_its_own_way(app_of):
    eu = Source("eu", TimestampedHMAC(), ["a secret of some length"])
    shop = Shop()
    app = app_of(shop.handlers, sources=[eu])

    assert deliver(app, InvoiceApproved, source="eu") == ACCEPTED
    assert deliver(app, InvoiceApproved) == ACCEPTED
    with pytest.raises(ConfigError, match="the app has no source 'us': give source= one of default, eu"):
        deliver(app, InvoiceApproved, source="us")


def test_a_source_with_its_type_in_the_body_gets_it_there(app_of):
    acme = Source("acme", TimestampedHMAC(), ["a secret of some length"], type_field="event.type")
    shop, unknown = Shop(), []
    shop.handlers.on_unknown()(lambda event, delivery: unknown.append((event.type, event.data)))
    app = app_of(shop.handlers, sources=[acme])

    assert deliver(app, InvoiceApproved, source="acme", invoice_id="inv_9") == ACCEPTED
    assert deliver(app, "orders/create", source="acme", n=1) == ACCEPTED
    settle(app)

    assert (shop.calls, unknown) == (
        [("inv_9", 1)],
        [("orders/create", {"n": 1, "event": {"type": "orders/create"}})],
    )


def test_the_only_source_is_meant_where_there_is_no_default(tmp_path):
    public = rsa.generate_private_key(65537, 2048).public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    eu = Source("eu", TimestampedRSA(key_id_header="X-Key"), [{"first": pem}])
    app = make_app(tmp_path, sources=[eu], BILLHOOK_SECRETS=None)

    with pytest.raises(
        ConfigError, match="source 'eu' has only public keys: give the private key, signed=KEY"
    ):
        deliver(app, PingTest)
    get_state(app).close()


# --- settle ---------------------------------------------------------------------------------------


def test_settle_moves_the_clock_over_all_retries(app_of):
    shop = Shop(failures=2)
    app = app_of(shop.handlers)
    started = prepare(app).now()
    deliver(app, InvoiceApproved, invoice_id="inv_1")

    assert settle(app) == 3

    assert shop.calls == [("inv_1", 1), ("inv_1", 2), ("inv_1", 3)]
    assert dead(app) == []
    passed = (prepare(app).now() - started).total_seconds()
    assert 500 < passed < 900


def test_settle_stops_at_the_time_that_it_is_given(app_of):
    shop = Shop(failures=2)
    app = app_of(shop.handlers)
    started = prepare(app).now()
    deliver(app, InvoiceApproved)

    attempts = [settle(app, 0), settle(app, 90), settle(app, timedelta(seconds=1))]

    assert attempts == [1, 1, 0]
    assert prepare(app).now() - started == timedelta(seconds=91)
    assert (handled(app, "send"), dead(app)) == ([], [])


def test_a_run_that_failed_for_good_is_dead(app_of):
    shop = Shop(failures=9)
    app = app_of(shop.handlers)
    deliver(app, InvoiceApproved, invoice_id="inv_1")

    settle(app)

    event = sample(InvoiceApproved, invoice_id="inv_1")
    assert dead(app) == [DeadRun("send", event, 3, "RuntimeError: not yet")]
    assert handled(app, shop.send) == []


def test_a_retry_that_a_handler_asks_for_is_waited_for(app_of):
    handlers, attempts = Handlers(), []

    @handlers.on(PingTest, name="wait")
    def wait(event, delivery):
        attempts.append(delivery.attempt)
        if delivery.attempt == 1:
            raise Retry("later", after_seconds=86_400)

    app = app_of(handlers)
    deliver(app, PingTest)

    assert settle(app, 86_399) == 1
    assert settle(app, 1) == 1


def test_an_own_type_whose_body_has_a_field_type_is_delivered_under_its_own(app_of):
    class OrderPlaced(Event, type="order.placed"):
        type_: str = Field(alias="type")

    handlers = Handlers()

    @handlers.on(OrderPlaced)
    def ship(event: OrderPlaced) -> None: ...

    try:
        app = app_of(handlers)
        deliver(app, OrderPlaced(type="express"))
        deliver(app, OrderPlaced, type="slow")
        settle(app)
        assert [(event.type, event.type_) for event in handled(app, ship)] == [
            ("order.placed", "express"),
            ("order.placed", "slow"),
        ]
    finally:
        del _registered["order.placed"]


def test_a_plain_subscriber_is_found_like_a_handler(app_of):
    def subscriber(sender, *, event, delivery): ...

    app = app_of()
    signals.ping_test.connect(subscriber, sender=app)
    deliver(app, PingTest)
    settle(app)

    assert handled(app, subscriber) == [sample(PingTest)]


def test_a_function_that_handles_nothing_is_refused(app_of):
    app = app_of(Shop().handlers)

    with pytest.raises(ConfigError, match=r"is no handler of this app, which has send$"):
        handled(app, print)
    with pytest.raises(
        ConfigError, match=r"has none \(billhook_app or billhook_handlers in pytest's settings"
    ):
        handled(app_of(), print)


# --- one's own app --------------------------------------------------------------------------------


def test_an_app_of_ones_own_is_prepared_by_its_first_use(tmp_path):
    shop, app = Shop(), Flask("own", instance_path=str(tmp_path))
    app.config.update(options(tmp_path))
    Billhook(app, handlers=[shop.handlers])

    assert deliver(app, InvoiceApproved) == ACCEPTED
    assert settle(app) == 1
    assert prepare(app) is prepare(app)
    assert get_state(app).inbox.database.path == tmp_path / "billhook-test.db"
    get_state(app).close()


def test_an_app_whose_engine_runs_by_itself_is_refused(tmp_path):
    app = Flask("own", instance_path=str(tmp_path))
    app.config.update({**options(tmp_path), "BILLHOOK_ENGINE": "thread"})
    Billhook(app)

    with pytest.raises(
        ConfigError, match="BILLHOOK_ENGINE is 'thread', whose handlers run by themselves: bef"
    ):
        deliver(app, PingTest)
    get_state(app).close()


# --- a handler as a plain function ----------------------------------------------------------------


def test_a_handler_is_called_as_a_plain_function_with_a_delivery():
    shop, event = Shop(), sample(InvoiceApproved, invoice_id="inv_1")

    shop.send(event, delivery_of(event))
    with pytest.raises(RuntimeError, match="not yet"):
        Shop(failures=2).send(event, delivery_of(event, attempt=2))

    assert shop.calls == [("inv_1", 1)]
    assert delivery_of(event).body == event.to_json()
    with pytest.raises(ConfigError, match="made by hand and not by an app, so it has no client"):
        delivery_of(event).client  # noqa: B018 - the property raises


def test_a_client_of_the_tests_own_is_the_deliverys():
    client = object()

    assert delivery_of(sample(PingTest), client=client).client is client


def test_each_delivery_is_another_one_unless_it_has_a_key():
    event = sample(PingTest)
    with closing(sqlite3.connect(":memory:")) as connection:
        effects.create_all(connection)
        same = [delivery_of(event, key="msg_1", handler="h").once(connection) for _ in range(2)]
        other = [delivery_of(event).once(connection) for _ in range(2)]

    assert (same, other) == ([True, False], [True, True])


class TestWithUnittest(unittest.TestCase):
    def test_the_functions_need_no_pytest(self):
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            shop = Shop()
            app = make_app(folder, shop.handlers)
            deliver(app, InvoiceApproved, invoice_id="inv_9")
            settle(app)
            get_state(app).close()

        assert shop.calls == [("inv_9", 1)]


def test_a_paused_handler_is_not_called_until_it_is_resumed(app_of):
    shop = Shop()
    app = app_of(shop.handlers)

    pause_handler(app, shop.send, "the ledger is closed")
    deliver(app, InvoiceApproved)
    assert settle(app) == 0
    assert list(paused(app).values()) == ["the ledger is closed"]

    resume_handler(app, shop.send)
    assert settle(app) == 1
    assert paused(app) == {}
    with pytest.raises(ConfigError, match=r"is not paused: paused\(\) has those that are"):
        resume_handler(app, shop.send)
    with pytest.raises(ConfigError, match="'nothing' is no handler of this app"):
        pause_handler(app, "nothing")


def test_a_handler_that_paused_itself_is_seen_with_its_reason(app_of):
    handlers = Handlers()

    @handlers.on(InvoiceApproved, name="fragile", pause_after=2, retry=[1, 1, 1])
    def fragile(event):
        raise KeyError("no")

    app = app_of(handlers)
    deliver(app, InvoiceApproved)

    assert settle(app) == 2
    assert paused(app) == {"fragile": "2 failed attempts in a row, the last one: KeyError: 'no'"}
