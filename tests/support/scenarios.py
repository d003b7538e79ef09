"""Business of a sandbox for tests: customers, contracts, usage and invoices, with few words."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any
from urllib.parse import urlencode

from sqlalchemy import select

from billhook.sandbox.storage import tables
from support.sandbox import Running

STARTED = "2026-01-10T12:00:00Z"
"""The sandbox's time when a test begins."""


def customer(sandbox: Running, **fields: Any) -> str:
    """A new customer with someone who receives invoices; its id."""
    contacts = [{"name": "Ada", "email": "ada@acme.example", "receiveInvoiceEmail": True}]
    body = {"name": "Acme", "contacts": contacts, **fields}
    return str(sandbox.ok("POST", "/_sandbox/customers", body)["customer"]["id"])


def contract(sandbox: Running, customer_id: str | None = None, **fields: Any) -> Any:
    """A new contract, of a new customer if none is given, that begins now; as it was answered."""
    body = {"customerId": customer_id or customer(sandbox), "startDate": STARTED, "name": "Deal", **fields}
    return sandbox.ok("POST", "/contracts", body)["contract"]


def fee(price: float, **more: Any) -> dict[str, Any]:
    """A product that costs so much a cycle."""
    return {"displayName": "Fee", "pricing": {"type": "Flat", "price": price}, **more}


def cycle(unit: str, value: float) -> dict[str, Any]:
    """A product's scheduling with this duration."""
    return {"duration": {"unit": unit, "value": value}}


def invoices(sandbox: Running, **query: str) -> list[Any]:
    """All invoices that fit, oldest first."""
    query.setdefault("limit", "1000")
    listed: list[Any] = sandbox.ok("GET", f"/invoices?{urlencode(query)}")["invoices"]
    return listed


def approve(sandbox: Running, invoice: Any) -> Any:
    """The invoice, once it is approved."""
    return sandbox.ok("POST", f"/_sandbox/invoices/{invoice['id']}/approve")["invoice"]


def dates(sandbox: Running, event_type: str) -> list[str]:
    """When each event of this type was raised."""
    return [str(body["date"]) for _, body in sandbox.raised(event_type)]


# --- buying and using ------------------------------------------------------------------------------


@dataclass
class Customer:
    """A customer who buys something and uses it: Acme, under the alias `acme`."""

    sandbox: Running
    id: str
    alias: str = "acme"
    refs: Any = field(default_factory=lambda: count(1))

    @classmethod
    def of(cls, sandbox: Running, alias: str = "acme", **fields: Any) -> Customer:
        """A new customer."""
        wanted = {"name": alias.title(), "aliases": [alias], **fields}
        return cls(sandbox, sandbox.ok("POST", "/_sandbox/customers", wanted)["customer"]["id"], alias)

    def buy(self, *products: dict[str, Any], **fields: Any) -> str:
        """A contract from the first of the month on, by the month; its id."""
        wanted = {
            "name": "Annual",
            "customerId": self.id,
            "startDate": "2026-01-01T00:00:00Z",
            "products": list(products),
            **fields,
        }
        return str(self.sandbox.ok("POST", "/contracts", wanted)["contract"]["id"])

    def use(self, *units: float, name: str = "call", at: str = "2026-01-10T09:00:00Z") -> None:
        """One batch with an event for each of these."""
        events = [
            {
                "name": name, "timestamp": at, "customerAlias": self.alias,
                "ref": f"{self.alias}-{next(self.refs)}", "data": {"units": each},
            }
            for each in units
        ]  # fmt: skip
        answer = self.sandbox.ok("POST", "/v2/events", {"events": events})
        assert answer["invalidEvents"] == []

    def consumptions(self) -> list[dict[str, Any]]:
        path = f"/customers/products-consumptions/{self.id}"
        return list(self.sandbox.ok("GET", path)["productsConsumptions"])

    def ledger(self) -> list[dict[str, Any]]:
        return list(self.sandbox.ok("GET", f"/credits?customerId={self.id}&limit=1000")["entries"])

    def changes(self) -> list[tuple[str, Any, Any]]:
        """Type, amount and balance of each entry of the ledger."""
        return [(each["type"], each["amount"], each["balanceAfterEntry"]) for each in self.ledger()]


def metered(sandbox: Running, name: str = "call", **meter: Any) -> str:
    """A catalog product whose usage is the sum of `units` in events of this name; its id."""
    product = sandbox.ok("POST", "/catalogProducts", {"name": f"{name}s"})["catalogProduct"]["id"]
    wanted = {
        "name": name, "eventName": name, "aggregationMethod": "sum", "property": "units",
        "catalogProductId": product, **meter,
    }  # fmt: skip
    sandbox.ok("POST", "/_sandbox/meters", wanted)
    return str(product)


def sent_to(sandbox: Running, event_type: str) -> list[tuple[str, str]]:
    """Address and body's id of each delivery of this type, in the order in which they were raised."""
    raised, delivery = tables.raised_event, tables.delivery
    with sandbox.sandbox.service.transaction(writes=False) as tx:
        rows = tx.connection.execute(
            select(delivery.c.url, raised.c.id)
            .join(raised, raised.c.id == delivery.c.raised_id)
            .where(raised.c.event_type == event_type)
            .order_by(raised.c.seq, delivery.c.seq)
        ).all()
    return [(row.url, row.id) for row in rows]
