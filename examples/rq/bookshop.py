"""A bookshop that has RQ already: a worker of RQ calls the handlers of deliveries too."""

from __future__ import annotations

import os
from pathlib import Path

from flask import Flask
from redis import Redis
from rq import Queue
from rq.serializers import JSONSerializer

from billhook import Billhook, Delivery, Handlers
from billhook.events import InvoiceApproved, PaymentFailed

handlers = Handlers()


@handlers.on(InvoiceApproved)
def write_letter(event: InvoiceApproved, delivery: Delivery) -> None:
    """A handler like any other; it is the worker that is RQ's."""
    outbox = Path("outbox")
    outbox.mkdir(exist_ok=True)
    letter = f"Invoice {event.invoice_id} was approved on {event.date:%d %B %Y}.\n"
    (outbox / f"{delivery.id}.txt").write_text(letter, encoding="utf-8")


@handlers.on(PaymentFailed, retry=[1, 2, 4], timeout_seconds=20)
def ask_again(event: PaymentFailed, delivery: Delivery) -> None:
    """The waits are kept in the inbox, not in Redis: a restart of either forgets none."""
    if delivery.attempt < 3:
        raise ConnectionError("the bank is closed")


def create_app() -> Flask:
    """Give billhook a queue of its own, in JSON; tasks of the app may be in others, as pickles."""
    app = Flask(__name__)
    app.config.from_mapping(BILLHOOK_ENGINE="rq", BOOKSHOP_QUEUE="store")
    app.config.from_prefixed_env()
    redis = Redis.from_url(os.environ.get("RQ_REDIS_URL", "redis://127.0.0.1:6379/0"))  # as `rq` reads it
    app.extensions["rq"] = Queue(app.config["BOOKSHOP_QUEUE"], connection=redis, serializer=JSONSerializer)
    Billhook(handlers=[handlers]).init_app(app, url_prefix="/webhooks/billing")
    return app


app = create_app()
BillhookWorker = app.extensions["rq_worker"]
