"""`reconcile`: the sandbox loses deliveries, and the comparison with its API finds these and no others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from billhook import Delivery, Handlers
from billhook.errors import ConfigError
from billhook.events import ContractCreated, InvoiceApproved
from billhook.signing import StandardWebhooks
from billhook.signing.source import Source
from support.apps import make_app
from support.billing_service import Service, answered, error
from support.inbox_view import change, place_of, rows, value
from support.receivers import BillhookReceiver, billhook_receiver, deliveries, flush, later, subscribe
from support.sandbox import API_TOKEN, Running, running
from support.scenarios import cycle, fee
from support.signing import SECRET

TYPES = {
    "CustomerCreated": "customerId",
    "ContractCreated": "contractId",
    "ContractExpired": "contractId",
    "InvoiceApproved": "invoiceId",
    "InvoicePaymentStatusChanged": "invoiceId",
    "CreditPoolIncreased": "customerId",
    "CreditPoolDepleted": "customerId",
}
LOST = {
    "CustomerCreated": 30, "ContractCreated": 30, "ContractExpired": 30, "InvoiceApproved": 30,
    "InvoicePaymentStatusChanged": 30, "CreditPoolIncreased": 30, "CreditPoolDepleted": 20,
}  # fmt: skip
"""How many deliveries of each type the sandbox never sends: 200."""
CUSTOMERS = 50
"""Enough: each loses one of a type with a probability of 0.9, and 30 of them have to."""
DAYS = 13
"""How long ago the sandbox's time begins; it is moved forward by a day less."""


class Business:
    """A sandbox that sends to a receiver, and `reconcile` on the receiver's inbox."""

    def __init__(self, sandbox: Running, receiver: BillhookReceiver, run: Callable[..., Result]) -> None:
        self.sandbox, self.receiver, self._run = sandbox, receiver, run
        self.since = sandbox.real.now() - timedelta(hours=1)
        for event_type in TYPES:
            subscribe(sandbox, event_type, receiver.url)

    def fault(self, kind: str, **more: Any) -> None:
        self.sandbox.ok("POST", "/_sandbox/faults", {"fault": kind, **more})

    def buy(self, number: int) -> str:
        """A new customer whose contract of ten days grants credits; its id."""
        body = {"name": f"Shop {number}", "aliases": [f"shop-{number}"], "currency": "USD"}
        made = self.sandbox.ok("POST", "/_sandbox/customers", body)["customer"]["id"]
        now = self.sandbox.sandbox.clock.now()
        grant = {"name": "Start", "creditProductId": "crp", "balanceKind": "Monetary", "schedule": "Once"}
        contract = {
            "customerId": made,
            "name": f"Deal {number}",
            "startDate": now.isoformat(),
            "endDate": (now + timedelta(days=10)).isoformat(),
            "autoRenewContract": False,
            "products": [fee(50, scheduling=cycle("Days", 10))],
            "creditGrants": [{**grant, "grantAmount": 100}],
        }
        self.sandbox.ok("POST", "/contracts", contract)
        return str(made)

    def live(self, customers: int) -> None:
        """Customers buy, use up their credits, and are billed; what is due is sent, and sent again."""
        made = [self.buy(number) for number in range(customers)]
        for customer_id in made:
            self.sandbox.ok("POST", "/credits/deduct", {"customerId": customer_id, "creditAmount": 100})
        self.sandbox.advance(f"P{DAYS - 1}D")
        self.sandbox.token = ""
        for _ in range(3):
            flush(self.sandbox, 60)
            later(self.sandbox, 60)

    def lost(self) -> Counter[tuple[str, str]]:
        """Type and object of what was never sent, by the sandbox's own log."""
        raised = {one["id"]: one for one in self.sandbox.ok("GET", "/_sandbox/raised?limit=1000")["raised"]}
        failed = [one for one in deliveries(self.sandbox) if one["state"] == "failed"]
        bodies = [(one["eventType"], raised[one["raisedId"]]["body"]) for one in failed]
        return Counter((event_type, body[TYPES[event_type]]) for event_type, body in bodies)

    def reconcile(self, *arguments: str, **options: str) -> Result:
        given = {"API_URL": self.sandbox.url, "API_CLIENT_ID": "sandbox", "API_REFRESH_TOKEN": API_TOKEN}
        result = self._run("reconcile", "--since", self.since.isoformat(), *arguments, **given | options)
        assert API_TOKEN not in result.output
        return result


@pytest.fixture
def business(tmp_path: Path, inbox_url: str, run: Callable[..., Result]) -> Iterator[Business]:
    start = datetime.now(UTC).replace(microsecond=0) - timedelta(days=DAYS)
    options = {"secrets": [SECRET], "retry_seconds": [1.0] * 5, "rate_limit": "100000/second"}
    with (
        running(start, **options) as sandbox,
        billhook_receiver(
            tmp_path, StandardWebhooks(), [SECRET], sandbox.real, BILLHOOK_INBOX_URL=inbox_url
        ) as receiver,
    ):
        yield Business(sandbox, receiver, run)


def found(result: Result) -> Counter[tuple[str, str]]:
    """Type and object of each missing event."""
    delivered = json.loads(result.stdout)
    return Counter(
        (one["event_type"], one["customer_id"] if TYPES[one["event_type"]] == "customerId" else one["id"])
        for one in delivered["events"]
    )


@pytest.mark.slow
def test_each_of_200_lost_events_is_found_and_no_other(business: Business):
    for event_type, times in LOST.items():
        business.fault("lose", eventType=event_type, times=times, probability=0.9)
    business.fault("drop", probability=0.5)  # their answers are lost: these arrive twice
    business.live(CUSTOMERS)
    lost = business.lost()

    result = business.reconcile("--read-customers", "--json")

    assert Counter(event_type for event_type, _ in lost.elements()) == LOST
    assert found(result) == lost
    assert result.exit_code == 1
    delivered = json.loads(result.stdout)
    assert (delivered["missing"], delivered["by_type"], delivered["injected"]) == (200, LOST, 0)
    # Each has a grant and a deduction, a contract that was created and ended, and an invoice.
    assert delivered["checked"] == {
        "contracts": CUSTOMERS,
        "credits": 2 * CUSTOMERS,
        "customers": CUSTOMERS,
        "invoices": CUSTOMERS,
    }
    assert business.receiver.statuses.count(200) > len(business.receiver.stored())  # `drop` struck


def test_control_without_a_lost_delivery_nothing_is_missing(business: Business):
    business.fault("drop", probability=0.5)
    business.live(4)

    result = business.reconcile("--read-customers")

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "0 events have no delivery; compared: 4 contracts, 8 credits, 4 customers, 4 invoices\n"
    )


def test_what_is_missing_is_injected_once_and_marked_as_synthetic(
    business: Business, tmp_path: Path, inbox_url: str
):
    for event_type in TYPES:
        business.fault("lose", eventType=event_type, times=2)
    business.live(3)
    where = place_of(inbox_url)
    before = value(where, "SELECT count(*) FROM delivery")

    first = business.reconcile("--read-customers", "--inject", "--json")
    again = business.reconcile("--read-customers", "--inject", "--json")

    # The two grants and the two depletions are reported: the API does not show their pools.
    delivered = [json.loads(result.stdout) for result in (first, again)]
    assert [(one["missing"], one["injected"]) for one in delivered] == [(14, 10), (4, 0)]
    assert {one["obstacle"] for one in delivered[1]["events"]} == {
        "the API's ledger does not show the pool and its kind, which the event needs"
    }
    assert (first.exit_code, again.exit_code) == (1, 1)
    assert value(where, "SELECT count(*) FROM delivery") == before + 10
    handlers = Handlers()
    heard: list[tuple[bool, str, str]] = []

    @handlers.on(InvoiceApproved, ContractCreated, name="book")
    def book(event: InvoiceApproved | ContractCreated, delivery: Delivery) -> None:
        heard.append((delivery.synthetic, delivery.source, delivery.event_type))

    (tmp_path / "shop").mkdir()
    app = make_app(tmp_path / "shop", BILLHOOK_INBOX_URL=inbox_url, handlers=[handlers])
    state = app.extensions["billhook"]
    state.handle_due()
    state.close()
    assert Counter(heard) == {
        (True, "reconcile", "InvoiceApproved"): 2,
        (True, "reconcile", "ContractCreated"): 2,
        (False, "default", "InvoiceApproved"): 1,
        (False, "default", "ContractCreated"): 1,
    }
    # Each is what the service raised, as far as its API shows it, and readable as its type.
    assert rows(where, "SELECT DISTINCT state FROM delivery") == [("done",)]
    assert not business.lost() - found(first)


def test_after_an_injection_of_all_that_is_missing_the_exit_code_is_good(business: Business):
    business.fault("lose", eventType="InvoiceApproved", times=1)
    business.live(1)

    assert [business.reconcile(*how).exit_code for how in ((), ("--inject",), ())] == [1, 0, 0]


def test_the_same_injection_at_the_same_time_stores_it_once(business: Business, inbox_url: str):
    from billhook.inbox import Inbox
    from billhook.reconcile import MissingEvent, inject

    at = datetime.now(UTC)
    event = InvoiceApproved(date=at, invoice_id="inv_1")
    one = MissingEvent("InvoiceApproved", "invoice", "inv_1", None, at, "", event)
    inbox = Inbox(inbox_url)

    stored = [sum(inject(inbox, [one], at)) for _ in range(2)]

    inbox.close()
    assert stored == [1, 0]


def test_customers_are_not_read_unless_that_is_asked_for(business: Business):
    business.fault("lose", eventType="CustomerCreated")
    business.fault("lose", eventType="ContractCreated")
    business.live(1)

    result = business.reconcile()

    (customer,) = business.sandbox.ok("GET", "/_sandbox/customers")["customers"]
    assert customer["updatedAt"] == customer["createdAt"]
    assert (result.exit_code, "CustomerCreated" in result.stdout) == (1, False)
    assert "not compared: 1 customer that no delivery tells of; --read-customers" in result.stderr
    assert "1 cannot be injected: the event holds the customer, whom no delivery tells of" in result.stdout
    notes = [line for line in result.stderr.splitlines() if "at all in this range" in line]
    assert len(notes) == 1
    assert notes[0].startswith(
        "note: there is no ContractCreated at all in this range; for types that you do"
    )


def test_a_sandbox_whose_clock_was_moved_needs_a_later_end_and_that_is_said(run, business: Business):
    delivered = business.reconcile().stderr
    assert delivered.startswith("note: the range ends at ")
    assert "in a sandbox whose clock was moved everything is later: give its time as --until" in delivered
    assert business.reconcile("--until", "2999-01-01").stderr == ""
    assert "sandbox whose clock" in " ".join(run("reconcile", "--help").stdout.split())


def test_an_invoice_that_changed_after_the_range_is_not_compared(business: Business):
    business.fault("lose", eventType="InvoiceApproved")
    business.live(1)
    just_issued = business.since + timedelta(days=10, hours=2)  # it is approved a day later

    result = business.reconcile("--until", just_issued.isoformat())

    assert (result.exit_code, "InvoiceApproved" in result.stdout) == (0, False)
    assert "note: not compared, changed after the range: 1 invoice" in result.stderr


def test_a_quarantined_delivery_is_named_and_not_replaced(business: Business, inbox_url: str):
    business.live(1)
    where = place_of(inbox_url)
    change(where, "UPDATE delivery SET state = 'quarantined' WHERE event_type = 'InvoiceApproved'")
    (quarantined,) = rows(where, "SELECT id FROM delivery WHERE event_type = 'InvoiceApproved'")[0]

    result = business.reconcile("--inject", "--json")

    (one,) = json.loads(result.stdout)["events"]
    assert one["quarantined_as"] == quarantined
    assert one["obstacle"] == f"delivery {quarantined} tells of it and is quarantined: replay that"
    assert (json.loads(result.stdout)["injected"], result.exit_code) == (0, 1)


def test_a_range_that_cannot_be_compared_and_wrong_credentials_are_refused(
    business: Business, inbox_url: str
):
    without_time = business.reconcile("--until", business.since.isoformat())
    wrong = business.reconcile(API_REFRESH_TOKEN="wrong-token-of-the-tests")
    business.live(1)
    change(place_of(inbox_url), "UPDATE delivery SET state = 'pruned', body = '' WHERE id = 2")
    pruned = business.reconcile()

    assert without_time.exit_code == 2
    assert "give an earlier --since, or a later --until" in without_time.stderr
    assert (wrong.exit_code, pruned.exit_code) == (1, 1)
    assert "check BILLHOOK_API_CLIENT_ID" in wrong.stderr
    assert "Traceback" not in wrong.output
    assert "deliveries of this range were pruned, up to delivery 2 of" in pruned.stderr


def test_no_sender_can_have_the_name_of_the_synthetic_source():
    with pytest.raises(ConfigError, match="which is the name of synthetic deliveries: choose another"):
        Source("reconcile", secrets=[SECRET])


# --- an API that answers as it likes ----------------------------------------------------------------


@pytest.fixture
def service(service: Service) -> Service:
    service.always("GET /invoices", page("invoices"))
    return service


@pytest.fixture
def compare(run: Callable[..., Result], inbox_url: str, credentials: dict[str, str]) -> Callable[..., Result]:
    """Runs `reconcile` for a day against the service."""

    def invoke(*arguments: str) -> Result:
        return run("reconcile", "--since", "1d", *arguments, **credentials)

    return invoke


def page(kind: str, *items: Any, cursor: str | None = None) -> Any:
    more = {"hasMore": cursor is not None, "nextCursor": cursor}
    return answered(200, {kind: list(items), "total": len(items), **more})


def one_contract(contract_id: str, **fields: Any) -> dict[str, Any]:
    at = (datetime.now(UTC) - timedelta(hours=2)).isoformat()
    known = {"id": contract_id, "customerId": "cus_1", "name": "Deal", "status": "Active", "startDate": at}
    return {**known, "createdAt": at, "updatedAt": at, **fields}


GONE = error(404, "invalid_request_error", "resource_not_found")


def test_all_pages_are_compared_and_a_customer_that_is_gone_is_passed_over(compare, service: Service):
    first = page("contracts", one_contract("con_1"), cursor="next")
    last = page("contracts", one_contract("con_2"), one_contract("con_3", createdAt="2020-01-01T00:00:00Z"))
    service.answer("GET /contracts", first, last)
    service.always("PUT /customers/cus_1", GONE)
    service.always("GET /credits", GONE)

    result = compare("--read-customers", "--inject", "--json")

    delivered = json.loads(result.stdout)
    assert [one["id"] for one in delivered["events"]] == ["con_1", "con_2"]
    assert {one["obstacle"] for one in delivered["events"]} == {
        "the event holds the customer, whom neither a delivery nor the API tells of"
    }
    assert (delivered["injected"], result.exit_code) == (0, 1)
    assert service.lines().count("PUT /customers/cus_1") == 1  # it is read once


def test_the_customer_of_a_contract_is_read_for_its_event(compare, service: Service, inbox_url: str):
    at = (datetime.now(UTC) - timedelta(days=400)).isoformat()
    counterparts = [{"type": "Salesforce", "id": "001"}, {"type": "Salesforce"}]
    customer = {"id": "cus_1", "name": "Acme", "createdAt": at, "updatedAt": at, "aliases": ["acme"]}
    service.always("GET /contracts", page("contracts", one_contract("con_1")))
    service.always(
        "PUT /customers/cus_1", answered(200, {"customer": {**customer, "externalIntegration": counterparts}})
    )
    service.always("GET /credits", answered(200, {"entries": []}))

    result = compare("--read-customers", "--inject")

    assert result.exit_code == 0, (
        result.output
    )  # the customer is older than the range: nothing more is missing
    ((body,),) = rows(place_of(inbox_url), "SELECT body FROM delivery")
    delivered = json.loads(body)["customer"]
    assert (delivered["customerId"], delivered["name"], delivered["aliases"]) == ("cus_1", "Acme", ["acme"])
    assert delivered["integrationEntities"] == [
        {"integrationProvider": "Salesforce", "integrationExternalId": "001", "syncStatus": "Unknown"}
    ]


def test_a_customer_whose_credits_are_refused_is_told_of_and_the_rest_compared(compare, service: Service):
    service.always("GET /contracts", page("contracts", one_contract("con_1")))
    service.always("GET /credits", error(400, "invalid_request_error", "invalid_request"))

    result = compare()

    assert "con_1" in result.stdout
    assert "note: not compared: credits of 1 customer, which the service refuses" in result.stderr
    assert json.loads(compare("--json").stdout)["unchecked"]["credits"] == 1


def test_a_failure_of_the_api_on_the_way_is_one_line_and_stores_nothing(compare, service: Service, inbox_url):
    service.answer(
        "GET /contracts",
        page("contracts", one_contract("con_1"), cursor="next"),
        page("contracts", cursor="next"),
    )

    result = compare("--inject")

    assert result.exit_code == 1
    assert "it says that there is more and gives no new cursor to it" in result.stderr
    assert "Traceback" not in result.output
    assert value(place_of(inbox_url), "SELECT count(*) FROM delivery") == 0


def test_a_contract_that_may_renew_or_was_deleted_is_not_taken_for_expired(compare, service: Service):
    ended = (datetime.now(UTC) - timedelta(hours=3)).isoformat()
    old = {"createdAt": "2020-01-01T00:00:00Z", "endDate": ended}
    service.always(
        "GET /contracts",
        page(
            "contracts",
            one_contract("con_1", **old),
            one_contract("con_2", **old, autoRenewContract=True),
            one_contract("con_3", **old, autoRenewContract=False, deletedAt=ended),
            one_contract("con_4", **old, autoRenewContract=False),
            one_contract("con_5", createdAt=ended, endDate=ended, autoRenewContract=False),
        ),
    )

    result = compare("--type", "ContractExpired", "--json")

    found = [(one["event_type"], one["id"]) for one in json.loads(result.stdout)["events"]]
    assert found == [("ContractExpired", "con_4"), ("ContractExpired", "con_5")]
