"""`deliveries` and what waits for an operator: conflicts, look-alikes, and what names no type."""

from __future__ import annotations

import json

import pytest

from billhook import Handlers
from billhook.events import InvoiceApproved, PaymentFailed, sample
from support.apps import deliver, make_app
from support.inbox_view import rows, value

BODY = sample(PaymentFailed).to_json()


class Books:
    """An app that handles two types; `handled` is what it was given."""

    def __init__(self, folder, inbox_url):
        handlers = Handlers()
        self.handled = []

        @handlers.on(InvoiceApproved, PaymentFailed, name="book")
        def book(event, delivery):
            self.handled.append((event.type, delivery.idempotency_key))

        self.app = make_app(
            folder, BILLHOOK_ENGINE="inline", BILLHOOK_INBOX_URL=inbox_url, handlers=[handlers]
        )

    def go_on(self):
        self.app.extensions["billhook"].handle_due()
        return self.handled


@pytest.fixture
def books(tmp_path, inbox_url):
    """1: PaymentFailed sent as InvoiceApproved; and the genuine one, and one without a type, of its key."""
    books = Books(tmp_path, inbox_url)
    for event_type in ("InvoiceApproved", "PaymentFailed", "not a type"):
        deliver(books.app, BODY, event_type, message_id="msg_1")
    yield books
    books.app.extensions["billhook"].close()


def ids(where):
    return [one for (one,) in rows(where, "SELECT id FROM delivery ORDER BY id")]


def test_replay_by_filters_skips_conflicts(run, books, where):
    found = run("deliveries", "replay", "--state", "quarantined", "--json")

    assert json.loads(found.stdout)["selected"] == 1
    assert books.go_on() == []
    assert value(where, "SELECT count(*) FROM delivery WHERE state = 'quarantined'") == 3


@pytest.mark.parametrize("how", ["id", "--conflicts"])
def test_replay_of_a_conflict_by_id_or_option_handles_it(run, books, where, how):
    chosen = [str(ids(where)[1])] if how == "id" else [how]

    result = run("deliveries", "replay", *chosen, "--yes")

    assert "1 delivery parsed again" in result.stdout
    assert books.go_on() == [("PaymentFailed", "default:msg_1,PaymentFailed")]
    assert value(where, "SELECT state FROM delivery WHERE id = ?", ids(where)[1]) == "done"


def test_a_delivery_is_read_as_the_type_that_an_operator_names(run, books, where):
    first, _, untyped = ids(where)

    run("deliveries", "replay", str(first), "--as", "InvoiceApproved", "--yes")
    run("deliveries", "replay", str(untyped), "--as", "PaymentFailed", "--yes")

    assert books.go_on() == [("InvoiceApproved", "default:msg_1"), ("PaymentFailed", "default:msg_1,-")]
    query = "SELECT event_type, sent_as FROM delivery WHERE id IN (?, ?) ORDER BY id"
    assert rows(where, query, first, untyped) == [
        ("InvoiceApproved", "InvoiceApproved"),
        ("PaymentFailed", ""),
    ]
    assert "sent as  (no type)" in run("deliveries", "show", str(untyped)).stdout


def test_a_dry_run_as_another_type_changes_nothing(run, books, where):
    result = run(
        "deliveries", "replay", "--state", "quarantined", "--as", "PaymentFailed", "--dry-run", "--json"
    )

    assert json.loads(result.stdout)["reread"] == 3
    assert value(where, "SELECT count(*) FROM delivery WHERE sent_as IS NULL") == 3


def test_conflicts_are_given_up_together_and_what_they_contradict_is_not(run, books, where):
    first, genuine, untyped = ids(where)

    told = json.loads(run("deliveries", "discard", "--conflicts", "--reason", "forged", "--json").stdout)

    assert told == {"selected": 2, "discarded": 2, "runs": 0, "reason": "forged", "dry_run": False}
    query = "SELECT id, state, error = 'forged' FROM delivery ORDER BY id"
    assert rows(where, query) == [(first, "quarantined", 0), (genuine, "done", 1), (untyped, "done", 1)]


def test_an_empty_filter_value_is_not_ignored(run, books, where):
    for command in (["replay"], ["discard", "--reason", "x"]):
        for empty, selected in (("--type", 1), ("--source", 0)):  # one has no type, and all have a source
            result = run("deliveries", *command, "--conflicts", empty, "", "--dry-run", "--json")
            assert json.loads(result.stdout)["selected"] == selected
