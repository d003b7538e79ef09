"""Plain blinker subscribers instead of decorators, and observers of what becomes of the deliveries.

flask --app observed run --port 8000
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from datetime import datetime
from pathlib import Path

from flask import Flask

from billhook import Billhook, Delivery, signals
from billhook.events import InvoiceApproved, PaymentFailed

app = Flask(__name__)
app.config.from_mapping(BILLHOOK_RETRY_SCHEDULE_SECONDS=(1,))  # one more try, so that the alert comes soon
app.config.from_prefixed_env()
FOLDER = Path(os.environ.get("OBSERVED_FOLDER", "."))
logger = logging.getLogger(__name__)


# ConnectedHandlers of an event's signal are handlers like decorated ones: stored, retried, dead in the end.


def remember(sender: Flask, *, event: InvoiceApproved, delivery: Delivery) -> None:
    """Blinker holds its subscribers by weak references: this one lives as long as its module."""
    (FOLDER / f"approved-{delivery.id}.txt").write_text(f"{event.invoice_id}\n", encoding="utf-8")


signals.invoice_approved.connect(remember)


def subscribe_collector(currencies: frozenset[str]) -> None:
    """A function made inside another would be gone with it: `weak=False` keeps it."""

    def collect(sender: Flask, *, event: PaymentFailed, delivery: Delivery) -> None:
        if event.currency not in currencies:
            raise LookupError(f"no collector takes {event.currency}")

    signals.payment_failed.connect(collect, weak=False)


subscribe_collector(frozenset({"EUR", "USD"}))


# Observers of lifecycle signals are told once and never again: for metrics and alerts, not for work.


class Rejections:
    """Counts refused deliveries of this process by cause, for whatever collects metrics."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def count(self, sender: Flask, *, source: str, status: int, cause: str) -> None:
        """Called in the request's thread: be quick."""
        self.counts[cause] += 1


rejections = Rejections()  # a bound method is weak too, and lives as long as its object
signals.delivery_rejected.connect(rejections.count)


@signals.handler_retrying.connect
def warn(sender: Flask, *, delivery: Delivery, handler: str, error: Exception, due_at: datetime) -> None:
    """One attempt failed; there will be another."""
    logger.warning("%s failed on delivery %d, again at %s", handler, delivery.id, due_at)


@signals.handler_dead.connect
def alert(sender: Flask, *, delivery: Delivery, handler: str, error: Exception) -> None:
    """No attempt is left: somebody has to look. Called where handlers run, which may be a worker."""
    with (FOLDER / "alerts.log").open("a", encoding="utf-8") as log:
        log.write(f"{handler} is dead on delivery {delivery.id} after attempt {delivery.attempt}: {error}\n")


@app.get("/rejections")
def show_rejections() -> dict[str, int]:
    """The counter, as JSON."""
    return dict(rejections.counts)


Billhook(app)
