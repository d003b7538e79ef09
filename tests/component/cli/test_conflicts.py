"""`deliveries` and what waits for an operator: conflicts, look-alikes, and what names no type."""

from __future__ import annotations

import json

import pytest

from billhook import Handlers
from billhook.events import InvoiceApproved, PaymentFailed, sample
from billhook.extension import get_state
from support.apps import deliver
from support.inbox_view import rows, value

BODY = sample(PaymentFailed).to_json()


@pytest.fixture
def go_on(app_with, inbox_url):
    """Handles what is due; gives what was handled.

    1: PaymentFailed sent as InvoiceApproved; and the genuine one, and one without a type, of its key.
    """
    handlers, handled = Handlers(), []

    @handlers.on(InvoiceApproved, PaymentFailed, name="book")
    def book(event, delivery):
        handled.append((event.type, delivery.idempotency_key))

    app = app_with(handlers=[handlers], BILLHOOK_ENGINE="inline")
    for event_type in ("InvoiceApproved", "PaymentFailed", "not a type"):
        deliver(app, BODY, event_type, message_id="msg_1")
    return lambda: [get_state(app).handle_due(), handled][1]


def ids(where):
    return [one for (one,) in rows(where, "SELECT id FROM delivery ORDER BY id")]


def test_replay_by_filters_skips_conflicts(run, go_on, where):
    found = run("deliveries", "replay", "--state", "quarantined", "--json")

    assert json.loads(found.stdout)["selected"] == 1
    assert go_on() == []
    assert value(where, "SELECT count(*) FROM delivery WHERE state = 'quarantined'") == 3


@pytest.mark.parametrize("how", ["id", "--conflicts"])
def test_replay_of_a_conflict_by_id_or_option_handles_it(run, go_on, where, how):
    chosen = [str(ids(where)[1])] if how == "id" else [how]

    result = run("deliveries", "replay", *chosen, "--yes")

    assert "1 delivery parsed again" in result.stdout
    assert go_on() == [("PaymentFailed", "default:msg_1,PaymentFailed")]
    assert value(where, "SELECT state FROM delivery WHERE id = ?", ids(where)[1]) == "done"


def test_a_delivery_is_read_as_the_type_that_an_operator_names(run, go_on, where):
    first, _, untyped = ids(where)

    run("deliveries", "replay", str(first), "--as", "InvoiceApproved", "--yes")
    run("deliveries", "replay", str(untyped), "--as", "PaymentFailed", "--yes")

    assert go_on() == [("InvoiceApproved", "default:msg_1"), ("PaymentFailed", "default:msg_1,-")]
    query = "SELECT event_type, sent_as FROM delivery WHERE id IN (?, ?) ORDER BY id"
    assert rows(where, query, first, untyped) == [
        ("InvoiceApproved", "InvoiceApproved"),
        ("PaymentFailed", ""),
    ]
    assert "sent as  (no type)" in run("deliveries", "show", str(untyped)).stdout


def test_a_dry_run_as_another_type_changes_nothing(run, go_on, where):
    result = run(
        "deliveries", "replay", "--state", "quarantined", "--as", "PaymentFailed", "--dry-run", "--json"
    )

    assert json.loads(result.stdout)["reread"] == 3
    assert value(where, "SELECT count(*) FROM delivery WHERE sent_as IS NULL") == 3


def test_conflicts_are_given_up_together_and_what_they_contradict_is_not(run, go_on, where):
    first, genuine, untyped = ids(where)

    told = json.loads(run("deliveries", "discard", "--conflicts", "--reason", "forged", "--json").stdout)

    assert told == {"selected": 2, "discarded": 2, "runs": 0, "reason": "forged", "dry_run": False}
    query = "SELECT id, state, error = 'forged' FROM delivery ORDER BY id"
    assert rows(where, query) == [(first, "quarantined", 0), (genuine, "done", 1), (untyped, "done", 1)]


def test_an_empty_filter_value_is_not_ignored(run, go_on, where):
    for command in (["replay"], ["discard", "--reason", "x"]):
        for empty, selected in (("--type", 1), ("--source", 0)):  # one has no type, and all have a source
            result = run("deliveries", *command, "--conflicts", empty, "", "--dry-run", "--json")
            assert json.loads(result.stdout)["selected"] == selected
