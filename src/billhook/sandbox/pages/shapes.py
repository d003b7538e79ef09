"""What a form begins with: one or several shapes for some operations, such as the kinds of contracts."""

from __future__ import annotations

import secrets
from typing import Any

from billhook.events import EVENT_TYPES, sample
from billhook.fields import strict_json
from billhook.fields.strict_json import datetime_text
from billhook.sandbox.billing.contracts.contracts import CATALOG_PRODUCTS
from billhook.sandbox.billing.credits.credit_grants import CREDIT_PRODUCTS
from billhook.sandbox.billing.usage.meters import METERS
from billhook.sandbox.pages.forms import OTHER
from billhook.sandbox.pages.names import newest
from billhook.sandbox.scenario import PRICES, STARTER_GRANT
from billhook.sandbox.storage.transaction import Transaction

CREDITS = "credits"
"""The shape of a contract that grants credits and sells a product which draws them."""


def shapes_of(key: str) -> list[str]:
    """Return the names of the shapes of an operation; the first is the default, if there are any."""
    return [*PRICES, CREDITS] if key == "POST /contracts" else []


def begin(tx: Transaction, key: str, shape: str | None, event_type: str) -> dict[str, Any]:
    """Return what the form of an operation begins with; `event_type` is that of an event to raise."""
    now, product = datetime_text(tx.now.replace(microsecond=0)), newest(tx, CATALOG_PRODUCTS)
    # A credit product that is not there yet is created with this id.
    credit = newest(tx, CREDIT_PRODUCTS) or "tokens"
    match key:
        case "POST /contracts":
            return _contract(shape or next(iter(PRICES)), now, product, credit)
        case "POST /_sandbox/customers":
            contact = {"name": "Ada Byron", "email": "ada@acme.example", "receiveInvoiceEmail": True}
            return {"name": "Acme Ltd", "currency": "USD", "contacts": [contact]}
        case "POST /_sandbox/meters":
            counted = {"eventName": "calls", "aggregationMethod": "sum", "property": "units"}
            return {"name": "calls", **counted, "catalogProductId": product}
        case "POST /v2/events" | "POST /events/dry-run":
            meter = METERS.find(tx, newest(tx, METERS) or "")
            name, data = (
                ("calls", {}) if meter is None else (meter.event_name, {meter.property or "units": 1})
            )
            return {"events": [{"name": name, "timestamp": now, "ref": secrets.token_hex(6), "data": data}]}
        case "POST /credits/top-up":
            return {
                "creditGrant": {**STARTER_GRANT, "name": "Top-up", "price": 100, "creditProductId": credit}
            }
        case "POST /measurements":
            return {"usageDate": {"year": tx.now.year, "month": tx.now.month, "day": tx.now.day}}
        case "POST /_sandbox/trigger/{eventType}" if event_type in EVENT_TYPES:
            # Without the sample's date: the event is dated by the sandbox's clock.
            fields: Any = strict_json.loads(sample(EVENT_TYPES[event_type]).to_json())
            return {OTHER: {name: value for name, value in fields.items() if name != "date"}}
        case _:
            return {}


def _contract(shape: str, now: str, product: str | None, credit: str) -> dict[str, Any]:
    draws = shape == CREDITS
    terms = {**PRICES["per unit"], "consumesCreditProductIds": [credit]} if draws else PRICES[shape]
    return {
        "name": f"Contract: {shape}",
        "startDate": now,
        "currency": "USD",
        "products": [{"catalogProductId": product, **terms}],
        "creditGrants": [{**STARTER_GRANT, "creditProductId": credit}] if draws else [],
    }
