"""The no-op handler whose runs tests/bench/engines.py counts, for `billhook worker tests/bench/noop.py`."""

from __future__ import annotations

import os
import time
from pathlib import Path

from billhook import Delivery, Handlers
from billhook.events import InvoiceApproved

handlers = Handlers()
LATENCIES = os.environ.get("BENCH_LATENCIES")


@handlers.on(InvoiceApproved, name="noop")
def noop(event: InvoiceApproved, delivery: Delivery) -> None:
    """Nothing; or, when latency is measured, the seconds since the delivery was put."""
    if LATENCIES:
        with Path(LATENCIES).open("a") as out:
            out.write(f"{time.time() - delivery.received_at.timestamp()}\n")
