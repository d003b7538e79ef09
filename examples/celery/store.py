"""A store that has Celery already: its workers call the handlers of deliveries too."""

from __future__ import annotations

from pathlib import Path

from celery import Celery
from flask import Flask

from billhook import Billhook, Delivery, Handlers
from billhook.events import InvoiceApproved, PaymentFailed

handlers = Handlers()


@handlers.on(InvoiceApproved)
def write_letter(event: InvoiceApproved, delivery: Delivery) -> None:
    """A handler like any other; it is the worker that is Celery's."""
    outbox = Path("outbox")
    outbox.mkdir(exist_ok=True)
    letter = f"Invoice {event.invoice_id} was approved on {event.date:%d %B %Y}.\n"
    (outbox / f"{delivery.id}.txt").write_text(letter, encoding="utf-8")


@handlers.on(PaymentFailed, retry=[1, 2, 4], timeout_seconds=20)
def ask_again(event: PaymentFailed, delivery: Delivery) -> None:
    """The waits are kept in the inbox, not in the broker: a restart of either forgets none."""
    if delivery.attempt < 3:
        raise ConnectionError("the bank is closed")


def create_app() -> Flask:
    """As Flask's documentation sets up Celery: configured by CELERY, kept in the extensions."""
    app = Flask(__name__)
    app.config.from_mapping(
        CELERY={
            "broker_url": "amqp://guest:guest@127.0.0.1:5672//",
            "task_default_queue": "store",
            "broker_connection_retry_on_startup": True,
        },
        BILLHOOK_ENGINE="celery",
    )
    app.config.from_prefixed_env()  # FLASK_CELERY__broker_url="redis://…" for another broker
    celery = Celery(app.name)
    celery.config_from_object(app.config["CELERY"])
    app.extensions["celery"] = celery
    Billhook(handlers=[handlers]).init_app(app, url_prefix="/webhooks/billing")
    return app


app = create_app()
celery = app.extensions["celery"]
