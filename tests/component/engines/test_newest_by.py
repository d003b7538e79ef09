"""`newest_by`: which delivery of an order is the newest, as a field or a function of the event says."""

from __future__ import annotations

import json
from functools import partial

import pytest

from billhook import Handlers
from billhook.engines.first_runs import backfill
from billhook.errors import ConfigError
from billhook.events import (
    AnonymousCustomer,
    CommitmentCrossed,
    CustomerCreated,
    CustomerPortalLinkSent,
    InvoicePaymentStatusChanged,
    MonthEndReport,
    PaymentFailed,
    PingTest,
    sample,
)
from billhook.extension import get_state
from billhook.inbox.operating.operations import replay
from support.apps import deliver, inbox_at
from support.engines import runs, states, status_changed
from support.inbox_view import rows
from support.receivers import flush, later, receiving, subscribe, trigger
from support.sandbox import running as running_sandbox

ORDERED = {"ordered_by": "customer_id", "newest_only": True}


def failed(app, date, key, amount=1):
    body = json.loads(sample(PaymentFailed).to_json()) | {"date": date, "amount": amount}
    return deliver(app, json.dumps(body).encode(), "PaymentFailed", message_id=key)


def noting(calls, event_type=PaymentFailed, **options):
    handlers = Handlers()

    @handlers.on(event_type, name="h", **{**ORDERED, **options})
    def handle(event, delivery):
        calls.append(delivery.key)

    return handlers


@pytest.mark.parametrize(
    ("newest_by", "earlier", "later_one"),
    [
        ("date", {"date": "2026-01-15T10:00:00Z"}, {"date": "2026-01-15T11:30:00+01:00"}),
        ("amount", {"amount": 9.5}, {"amount": 10}),
        (lambda event: event.date.date(), {"date": "2026-01-15T10:00:00Z"}, {"date": "2026-01-16T09:00:00Z"}),
    ],
    ids=["date", "number", "function"],
)
@pytest.mark.parametrize("handled_between", [True, False])
def test_an_older_event_that_comes_late_is_not_handled(
    inbox_url, stored_only, newest_by, earlier, later_one, handled_between
):
    calls = []
    app = stored_only(noting(calls, newest_by=newest_by))
    same = {"date": "2026-01-15T10:00:00Z"}

    failed(app, key="newer", **{**same, **later_one})
    if handled_between:
        get_state(app).handle_due()
    failed(app, key="older", **{**same, **earlier})
    get_state(app).handle_due()

    assert (calls, states(app)) == (["newer"], ["done"] * 2)
    why = "superseded by delivery 1, which is newer" + (" and has been handled" if handled_between else "")
    assert runs(app, "state, last_error") == [("succeeded", None), ("discarded", why)]


def test_control_without_it_the_last_to_arrive_is_handled(stored_only):
    calls = []
    app = stored_only(noting(calls))

    failed(app, "2026-01-15T11:00:00Z", "newer")
    failed(app, "2026-01-15T10:00:00Z", "older")
    get_state(app).handle_due()

    assert calls == ["older"]


def test_where_the_field_is_missing_the_arrival_says_it(stored_only):
    calls = []
    app = stored_only(
        noting(calls, InvoicePaymentStatusChanged, ordered_by="invoice_id", newest_by="paid_at")
    )
    for key in ("m1", "m2"):
        deliver(app, status_changed(), "InvoicePaymentStatusChanged", message_id=key)
    get_state(app).handle_due()

    assert calls == ["m2"]


def test_a_function_that_raises_quarantines_the_delivery_and_names_the_handler(stored_only):
    calls = []
    app = stored_only(noting(calls, newest_by=lambda event: event.nothing))

    failed(app, "2026-01-15T11:00:00Z", "m1")
    deliver(app)
    get_state(app).handle_due()

    assert (calls, states(app)) == ([], ["quarantined", "done"])
    ((error,),) = rows(inbox_at(app), "SELECT error FROM delivery WHERE id = 1")
    assert "newest_by of the handler h raised AttributeError: " in error


def test_a_function_is_called_by_a_run_as_an_own_model_is(stored_only):
    """Not by the poll, which all other deliveries wait for: here the poll only plans."""
    called = []
    app = stored_only(noting([], newest_by=lambda event: called.append(1) or event.date))
    failed(app, "2026-01-15T11:00:00Z", "m1")
    inbox, dispatcher = get_state(app).inbox, get_state(app).dispatcher

    (planned,) = dispatcher.plan(inbox.received(10))

    assert (planned.plan.handlers, called) == (("reading PaymentFailed",), [])


def test_a_value_of_another_kind_is_refused_in_words(stored_only):
    app = stored_only(noting([], newest_by=lambda event: [event.date]))

    failed(app, "2026-01-15T11:00:00Z", "m1")
    get_state(app).handle_due()

    ((error,),) = rows(inbox_at(app), "SELECT error FROM delivery WHERE id = 1")
    assert "newest_by is a list: a date, a number or a text says what is newer" in error


@pytest.mark.parametrize(
    "event_type", [AnonymousCustomer, InvoicePaymentStatusChanged, PingTest, CommitmentCrossed]
)
def test_a_type_without_the_field_is_refused_at_import(event_type):
    names = sorted(event_type.model_fields)[:1] or [None]

    with pytest.raises(
        ConfigError, match=f"newest_by names 'date', which is no field of {event_type.type}: "
    ):
        Handlers().on(event_type, ordered_by=names[0], newest_only=True, newest_by="date")


@pytest.mark.parametrize(
    ("event_type", "options", "message"),
    [
        (PaymentFailed, {"newest_by": "date"}, "newest_by needs newest_only=True"),
        (
            PaymentFailed,
            {**ORDERED, "newest_by": 5},
            "newest_by is 5: give the name of a field, or a function",
        ),
        (
            CustomerPortalLinkSent,
            {**ORDERED, "newest_by": "is_successful"},
            "which is a bool in CustomerPortal",
        ),
        (
            CustomerCreated,
            {**ORDERED, "newest_by": "aliases"},
            "which is a list in CustomerCreated: give a field",
        ),
    ],
)
def test_what_cannot_say_what_is_newer_is_refused_at_import(event_type, options, message):
    with pytest.raises(ConfigError, match=message):
        Handlers().on(event_type, **options)


def test_a_new_handler_is_given_the_newest_only(stored_only):
    app = stored_only(Handlers())
    for key, date in (("m1", "2026-01-15T11:00:00Z"), ("m2", "2026-01-15T10:00:00Z")):
        failed(app, date, key)
    get_state(app).handle_due()
    calls = []
    app = stored_only(noting(calls, newest_by="date"))

    state = get_state(app)
    given = backfill(state.handlers, "h")
    replay(state.inbox, [1, 2], state.dispatcher.clock.now(), handler="h", backfill=given)
    state.handle_due()

    assert calls == ["m1"]


def note_minute(calls, event):
    calls.append(event.date.minute)


def test_the_sandboxs_reorder_changes_nothing(stored_only):
    """A sender that repeats what was refused, or sends side by side: the older report arrives last."""
    calls = {"date": [], None: []}
    with running_sandbox() as sandbox, receiving() as receiver:
        sandbox.ok("POST", "/_sandbox/faults", {"fault": "reorder"})
        subscribe(sandbox, "MonthEndReport", receiver.url)
        for minute in range(2):
            trigger(sandbox, "MonthEndReport", reportId="rep", date=f"2026-01-15T10:0{minute}:00Z")
            flush(sandbox)
        later(sandbox, 1)
        sent = [got.body for got in receiver.got]

    for newest_by, its in calls.items():
        handlers = Handlers()
        options = {"ordered_by": "report_id", "newest_only": True, "newest_by": newest_by}
        handlers.on(MonthEndReport, name="h", **options)(partial(note_minute, its))
        app = stored_only(handlers, BILLHOOK_INBOX_URL=None)
        for number, body in enumerate(sent):
            deliver(app, body, "MonthEndReport", message_id=f"{newest_by} {number}")
            get_state(app).handle_due()

    assert calls == {"date": [1], None: [1, 0]}
