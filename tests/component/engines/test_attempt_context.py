"""Context variables: each attempt has what the app set, and nothing that another attempt has set."""

from __future__ import annotations

import decimal
import threading
from contextvars import ContextVar, copy_context

import flask
import pytest

from billhook import Handlers, signals
from billhook.basics.concurrency import run_in_copy, startup_context
from billhook.events import PingTest
from billhook.extension import get_state
from support.apps import deliver
from support.engines import EVERY_ENGINE, foreign_engine, option_for
from support.processes import until

TENANT: ContextVar[str] = ContextVar("tenant", default="none")


def in_copy(function, *arguments):
    """Call it so that what it sets is not set in the next test."""
    return copy_context().run(function, *arguments)


def handled(make_app, running, name, handlers, count):
    """Have so many deliveries handled by one thread of an engine."""
    app = make_app(handlers=[handlers], BILLHOOK_ENGINE=option_for(name))
    state = get_state(app)
    if name == "worker":
        running.start(app, 1)
    executor = foreign_engine(name, app)
    for number in range(count):
        assert deliver(app, message_id=f"m{number}").status_code == 200
        if executor is not None:
            threading.Thread(target=executor.execute, args=(number + 1,)).start()
    return state


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_a_variable_that_a_handler_sets_is_not_set_in_the_next_attempt(engine, is_async, app_with, running):
    handlers, seen = Handlers(), []

    def note(event, delivery):
        seen.append((TENANT.get(), decimal.getcontext().prec))
        TENANT.set(delivery.key)
        decimal.getcontext().prec = 5
        if delivery.attempt == 1:
            raise ValueError("not today")

    async def note_async(event, delivery):
        note(event, delivery)

    handlers.on(PingTest, name="note", retry=[0])(note_async if is_async else note)

    def shop():
        TENANT.set("of the app")
        decimal.setcontext(decimal.Context(prec=9))  # a new one: the other is that of the tests that follow
        handled(app_with, running, engine, handlers, 4)
        until(lambda: len(seen) == 8, 20)

    in_copy(shop)

    assert seen == [("of the app", 9)] * 8


@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_observers_of_start_and_end_share_the_handlers_variables(engine, app_with, running):
    handlers, seen = Handlers(), []

    @handlers.on(PingTest, name="note")
    def note(event, delivery):
        seen.append(("handler", TENANT.get()))
        TENANT.set(f"handler {delivery.key}")

    def started(_, *, delivery, **facts):
        seen.append(("started", TENANT.get()))
        TENANT.set(f"started {delivery.key}")

    def ended(_, **facts):
        seen.append(("ended", TENANT.get()))

    def shop():
        with signals.handler_started.connected_to(started), signals.handler_ended.connected_to(ended):
            handled(app_with, running, engine, handlers, 2)
            until(lambda: len(seen) == 6, 20)

    in_copy(shop)

    # Of two deliveries at once, with Celery.
    of_each = (
        [("started", "none"), ("handler", f"started {key}"), ("ended", f"handler {key}")]
        for key in ("m0", "m1")
    )
    assert sorted(seen) == sorted(each for one in of_each for each in one)


def test_a_worker_has_what_was_set_after_the_extension_was_added(app_with, running):
    handlers, seen = Handlers(), []
    handlers.on(PingTest, name="note")(lambda event: seen.append(TENANT.get()))

    def shop():
        app = app_with(handlers=[handlers], BILLHOOK_ENGINE="worker")
        TENANT.set("later")
        deliver(app)
        running.start(app, 1)
        until(lambda: seen, 20)

    in_copy(shop)

    assert seen == ["later"]


def test_the_thread_engine_takes_nothing_of_the_request_that_starts_it(app_with):
    handlers, seen = Handlers(), []

    @handlers.on(PingTest, name="note")
    def note(event):
        seen.append((TENANT.get(), flask.has_request_context()))

    app = app_with(handlers=[handlers], BILLHOOK_ENGINE="thread")
    app.before_request(lambda: TENANT.set("of a request") and None)
    in_copy(deliver, app)
    until(lambda: seen, 20)

    assert seen == [("none", False)]


def test_the_context_of_the_start_has_no_app_or_request_of_flask(plain_app):
    app = plain_app()

    def shop():
        TENANT.set("shop")
        with app.test_request_context():
            return startup_context()

    context = in_copy(shop)

    names = [variable.name for variable in context]
    assert "tenant" in names
    assert not [name for name in names if name.startswith("flask.")]


def test_a_decimal_context_that_nobody_changed_leaves_the_default_to_decide(monkeypatch):
    def prec():
        decimal.setcontext(decimal.Context(prec=28))
        context = startup_context()
        monkeypatch.setattr(decimal.DefaultContext, "prec", 12)
        return run_in_copy(context, lambda: decimal.getcontext().prec)

    assert in_copy(prec) == 12
