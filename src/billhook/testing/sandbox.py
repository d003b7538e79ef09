"""A sandbox of the billing service beside an app under test, which is subscribed to its events."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal

from flask import Flask

from billhook.events import EVENT_TYPES, Event
from billhook.fields import strict_json
from billhook.receiver.blueprint import webhook_routes
from billhook.resources import (
    Commitment,
    Contact,
    Contract,
    ContractProduct,
    Customer,
    CustomerUpdate,
    IngestionResult,
    NewCatalogProduct,
    NewContract,
    Pricing,
    UsageEvent,
)
from billhook.testing.apps import preparation, settle

if TYPE_CHECKING:
    from billhook.client import BillingClient
    from billhook.sandbox import Sandbox

__all__ = ["RunningSandbox", "SandboxMeter", "running_sandbox"]

_DEFAULT_CONTACT = Contact(name="Ada Byron", email="ada@customer.example", receive_invoice_email=True)


@dataclass(frozen=True, slots=True)
class SandboxMeter:
    """A meter, and the product of the catalog whose usage it measures."""

    id: str
    event_name: str
    property: str | None
    product_id: str


class RunningSandbox:
    """A sandbox that sends its webhooks to the app; `client` calls its API, as `delivery.client` does."""

    def __init__(self, app: Flask, sandbox: Sandbox, client: BillingClient) -> None:
        self._app = app
        self.service = sandbox
        self.client = client

    def create_customer(self, name: str = "Acme Ltd", **fields: Any) -> Customer:
        """Create a customer with the fields of `CustomerUpdate`; by default it has a contact for invoices."""
        wanted = CustomerUpdate(**{"name": name, "contacts": [_DEFAULT_CONTACT], **fields})
        body: Any = strict_json.loads(wanted.to_request())
        made = self.call("POST", "/_sandbox/customers", body)
        return Customer.from_wire(made["customer"])

    def create_meter(
        self,
        event_name: str = "calls",
        *,
        method: Literal["count", "sum", "max", "last", "unique"] = "sum",
        property: str | None = "units",  # noqa: A002 - the name of the meter's field
    ) -> SandboxMeter:
        """Create a meter of usage events, and the product that it measures: both are called as the events.

        `property` is the key in an event's data that is added up; count needs none.
        """
        product = self.client.catalog_products.create(NewCatalogProduct(name=event_name))
        meter = {"name": event_name, "eventName": event_name, "aggregationMethod": method}
        if property is not None:
            meter["property"] = property
        made = self.call("POST", "/_sandbox/meters", {**meter, "catalogProductId": product.id})
        return SandboxMeter(made["meter"]["id"], event_name, property, product.id)

    def subscribe(
        self,
        customer: Customer,
        *meters: SandboxMeter,
        price: Decimal | int | float = 1,
        commitment: Commitment | None = None,
        **terms: Any,
    ) -> Contract:
        """Subscribe a customer, by a contract that begins now, to what these meters measure.

        Each unit has the `price`, beyond the `commitment` if there is one. `terms` are other fields of
        `NewContract`, or replace these.
        """
        pricing = Pricing(type="PerUnit", price=Decimal(str(price)))
        optional: dict[str, Any] = {} if commitment is None else {"commitment": commitment}
        products = [
            ContractProduct(catalog_product_id=meter.product_id, pricing=pricing, **optional)
            for meter in meters
        ]
        begins = {"start_date": self.service.clock.now(), "name": f"Contract of {customer.name}"}
        wanted = {**begins, "customer_id": customer.id, "currency": "USD", "products": products, **terms}
        return self.client.contracts.create(NewContract(**wanted))

    def use(
        self, customer: Customer, meter: SandboxMeter, units: Decimal | int | float | str = 1
    ) -> IngestionResult:
        """Send a usage event of a customer now, with a number of units of what a meter measures."""
        event = UsageEvent(
            name=meter.event_name,
            timestamp=self.service.clock.now(),
            customer_alias=customer.id,
            ref=f"use_{secrets.token_hex(8)}",
            data={} if meter.property is None else {meter.property: units},
        )
        return self.client.events.submit([event])

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request to the sandbox, as `/_sandbox/customers`; return the decoded JSON."""
        return self.service.call(method, path, body)

    def advance(self, duration: str | timedelta) -> int:
        """Move the service's clock (`P30D`, `7d`), wait for what it sends, and run the handlers that are due.

        The app's own clock stands still. Returns the number of attempts.
        """
        if isinstance(duration, timedelta):
            duration = f"PT{duration.total_seconds():.0f}S"
        self.call("POST", "/_sandbox/clock", {"advance": duration})
        return self.flush()

    def flush(self) -> int:
        """Wait until the service has sent everything, and run the handlers that are due."""
        self.call("POST", "/_sandbox/flush", {})
        return settle(self._app, 0)


@contextmanager
def running_sandbox(
    app: Flask, subscribe: Iterable[type[Event]] = tuple(EVENT_TYPES.values())
) -> Iterator[RunningSandbox]:
    """Run the billing service in this process, with the app subscribed to these event types.

    It signs as the app's first source does. Needs the extra `sandbox`; raises MissingExtra.
    """
    from werkzeug.serving import make_server

    from billhook.client import BillingClient
    from billhook.sandbox import Sandbox, SandboxOptions

    state = preparation(app).state
    route = webhook_routes(app)[0]
    chosen = SandboxOptions(
        allow_private=True, scheme=route.source.scheme, secrets=tuple(route.source.secret_list)
    )
    sandbox = Sandbox(chosen)
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)  # how long its end may take
    thread.start()
    try:
        with (
            sandbox.run() as url,
            BillingClient(url, sandbox.client_id, str(sandbox.api_token)) as client,
        ):
            state.settings = dataclasses.replace(
                state.settings,
                api_url=url,
                api_client_id=sandbox.client_id,
                api_refresh_token=str(sandbox.api_token),
            )
            for event_type in subscribe:
                client.webhooks.subscribe(f"http://127.0.0.1:{server.port}{route.path}", event_type.type)
            yield RunningSandbox(app, sandbox, client)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        sandbox.close()
