"""Twins on the command line, and handing old deliveries to a handler that is newer than they are."""

from __future__ import annotations

import pytest

from billhook import Handlers
from billhook.events import InvoiceApproved, PingTest
from support.apps import deliver, make_app
from support.inbox_view import rows, value

APPROVED = b'{"date":"2026-01-15T09:30:00Z","invoiceId":"inv_%d"}'
NEWER = """
from billhook import Handlers
from billhook.events import InvoiceApproved

handlers = Handlers()

@handlers.on(InvoiceApproved, name="audit", ordered_by="invoice_id")
def audit(event): ...
"""


@pytest.fixture
def filled(tmp_path):
    """1: an invoice; 2: the same again, a twin for `book`; 3: another invoice; 4: a ping. All are done."""
    handlers = Handlers()
    handlers.on(InvoiceApproved, name="book", identity=("invoice_id",))(lambda event: None)
    handlers.on(PingTest, name="pong")(lambda event: None)
    app = make_app(tmp_path, BILLHOOK_ENGINE="inline", handlers=[handlers])
    for number, invoice in ((1, 1), (2, 1), (3, 2)):
        deliver(app, APPROVED % invoice, "InvoiceApproved", message_id=f"m{number}")
    deliver(app, message_id="m4")
    (tmp_path / "newer.py").write_text(NEWER)
    app.extensions["billhook"].close()
    return tmp_path / "billhook.db"


def runs(path, handler):
    query = "SELECT delivery_id, state FROM run WHERE handler = ? ORDER BY delivery_id"
    return rows(path, query, handler)


def test_deliveries_are_handed_to_a_handler_that_is_newer(run, filled):
    selection = ("--type", "InvoiceApproved", "--handler", "audit")
    result = run("deliveries", "replay", *selection, "--yes", HANDLERS="newer.py")

    assert result.exit_code == 0, result.output
    assert (
        "3 of 3 deliveries replayed: 0 runs due again, 0 deliveries parsed again, "
        "3 deliveries handled for the first time" in result.stdout
    )
    assert runs(filled, "audit") == [(1, "due"), (2, "waiting"), (3, "due")]


def test_replay_by_handler_alone_does_not_backfill(run, filled):
    nothing = run("deliveries", "replay", "--handler", "audit", "--yes", HANDLERS="newer.py")

    assert nothing.stdout == "no deliveries match; none has a run of audit; known handlers: book, pong\n"
    assert value(filled, "SELECT count(*) FROM run WHERE handler = 'audit'") == 0
