"""A folder with handlers and an inbox that has a delivery of every kind, the same each time it is made."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from billhook import Source
from billhook.clock import FrozenClock
from billhook.events import CustomerCreated, InvoicePaymentStatusChanged, PaymentFailed, sample
from billhook.extension import get_state
from billhook.inbox import Counted, WorkerRecord
from billhook.resources import (
    Aggregation,
    CatalogProduct,
    Contract,
    CreditLedgerEntry,
    Customer,
    CustomField,
    Invoice,
    Plan,
    ProductConsumption,
    UsageEvent,
)
from billhook.resources import sample as sample_resource
from billhook.signing import StandardWebhooks
from billhook.standalone import load_handlers
from support.apps import deliver, make_app
from support.billing_service import Service, answered
from support.inbox_view import NOON, change
from support.signing import APPROVED, PATH, SECRET

NOW = NOON + timedelta(hours=1)
"""When it is looked at."""
HANDLERS = """
from billhook import Handlers
from billhook.events import CustomerCreated, InvoiceApproved, InvoicePaymentStatusChanged, PaymentFailed

handlers = Handlers()


@handlers.on(InvoiceApproved, name="send", aliases=["mail"], retry=[], pause_after=5, timeout_seconds=20)
def send(event):
    raise LookupError("no such invoice")


@handlers.on(PaymentFailed, InvoiceApproved, name="book", ordered_by="date", newest_only=True, at_most=2)
def book(event):
    pass


@handlers.on(
    InvoicePaymentStatusChanged, name="notify", identity=["invoice_id"], identity_window_seconds=3600,
    rate="9/min",
)
def notify(event):
    pass


@handlers.on(CustomerCreated, name="greet", retry=[600], sources=["default"])
def greet(event):
    raise TimeoutError("the mail server is away")


@handlers.on(CustomerCreated, name="archive", timeout_seconds=7.5)
def archive(event):
    pass
"""

TRACEBACK = """Traceback (most recent call last):
  File "shop.py", line 10, in send
    raise LookupError("no such invoice")
LookupError: no such invoice"""


def fill(folder: Path) -> None:
    """Make the inbox `billhook.db` in a folder that has HANDLERS as shop.py, and is the working directory."""
    clock = FrozenClock(NOON)
    app = make_app(
        folder, handlers=load_handlers(["shop.py"]), clock=clock, BILLHOOK_ENGINE="inline",
        sources=[Source("eu", scheme=StandardWebhooks(), secrets=[SECRET])],
    )  # fmt: skip
    state = get_state(app)
    state.inbox.pause_handler("archive", "the disk is full", clock.now())
    changed = sample(InvoicePaymentStatusChanged).to_json()
    for number, (event_type, body, more) in enumerate(
        [
            ("PaymentFailed", sample(PaymentFailed).to_json(), {}),
            ("InvoiceApproved", APPROVED, {}),  # dead by `send`
            ("PingTest", b'{"\x1b]0;title\x07 \xff', {}),  # quarantined
            ("PingTest", b"{}", {}),  # nobody handles it
            ("PingTest", b"{}", {"message_id": "m1"}),  # in conflict
            ("InvoicePaymentStatusChanged", changed, {}),
            ("InvoicePaymentStatusChanged", changed, {}),  # a content duplicate
            (
                "CustomerCreated",
                b'{"customerId":"cus_9","date":"2026-01-15T09:30:00Z"}',
                {"path": f"{PATH}/eu"},
            ),
            ("CustomerCreated", sample(CustomerCreated).to_json(), {}),
        ],
        1,
    ):
        more = {"message_id": f"m{number}", "headers": {"User-Agent": "the sender"}, **more}
        answer = deliver(app, body, event_type, at=clock.now(), **more)
        assert answer.status_code == 200
        clock.advance(seconds=60)
    state.inbox.count(Counted.REFUSED, clock.now(), source="default", cause="mismatch")
    state.inbox.record_worker(WorkerRecord("a", "worker", 1, NOON), NOW)
    state.close()
    for statement in (
        "UPDATE run SET duration_seconds = 0.25 WHERE duration_seconds IS NOT NULL",
        "UPDATE run SET started_at = '2026-01-15 12:00:00.000000' WHERE started_at IS NOT NULL",
        "UPDATE failure SET duration_seconds = 0.25 WHERE duration_seconds IS NOT NULL",
        "UPDATE run SET worker = 'host:7:0123ab' WHERE worker IS NOT NULL",
        "UPDATE failure SET worker = 'host:7:0123ab' WHERE worker IS NOT NULL",
        f"UPDATE failure SET traceback = '{TRACEBACK}'",  # without lines of billhook, whose numbers change
    ):
        change(folder / "billhook.db", statement)


def answer_reads(service: Service) -> None:
    """Have the service answer what `api` reads, with the samples of its specification."""

    def wire(model: Any) -> Any:
        return json.loads(sample_resource(model).to_json())

    for line, body in {
        "GET /customers/integration/crm/a%2F1": {"customer": wire(Customer)},
        "GET /customers/products-consumptions/cus_1": {"productsConsumptions": [wire(ProductConsumption)]},
        "GET /customers/products-consumptions/alias/acme": {
            "productsConsumptions": [wire(ProductConsumption)]
        },
        "GET /plans/p": {"plan": wire(Plan)},
        "GET /catalogProducts/prd_55": {"catalogProduct": wire(CatalogProduct)},
        "GET /customFields/cfd_4": {"customField": wire(CustomField)},
        "GET /invoices/inv_3007": {"invoice": wire(Invoice)},
        "POST /v2/events/aggregation": wire(Aggregation),
    }.items():
        service.always(line, answered(200, body))
    for line, key, model in (
        ("GET /contracts", "contracts", Contract),
        ("GET /catalogProducts", "catalogProducts", CatalogProduct),
        ("GET /customFields", "customFields", CustomField),
        ("GET /invoices", "invoices", Invoice),
        ("GET /credits", "entries", CreditLedgerEntry),
        ("GET /events", "events", UsageEvent),
    ):
        page = {key: [wire(model)], "total": 1, "hasMore": False, "nextCursor": ""}
        service.always(line, answered(200, page))
    service.always("POST /webhook", answered(201, {"id": "sub_1"}))
