"""The handlers of the night: what a delivery's key begins with says what its handler does."""

from __future__ import annotations

import os
import threading
import time

from billhook import Delivery, Handlers
from billhook.events import ContractCreated, InvoiceApproved, PingTest

handlers = Handlers()

if "FAKETIME_TIMESTAMP_FILE" in os.environ:
    # libfaketime has clock_nanosleep() fail that goes by the monotonic clock, and so Python's sleep.
    time.sleep = threading.Event().wait  # type: ignore[assignment]


@handlers.on(InvoiceApproved, PingTest, name="book")
def book(event: InvoiceApproved | PingTest, delivery: Delivery) -> None:
    """Kill the worker, take long, or raise."""
    word = delivery.key.partition("-")[0]
    if word == "kills":
        os._exit(9)
    if word == "slow":
        time.sleep(1.5)
    if word == "bug" or os.environ.get("BILLHOOK_RELEASE") == "wrong":
        raise KeyError("plan")


@handlers.on(ContractCreated, name="limited", rate="1/min")
def limited(event: ContractCreated) -> None:
    """Do nothing, seldom."""


if os.environ.get("BILLHOOK_RELEASE") == "new":

    @handlers.on(InvoiceApproved, name="thank")
    def thank(event: InvoiceApproved) -> None:
        """Be a handler that the release before does not have."""
