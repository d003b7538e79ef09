"""What fails is seen before it is dead, and can be given up."""

from __future__ import annotations

import json
import re

import pytest

from billhook import Handlers
from billhook.events import CustomerCreated, InvoiceApproved, PaymentFailed, sample
from billhook.extension import get_state
from billhook.inbox.reading import deliveries
from billhook.inbox.tables.states import DeliveryStatus, delivery_status
from support.apps import deliver
from support.inbox_view import change
from support.postgres import BOTH

NEVER = "no collector for USD"


@pytest.fixture
def busy(app_with, inbox_url):
    """1: done; 2: retrying; 3: dead; 4: quarantined; 5: waiting for its turn behind 2; 6: received."""
    handlers = Handlers()

    @handlers.on(PaymentFailed, name="chase", retry=[3600], ordered_by="invoice_id")
    def chase(event: PaymentFailed) -> None:
        raise KeyError(NEVER)

    @handlers.on(InvoiceApproved, name="send", retry=[])
    def send(event: InvoiceApproved) -> None:
        raise RuntimeError("no mail\nat all")

    @handlers.on(PaymentFailed, InvoiceApproved, CustomerCreated, name="book")
    def book(event: object) -> None: ...

    app = app_with(handlers=[handlers])
    for number, (model, body) in enumerate(
        [
            (CustomerCreated, None), (PaymentFailed, None), (InvoiceApproved, None),
            (InvoiceApproved, b"{}"), (PaymentFailed, None),
        ],
        1,
    ):  # fmt: skip
        deliver(app, body or sample(model).to_json(), model.type, message_id=f"m{number}")
        get_state(app).handle_due()
    deliver(app, sample(CustomerCreated).to_json(), "CustomerCreated", message_id="m6")
    return app


def ids(result) -> list[int]:
    assert result.exit_code == 0, result.output
    return [one["id"] for one in json.loads(result.stdout)]


def state(run, number: int) -> str:
    return next(one["standing"] for one in listed(run) if one["id"] == number)


def listed(run) -> list[dict]:
    return json.loads(run("deliveries", "list", "--json").stdout)


@pytest.mark.parametrize("bare_url", BOTH, indirect=True)
def test_a_state_or_an_error_selects(run, busy):
    selected = {
        "--state retrying": [2],
        "--state waiting": [5],
        "--state running": [],
        "--state planned": [5, 2],
        "--state unfinished": [6, 5, 2],
        "--state received": [6],
        "--error COLLECTOR": [2],
        "--error mail": [3],
        "--error required": [4],
        "--error 100%": [],
        "--state dead --error collector": [],
    }

    found = {one: ids(run("deliveries", "list", "--json", *one.split())) for one in selected}

    assert found == selected


@pytest.mark.parametrize("bare_url", BOTH, indirect=True)
@pytest.mark.parametrize("at_work", [(), (("chase", 5), ("book", 2))], ids=["at rest", "at work"])
def test_the_state_filter_selects_deliveries_of_the_shown_status(busy, where, at_work):
    for handler, delivery_id in at_work:  # the first before its turn, the other beside one that failed
        query = "UPDATE run SET state = 'running' WHERE handler = ? AND delivery_id = ?"
        change(where, query, handler, delivery_id)
    inbox = get_state(busy).inbox
    everything = deliveries.with_runs(inbox, deliveries.page(inbox, deliveries.DeliveryFilter(), 50))

    told = {one.summary.id: str(one.status) for one in everything}
    assert told == {
        1: "done", 2: "retrying", 3: "dead", 4: "quarantined", 5: "running" if at_work else "waiting",
        6: "received",
    }  # fmt: skip
    for word in DeliveryStatus:
        selected = [one.id for one in deliveries.page(inbox, deliveries.DeliveryFilter(state=word), 50)]
        assert selected == [one.summary.id for one in everything if one.status is word]
    with pytest.raises(ValueError, match="gone"):
        deliveries.DeliveryFilter(state="gone").conditions()


def test_a_failed_run_decides_the_status_of_its_delivery():
    for expected, *runs in (
        ("waiting",),
        ("waiting", "due"),
        ("waiting", "succeeded", "due"),
        ("running", "running", "due"),
        ("retrying", "running", "retrying"),
    ):
        assert delivery_status("planned", runs) == expected
        assert delivery_status("done", runs) == "done"


def test_list_shows_the_handler_in_the_worst_state(run, busy):
    lines = run("deliveries", "list").stdout.splitlines()
    dead, retrying = (line for line in lines if line.startswith(("2 ", "3 ")))

    at = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    assert re.match(rf"2 +{at} .* chase \+1 +1 +{at} +KeyError: 'no collector for USD'", retrying)
    assert "RuntimeError: no mail at all" in dead


# --- giving up ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bare_url", BOTH, indirect=True)
def test_discarded_deliveries_are_done_with_the_reason_and_not_called_again(run, busy, frozen_clock):
    result = run("deliveries", "discard", "2", "3", "4", "6", "--reason", "the customer\n is gone", "--yes")

    assert result.stdout == "4 of 4 deliveries discarded, with 2 runs\n"
    told = {one["id"]: one for one in listed(run)}
    assert [told[number]["standing"] for number in (2, 3, 4, 6)] == ["done"] * 4
    errors = [each["last_error"] for number in (2, 3) for each in told[number]["runs"]]
    assert errors.count("the customer is gone") == 2
    assert [told[number]["error"]["error"] for number in (4, 6)] == ["the customer is gone"] * 2
    assert "discarded: the customer is gone" in run("deliveries", "show", "4").stdout
    lines = run("deliveries", "list", "--state", "done").stdout.splitlines()
    assert sum("the customer is gone" in line for line in lines) == 4
    assert len(run("deliveries", "list", "--error", "IS GONE").stdout.splitlines()) == 2 + 4


@pytest.mark.parametrize("bare_url", BOTH, indirect=True)
def test_discard_releases_the_next_run_of_an_order_key(run, busy):
    run("deliveries", "discard", "2", "--reason", "x", "--yes")

    assert state(run, 5) == "waiting"
    get_state(busy).handle_due()
    assert state(run, 5) == "retrying"


def test_discard_ends_waiting_and_running_runs_and_ignores_late_results(run, busy):
    inbox = get_state(busy).inbox
    now = get_state(busy).dispatcher.clock.now()
    with inbox.database.write() as connection:  # its retry is due now
        connection.exec_driver_sql("UPDATE run SET due_at = '2020-01-01 00:00:00' WHERE delivery_id = 2")
    with inbox.transaction("somebody") as transaction:
        (claim,) = transaction.claim(5, now, now.replace(year=now.year + 1), idle=5)

    run("deliveries", "discard", "2", "5", "--reason", "enough", "--yes")
    report = get_state(busy).dispatcher.attempt(claim)
    with inbox.transaction("somebody") as transaction:
        settled = transaction.settle([report.run_result])

    assert settled == set()
    assert [state(run, number) for number in (2, 5)] == ["done", "done"]


def test_a_replay_undoes_it(run, busy):
    run("deliveries", "discard", "4", "2", "--reason", "x", "--yes")

    run("deliveries", "replay", "2", "--handler", "chase", "--yes")
    run("deliveries", "replay", "4", "--yes")

    assert [state(run, number) for number in (2, 4)] == ["waiting", "received"]
