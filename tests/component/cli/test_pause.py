"""`billhook handlers pause | resume`, and what other commands say of a paused handler."""

from __future__ import annotations

import json
import re

import pytest

from billhook import Handlers
from billhook.events import InvoiceApproved, PingTest, sample
from billhook.extension import get_state
from billhook.standalone import load_handlers
from support.apps import deliver

MODULE = """
from billhook import Handlers
from billhook.events import InvoiceApproved, PingTest

handlers = Handlers()


@handlers.on(InvoiceApproved, name="book", at_most=2, rate="100/min", pause_after=5)
def book(event): ...


@handlers.on(PingTest, InvoiceApproved, name="note")
def note(event): ...
"""


@pytest.fixture
def shop(app_with, inbox_url, tmp_path, run):
    """An inbox with an invoice whose handler `book` is paused, and the module of its handlers."""
    (tmp_path / "shop.py").write_text(MODULE)
    app = app_with(handlers=load_handlers(["shop.py"]), BILLHOOK_ENGINE="worker")
    result = run("handlers", "pause", "book", "--reason", "the ledger\x1b is closed", HANDLERS="shop.py")
    assert result.exit_code == 0, result.output
    assert "book is PAUSED" in result.stdout
    deliver(app, sample(InvoiceApproved).to_json(), "InvoiceApproved", message_id="msg_1")
    deliver(app, b"{}", "PingTest", message_id="msg_2")
    get_state(app).handle_due()
    return app


def test_the_reason_of_a_pause_cannot_control_the_terminal(run, shop):
    said, _ = run("handlers", "shop.py").stderr.splitlines()

    assert re.fullmatch(r"PAUSED: book since [0-9-]+ [0-9:]+ UTC \(the ledger\\x1b is closed\)", said)


def test_handlers_names_what_waits_for_a_handler_that_is_not_there(run, shop, tmp_path):
    (tmp_path / "renamed.py").write_text(MODULE.replace('name="book"', 'name="billing.book"'))

    result = run("handlers", "renamed.py")

    assert result.stderr.splitlines()[-1] == (
        "1 run waits for book, and no handler has this name: each attempt fails, and after the last one the "
        'run is dead; if it has a new name or module, add aliases=["book"] there, or have another handler '
        "take over its runs with `billhook deliveries replay --handler book --to NEW`; if it was removed, "
        "`billhook deliveries discard --handler book --reason removed` ends its deliveries, and with them "
        "what is unfinished of their other handlers"
    )
    assert json.loads(run("handlers", "renamed.py", "--json").stdout)["missing"] == ["book"]
    assert json.loads(run("handlers", "shop.py", "--json").stdout)["missing"] == []
    ended = run("deliveries", "discard", "--handler", "book", "--reason", "removed", "--yes")
    assert "1 of 1 delivery discarded" in ended.stdout
    assert json.loads(run("handlers", "renamed.py", "--json").stdout)["missing"] == []


def test_deliveries_of_a_paused_handler_have_a_state_of_their_own(run, shop):
    listed = json.loads(run("deliveries", "list", "--json").stdout)
    assert {one["id"]: one["standing"] for one in listed} == {1: "paused", 2: "done"}
    assert {(one["handler"], one["paused"]) for one in listed[1]["runs"]} == {("book", True), ("note", False)}
    for state, ids in (("paused", [1]), ("waiting", []), ("retrying", []), ("running", [])):
        found = json.loads(run("deliveries", "list", "--json", "--state", state).stdout)
        assert [one["id"] for one in found] == ids

    findings = json.loads(run("doctor", "--json").stdout)["findings"]
    paused = [(one["level"], one["remedy"]) for one in findings if one["code"] == "handler-paused"]
    assert paused == [("warning", "`billhook handlers resume book`")]


def test_a_discarded_run_of_a_paused_handler_waits_for_nothing(run, shop):
    assert run("deliveries", "discard", "1", "--reason", "booked by hand", "--yes").exit_code == 0

    shown = run("deliveries", "show", "1")

    assert "discarded" in shown.stdout
    assert "limit allows" not in shown.stdout


def test_a_delivery_that_waits_for_its_handlers_limit_says_so(app_with, inbox_url, run):
    handlers = Handlers()
    handlers.on(PingTest, name="slow", rate="1/d")(lambda event: None)
    app = app_with(handlers=[handlers], BILLHOOK_ENGINE="worker")
    for number in range(2):
        deliver(app, b"{}", "PingTest", message_id=f"msg_{number}")
    get_state(app).handle_due()

    first, second = run("deliveries", "list").stdout.splitlines()[-2:]

    assert "at its limit" in first
    assert "at its limit" not in second
