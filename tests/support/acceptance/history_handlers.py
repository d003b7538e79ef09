"""The handlers of histories of real processes: each writes down when it was called and when it returned."""

from __future__ import annotations

import os
import time
import zlib

from billhook import Delivery, Handlers
from billhook.events import (
    CustomerCreated,
    Event,
    InvoiceApproved,
    InvoicePaymentStatusChanged,
    PaymentFailed,
)

handlers = Handlers()
AT_MOST = {"limited": 2}
ORDERED = {"ordered"}
HANDLERS = {
    "InvoiceApproved": "plain",
    "InvoicePaymentStatusChanged": "ordered",
    "PaymentFailed": "limited",
    "CustomerCreated": "flaky",
}


def _note(word: str, delivery: Delivery) -> None:
    # One write to a file that is open for appending: no SIGKILL can halve it.
    facts = (word, delivery.handler, delivery.key, delivery.attempt, os.getpid(), f"{time.monotonic():.6f}")
    line = " ".join(map(str, facts)) + "\n"
    descriptor = os.open(os.environ["ACCEPTANCE_NOTES"], os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def _work(delivery: Delivery, failures: int = 0) -> None:
    number = zlib.crc32(delivery.key.encode())
    _note("began", delivery)
    time.sleep(number % 50 / 1_000 if number % 11 else 0.3)
    if delivery.attempt <= failures and delivery.replays == 0:
        _note("failed", delivery)
        raise RuntimeError("as its key says")
    _note("succeeded", delivery)


@handlers.on(InvoiceApproved, name="plain")
def plain(event: Event, delivery: Delivery) -> None:
    """Succeed."""
    _work(delivery)


@handlers.on(InvoicePaymentStatusChanged, name="ordered", ordered_by="invoice_id")
def ordered(event: Event, delivery: Delivery) -> None:
    """Fail at first for some, which those behind in their order wait for."""
    _work(delivery, failures=1 if zlib.crc32(delivery.key.encode()) % 5 == 0 else 0)


@handlers.on(PaymentFailed, name="limited", at_most=AT_MOST["limited"])
def limited(event: Event, delivery: Delivery) -> None:
    """Succeed, two at a time."""
    _work(delivery)


@handlers.on(CustomerCreated, name="flaky")
def flaky(event: Event, delivery: Delivery) -> None:
    """Fail up to three times."""
    _work(delivery, failures=zlib.crc32(delivery.key.encode()) % 4)
