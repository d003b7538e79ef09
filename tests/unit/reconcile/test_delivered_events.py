"""Events of deliveries: which ledger entries they account for, and which deliveries report nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import billhook
from billhook.cli.reconcile import TYPES
from billhook.events import (
    EVENT_TYPES,
    ContractCreated,
    CreditPoolDepleted,
    CreditPoolIncreased,
    InvoiceApproved,
    sample,
)
from billhook.inbox.reading.searches import ReadBody
from billhook.reconcile import DeliveredEvents, MissingEvent, synthetic
from billhook.reconcile.delivered_events import PROVING_TYPES, CreditChange
from billhook.resources import Contract, Invoice
from billhook.resources import sample as sample_resource

NOON = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)


def delivered(*events: Any, state: str = "done") -> DeliveredEvents:
    found = DeliveredEvents()
    for number, event in enumerate(events):
        found.add(ReadBody(number + 1, event.type, state, event.to_json()))
    return found


def grant(amount: int, balance: int, minutes: int = 0) -> CreditPoolIncreased:
    return sample(
        CreditPoolIncreased, customer_id="cus_1", granted_amount=Decimal(amount), balance=Decimal(balance),
        date=NOON + timedelta(minutes=minutes),
    )  # fmt: skip


def change(amount: int | None, balance: int, minutes: int = 0) -> CreditChange:
    number = None if amount is None else Decimal(amount)
    return CreditChange(NOON + timedelta(minutes=minutes), number, Decimal(balance))


def test_a_type_in_the_body_counts_before_a_worker_has_read_it():
    found, body = DeliveredEvents(), json.loads(sample(InvoiceApproved, invoice_id="inv_1").to_json())

    for number, name in enumerate(("InvoiceApproved", "Odd", 5)):
        content = json.dumps({**body, "invoiceId": f"inv_{number}", "type": name}).encode()
        found.add(ReadBody(number, "", "received", content, "type"))

    assert found.has("InvoiceApproved", "inv_0")
    assert not found.has("InvoiceApproved", "inv_1")
    assert dict(found.counts) == {"InvoiceApproved": 1}


@pytest.mark.parametrize(
    ("events", "changes", "unmatched"),
    [
        ([grant(50, 50)], [change(50, 50)], []),
        ([], [change(50, 50)], [0]),
        ([grant(50, 50)], [change(50, 50), change(50, 100)], [1]),
        # The event of the second is not taken for the first, which comes before it in the list.
        ([grant(50, 100, 1)], [change(50, 50), change(50, 100, 1)], [0]),
        # The ledger's balance may be that of all pools: then amount and moment decide.
        ([grant(50, 7)], [change(50, 50)], []),
        ([grant(50, 7), grant(50, 9, 10)], [change(50, 50, 9)], []),
        ([grant(51, 50)], [change(50, 50)], [0]),
        ([grant(50, 50, 61)], [change(50, 50)], [0]),
        ([grant(50, 50, 60)], [change(50, 50)], []),
    ],
)
def test_each_event_accounts_for_one_ledger_entry(events, changes, unmatched):
    assert list(delivered(*events).unmatched("CreditPoolIncreased", "cus_1", changes)) == unmatched


def test_a_depletion_has_no_amount():
    event = sample(CreditPoolDepleted, customer_id="cus_1", date=NOON, balance=Decimal(0))

    found = delivered(event)

    assert list(found.unmatched("CreditPoolDepleted", "cus_1", [change(None, 0), change(None, 0)])) == [1]
    assert list(found.unmatched("CreditPoolDepleted", "cus_2", [change(None, 0)])) == [0]


@pytest.mark.parametrize("body", [b"not json", b"[]", b"{}", b'{"invoiceId": 7}', b'{"invoiceId": null}'])
def test_a_body_without_the_id_tells_of_nothing(body):
    found = DeliveredEvents()

    found.add(ReadBody(1, "InvoiceApproved", "quarantined", body))
    found.add(ReadBody(2, "InvoiceApproved", "received", body))

    assert (found.counts, found.has("InvoiceApproved", "7")) == ({}, False)
    assert found.quarantined_as("InvoiceApproved", "7") is None


def test_an_unreadable_change_of_credits_tells_of_nothing():
    found = DeliveredEvents()

    found.add(ReadBody(1, "CreditPoolIncreased", "done", json.dumps({"customerId": "cus_1"}).encode()))

    assert list(found.unmatched("CreditPoolIncreased", "cus_1", [change(50, 50)])) == [0]


def test_a_quarantined_delivery_is_kept_apart():
    event = sample(InvoiceApproved, invoice_id="inv_1")

    found = delivered(event, state="quarantined")

    assert not found.has("InvoiceApproved", "inv_1")
    assert found.quarantined_as("InvoiceApproved", "inv_1") == 1


def test_the_page_says_of_every_event_whether_it_can_be_missing():
    page = (Path(billhook.__file__).parent / "reconcile" / "README.md").read_text(encoding="utf-8")
    proven, _, others = page.partition("Nothing that the API lists proves the other events: ")
    table = [row.split("|")[1] for row in proven.splitlines() if row.startswith("| ")][1:]

    named = {name for cell in table for name in cell.replace(",", " ").split()}

    assert named == set(PROVING_TYPES) == {*TYPES, "AnonymousCustomer"}
    assert set(others.partition(".")[0].replace(",", " ").split()) == set(EVENT_TYPES) - named


def missing(event_type: str) -> MissingEvent:
    return MissingEvent(event_type, "invoice", "inv_1", None, NOON, "")


def test_amounts_that_the_api_does_not_show_are_not_invented():
    paid = sample_resource(Invoice, billing_status="Paid", amount=Decimal(9))
    unpaid = sample_resource(Invoice, billing_status="PendingPayment", amount=Decimal(9), payment_info=None)
    partly = sample_resource(Invoice, billing_status="Rejected", amount=Decimal(9))

    found = [synthetic.payment_status_changed(one) for one in (paid, unpaid)]

    assert [(one["amountDue"], one["amountPaid"]) for one in found] == [(0, 9), (9, 0)]
    assert synthetic.payment_status_changed(partly) == "the API does not show how much of the invoice is paid"


def test_an_event_that_cannot_do_without_a_value_is_not_made():
    contract = sample_resource(Contract, status=None)

    fields = synthetic.contract_created(contract, {}, sought=False)
    one = synthetic.with_event(missing("ContractCreated"), ContractCreated, fields)

    assert one.event is None
    assert one.obstacle == "the API does not show a usable customer, status"
