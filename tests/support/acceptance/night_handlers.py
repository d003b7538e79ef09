"""The handlers of the night: what a delivery's key begins with says what its handler does."""

from __future__ import annotations

import os
import sys
import threading
import time
from datetime import UTC, datetime, timedelta

from pydantic import field_validator

from billhook import Delivery, Handlers, Retry
from billhook.events import ContractCreated, Event, InvoiceApproved, PaymentFailed, PingTest

handlers = Handlers()

if "FAKETIME_TIMESTAMP_FILE" in os.environ:
    # libfaketime has clock_nanosleep() fail that goes by the monotonic clock, and so Python's sleep.
    time.sleep = threading.Event().wait  # type: ignore[assignment]


@handlers.on(InvoiceApproved, PingTest, name="book")
def book(event: InvoiceApproved | PingTest, delivery: Delivery) -> None:
    """Kill the worker, take long or for ever, put itself off, or raise."""
    word = delivery.key.partition("-")[0]
    if word == "kills":
        os._exit(9)
    if word == "slow":
        time.sleep(1.5)
    if word == "hangs":
        threading.Event().wait()
    if word == "later":
        raise Retry(at=datetime.now(UTC) + timedelta(days=7))
    if word == "down":
        raise ConnectionError("ledger.internal: no route to host")
    if word == "bug" or os.environ.get("BILLHOOK_RELEASE") == "wrong":
        raise KeyError("plan")


@handlers.on(ContractCreated, name="limited", rate="1/min")
def limited(event: ContractCreated) -> None:
    """Do nothing, seldom."""


if "NIGHT_LACKS_DUN" not in os.environ:

    @handlers.on(PaymentFailed, name="dun")
    def dun(event: PaymentFailed) -> None:
        """Raise for one currency."""
        if event.currency == "USD":
            raise KeyError(event.currency)


class NightOrder(Event):
    """An event of our own, whose model ends the process that reads it."""

    number: int

    @field_validator("number")
    @classmethod
    def end(cls, number: int) -> int:
        """End it at once, as a fault in a library in C does."""
        os._exit(9)


@handlers.on(NightOrder, name="pack")
def pack(event: NightOrder) -> None:
    """Be never called."""


def die_after_start(seconds: float) -> None:
    """End this process so long after its engine begins, whichever thread that is in."""
    while not any(thread.name == "billhook-shutdown" for thread in threading.enumerate()):
        time.sleep(0.01)
    time.sleep(seconds)
    os._exit(9)


if os.environ.get("NIGHT_DIES_AFTER"):
    threading.Thread(
        target=die_after_start, args=(float(os.environ["NIGHT_DIES_AFTER"]),), daemon=True
    ).start()
if os.environ.get("NIGHT_CANNOT_LOAD") and "--watched" in sys.argv:
    raise RuntimeError("a module is missing")

if os.environ.get("BILLHOOK_RELEASE") == "new":

    @handlers.on(InvoiceApproved, name="thank")
    def thank(event: InvoiceApproved) -> None:
        """Be a handler that the release before does not have."""
