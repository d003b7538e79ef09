"""First runs of a new handler for old deliveries, whose models are the user's code, on every database."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from pydantic import field_validator

from billhook import Handlers
from billhook.engines.first_runs import backfill
from billhook.engines.resend import resend
from billhook.errors import ModelFailed
from billhook.events.base import Event, _registered
from billhook.extension import get_state
from billhook.inbox.operating.operations import ReplayResult, replay
from billhook.inbox.reading.deliveries import details
from support.apps import inbox_at
from support.engines import runs
from support.inbox_view import change, incoming

pytestmark = pytest.mark.usefixtures("inbox_url")


@pytest.fixture
def shop(app_with):
    """An app with three deliveries of an own type that were handled, and a handler that is new."""
    act = {}

    class Order(Event):
        key: str

        @field_validator("key")
        @classmethod
        def check(cls, value):
            act.get(value, lambda: None)()
            return value

    handlers = Handlers()
    handlers.on(Order, name="old")(lambda event: None)
    handlers.on(Order, name="new", ordered_by="key")(lambda event: None)
    app = app_with(handlers=[handlers])
    state = get_state(app)
    for key in "abc":
        state.inbox.put(incoming(key, event_type="Order", body=b'{"key": "%s"}' % key.encode()))
    state.handle_due()
    change(inbox_at(app), "DELETE FROM run WHERE handler = 'new'")
    state.act = act
    yield app
    del _registered["Order"]


def again(app, **more):
    state = get_state(app)
    takes = backfill(state.handlers, "new")
    now = state.dispatcher.clock.now()
    return replay(state.inbox, [1, 2, 3], now, handler="new", backfill=takes, **more), takes


@pytest.mark.parametrize("dry_run", [True, False])
def test_no_model_is_called_within_a_transaction(shop, monkeypatch, dry_run):
    state, seen = get_state(shop), []
    open_now = []

    def watched(method):
        @contextmanager
        def watch(*arguments, **more):
            with method(*arguments, **more) as connection:
                open_now.append(connection)
                yield connection
                open_now.remove(connection)

        return watch

    for name in ("read", "write"):
        monkeypatch.setattr(state.inbox.database, name, watched(getattr(state.inbox.database, name)))
    state.act |= dict.fromkeys("abc", lambda: seen.append(len(open_now)))

    done, _ = again(shop, dry_run=dry_run)

    assert (done, seen) == (ReplayResult(3, 0, 0, 3), [0, 0, 0])
    assert len([name for name, *_ in runs(shop) if name == "new"]) == (0 if dry_run else 3)


def test_a_delivery_whose_model_raises_is_passed_over_and_told(shop):
    def fail():
        raise SystemExit(4)

    get_state(shop).act["b"] = fail

    done, takes = again(shop)

    assert done == ReplayResult(2, 0, 0, 2)
    assert takes.passed_over == {"the event model of Order raised SystemExit: 4": 1}


def test_a_run_that_was_made_meanwhile_is_not_made_again(shop):
    state = get_state(shop)
    state.act["c"] = lambda: state.act.clear() or again(shop)

    done, _ = again(shop)

    assert done.added == 0
    assert len([name for name, *_ in runs(shop) if name == "new"]) == 3


def test_a_body_that_a_model_raises_at_is_not_sent_again(shop):
    def fail():
        raise BaseException("boo")  # noqa: TRY002

    state = get_state(shop)
    state.act["a"] = fail
    (original,) = details(state.inbox, [1])

    with pytest.raises(ModelFailed, match=r"^the event model of Order raised BaseException: boo$"):
        resend(state.inbox, state.handlers, original, "old", original.body, state.dispatcher.clock.now())

    assert len(runs(shop)) == 3
