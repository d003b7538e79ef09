"""The demo: customers, contracts and usage that make the service raise each event type.

`billhook demo` runs the whole scenario; `billhook sandbox --seed demo` starts with its data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from billhook.events import EVENT_TYPES

SendRequest = Callable[[str, str, Any], Any]
"""Sends method, path and JSON body with valid credentials; returns the decoded response."""

DEMO_CUSTOMER = "acme"
"""The externalId of the demo's first customer."""

_WITH_THRESHOLD = ("CommitmentUsageCrossed", "CurrencyCommitmentUsageCrossed", "CreditPoolThresholdCrossed")
_PRODUCTS = ("calls", "storage", "compute", "tokens")

_PRICE_PER_UNIT = {"type": "PerUnit", "price": 1}
PRICES: Mapping[str, Mapping[str, Any]] = {
    "per unit": {"pricing": _PRICE_PER_UNIT},
    "tiers": {
        "pricing": {"type": "Tiered", "tiers": [{"upTo": 100, "price": 1}, {"upTo": 200, "price": 0.5}]}
    },
    "commitment": {
        "pricing": {"type": "PerUnit", "price": 2},
        "commitment": {"units": 100, "price": 80, "type": "Units"},
    },
    "minimum charge": {
        "pricing": _PRICE_PER_UNIT,
        "commitment": {"units": 100, "price": 100, "type": "Currency"},
    },
}
"""Terms of a product in a contract. Those with credits are `per unit`, with `consumesCreditProductIds`."""
STARTER_GRANT = {"name": "Starter", "balanceKind": "Monetary", "grantAmount": 100, "schedule": "Once"}
"""Credits that a contract grants, without the id of their credit product."""


def run_scenario(call: SendRequest, callback_url: str, now: datetime) -> Iterator[str]:
    """Subscribe `callback_url` to every event type and make each event happen; yield a line for each step.

    `now` is the service's time, as `GET /_sandbox/clock` returns it.
    """
    for event_type in EVENT_TYPES:
        threshold = {"threshold": 80} if event_type in _WITH_THRESHOLD else {}
        call("POST", "/webhook", {"callbackUrl": callback_url, "eventType": event_type, **threshold})
    yield f"subscribed to {len(EVENT_TYPES)} event types"
    create_demo_data(call, now)
    yield "made products, meters, customers and contracts"
    yield f"sent {send_usage(call, now)} usage events"
    # More than a month: the billing cycle and the calendar month end, and invoices are approved.
    call("POST", "/_sandbox/clock", {"advance": "P40D"})
    yield "moved the clock by 40 days"
    invoices = call("GET", "/invoices?billingStatus=PendingPayment", None)["invoices"]
    first, *others = invoices
    failed = {"outcome": "failed", "failureReason": "card_declined"}
    call("POST", f"/_sandbox/invoices/{first['id']}/payments", failed)
    for invoice in others[:1]:
        call("POST", f"/_sandbox/invoices/{invoice['id']}/payments", {"outcome": "paid"})
    yield "had one payment fail and another succeed"


def seed_demo_data(send: SendRequest, now: datetime, on_request: Callable[[], None] = lambda: None) -> bool:
    """Create the demo data and send its usage. Returns False if the demo's customer exists already.

    `on_request` is called after each request, for a progress bar.
    """

    def counted(method: str, path: str, body: Any) -> Any:
        response = send(method, path, body)
        on_request()
        return response

    # A second seed would create every customer again, under other ids.
    listed = send("GET", "/_sandbox/customers?limit=1000", None)["customers"]
    if any(customer.get("externalId") == DEMO_CUSTOMER for customer in listed):
        return False
    create_demo_data(counted, now)
    send_usage(counted, now)
    return True


def create_demo_data(call: SendRequest, now: datetime) -> None:
    """Create four products with meters, credits for one of them, and three customers, two with a contract."""
    products = {name: _metered(call, name) for name in _PRODUCTS}
    credit = call("POST", "/_sandbox/creditProducts", {"name": "Tokens"})["creditProduct"]["id"]
    acme = _customer(call, "Acme Ltd", DEMO_CUSTOMER, "ada@acme.example")
    bounce = _customer(call, "Bounce GmbH", "bounce", "nobody@bounce.invalid")
    # Without a contract: NewCustomerWithoutContract after a week.
    _customer(call, "Idle Inc", "idle", "ida@idle.example")
    # The renewal notice comes 30 days before the end, so within the 40 days that the clock is moved.
    sold = _sold(products, credit)
    grants = [{**STARTER_GRANT, "creditProductId": credit}]
    _contract(call, acme, "Acme by use", now, 60, sold, currency="USD", creditGrants=grants)
    # Not renewed, and over within 40 days: ContractExpired. Its mail bounces: InvoiceSendFailed.
    flat = {"displayName": "Support", "pricing": {"type": "Flat", "price": 250}}
    _contract(call, bounce, "Bounce support", now, 38, [flat], autoRenewContract=False)


def send_usage(call: SendRequest, now: datetime) -> int:
    """Send usage that crosses every limit of the demo, some of an unknown alias or of no meter."""
    # In four steps, so that each limit is crossed by a batch of its own.
    sent = 0
    for step in range(4):
        events = [
            _event(step, now, "acme", "calls", 60),  # tiers end at 100 and 200
            _event(step, now, "acme", "storage", 30),  # 100 are committed
            _event(step, now, "acme", "compute", 30),  # of money for 100
            _event(step, now, "acme", "tokens", 30),  # credits for 100
            _event(step, now, "stranger", "calls", 1),
            _event(step, now, "acme", "unmetered", 1),
        ]
        call("POST", "/v2/events", {"events": events})
        sent += len(events)
    return sent


def _metered(call: SendRequest, name: str) -> str:
    """Create a product and its meter; return the product's id."""
    product = {"name": name.capitalize(), "productCode": name.upper()}
    made: str = call("POST", "/catalogProducts", product)["catalogProduct"]["id"]
    meter = {"name": name, "eventName": name, "aggregationMethod": "sum", "property": "units"}
    call("POST", "/_sandbox/meters", {**meter, "catalogProductId": made})
    return made


def _customer(call: SendRequest, name: str, external_id: str, email: str) -> str:
    contact = {"name": name, "email": email, "receiveInvoiceEmail": True}
    body = {"name": name, "externalId": external_id, "currency": "USD", "contacts": [contact]}
    made: str = call("POST", "/_sandbox/customers", body)["customer"]["id"]
    return made


def _contract(
    call: SendRequest, customer: str, name: str, now: datetime, days: int, products: Any, **more: Any
) -> None:
    term = {"startDate": _text(now), "endDate": _text(now + timedelta(days=days))}
    call("POST", "/contracts", {"customerId": customer, "name": name, **term, "products": products, **more})


def _sold(products: dict[str, str], credit: str) -> list[dict[str, Any]]:
    return [
        {"catalogProductId": products["calls"], **PRICES["tiers"]},
        {"catalogProductId": products["storage"], **PRICES["commitment"]},
        {"catalogProductId": products["compute"], **PRICES["minimum charge"]},
        {"catalogProductId": products["tokens"], **PRICES["per unit"], "consumesCreditProductIds": [credit]},
    ]


def _event(step: int, now: datetime, alias: str, name: str, units: int) -> dict[str, Any]:
    return {
        "name": name,
        "timestamp": _text(now + timedelta(minutes=step)),
        "customerAlias": alias,
        "ref": f"{alias}-{name}-{step}",
        "data": {"units": units},
    }


def _text(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
