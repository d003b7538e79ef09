"""`deliveries resend`: an edited body goes to one handler, as a delivery of its own."""

from __future__ import annotations

import json

import click
import pytest

from support.inbox_view import rows

MODULE = """
from billhook import Handlers
from billhook.events import InvoiceApproved, PaymentFailed
handlers = Handlers()
@handlers.on(InvoiceApproved, PaymentFailed, name="book", identity=("invoice_id",), ordered_by="invoice_id")
def book(event):
    pass
@handlers.on(InvoiceApproved, name="send")
def send(event):
    pass
"""
COLUMNS = "id, edited_from, event_type, source, state, identifier_1"


@pytest.fixture
def resend(run, shop, tmp_path):
    """Runs `deliveries resend` with a body in a file, and the handlers of a module."""
    (tmp_path / "orders.py").write_text(MODULE)

    def invoke(*arguments, body=b'{"date": "2026-01-15T09:30:00Z", "invoiceId": "inv_9"}'):
        file = tmp_path / "body.json"
        file.write_bytes(body)
        return run("deliveries", "resend", *arguments, "--file", str(file), HANDLERS="orders.py")

    return invoke


def test_an_edited_delivery_is_a_new_one_for_one_handler(resend, run, where):
    result = resend("2", "--handler", "book")

    assert (result.exit_code, result.stdout) == (
        0,
        "delivery 5 is delivery 2 with the edited body, for book\n",
    )
    assert rows(where, f"SELECT {COLUMNS} FROM delivery WHERE id = 5") == [
        (5, 2, "InvoiceApproved", "default", "planned", "inv_9")
    ]
    # Ordered as any other, and no content duplicate.
    assert rows(
        where, "SELECT handler, state, identity, order_key IS NULL FROM run WHERE delivery_id = 5"
    ) == [("book", "due", None, 0)]
    assert "its body was edited by an operator, from delivery 2" in run("deliveries", "show", "5").stdout
    assert json.loads(run("deliveries", "show", "5", "--json").stdout)["edited_from"] == 2
    (action,) = json.loads(run("actions", "--json").stdout)
    assert (action["what"], action["which"]) == ("resend", "2 edited, handler book: 5")


def test_the_same_body_again_is_no_duplicate_of_the_original(resend, run, where):
    body = run("deliveries", "show", "2", "--body").stdout_bytes
    first, second = (resend("2", "--handler", "book", body=body) for _ in range(2))

    assert [one.stdout[:11] for one in (first, second)] == ["delivery 5 ", "delivery 6 "]
    assert len(set(rows(where, "SELECT key FROM delivery WHERE id IN (2, 5, 6)"))) == 3


def test_only_that_handler_is_called(resend, shop):
    shop.handle()

    resend("2", "--handler", "book")

    assert shop.handle() == ["book"]


@pytest.mark.parametrize(
    ("arguments", "body", "message"),
    [
        (("2", "--handler", "chase"), b"{}", "no handler 'chase' handles InvoiceApproved from default: "),
        (("2", "--handler", "book"), b"{", "the body is not JSON"),
        (("2", "--handler", "book"), b"{}", "invoiceId: Field required); nothing was stored"),
        (("9", "--handler", "book"), b"{}", "there is no delivery 9 with a body"),
    ],
)  # fmt: skip
def test_what_cannot_be_handled_is_not_stored(resend, where, arguments, body, message):
    result = resend(*arguments, body=body)

    assert result.exit_code != 0
    assert message in result.stderr
    assert rows(where, "SELECT count(*) FROM delivery") == [(4,)]
    assert rows(where, "SELECT deliveries FROM billhook_action WHERE deliveries IS NULL") == []


def test_the_files_of_the_handlers_are_arguments_or_an_option(run, resend, tmp_path):
    (tmp_path / "same.json").write_text('{"date": "2026-01-15T09:30:00Z", "invoiceId": "inv_9"}')
    arguments = ("deliveries", "resend", "2", "--handler", "book", "--file", "same.json")

    refused = run(*arguments)
    named = run(*arguments, "orders.py")

    assert "it has none; name your modules or files as arguments or in BILLHOOK_HANDLERS" in refused.stderr
    assert (named.exit_code, named.stdout[:11]) == (0, "delivery 5 ")


def test_without_a_file_the_editor_opens(run, resend, where, monkeypatch):
    seen = []
    monkeypatch.setattr(click, "edit", lambda text, extension: seen.append(text))

    result = run("deliveries", "resend", "2", "--handler", "book", HANDLERS="orders.py")

    assert "the body was not edited; nothing was stored" in result.stderr
    assert '"invoiceId":"inv_1"' in seen[0].replace(" ", "")
    assert rows(where, "SELECT count(*) FROM delivery") == [(4,)]

    wrong = run("deliveries", "resend", "2", "--handler", "chase", HANDLERS="orders.py")
    assert "no handler 'chase' handles" in wrong.stderr
    assert len(seen) == 1  # it did not open for what cannot be handled
