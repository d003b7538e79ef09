"""The handler of these tests: it writes down that it was called, in a way that no SIGKILL can halve."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from billhook import Delivery, Handlers
from billhook.clock import SystemClock
from billhook.events import Event, UnknownEvent

handlers = Handlers()

if "FAKETIME_TIMESTAMP_FILE" in os.environ:
    # libfaketime has clock_nanosleep() fail that goes by the monotonic clock, and so Python's sleep.
    time.sleep = threading.Event().wait  # type: ignore[assignment]
if "ACCEPTANCE_OWN_CLOCK" in os.environ:
    # The control: leases go by the clock of the machine, whatever the database server's is.
    from billhook.inbox.postgres.clock import ServerClock

    ServerClock.now = lambda clock: SystemClock.now()  # type: ignore[method-assign]


@handlers.on_any(name="note")
def note(event: Event | UnknownEvent, delivery: Delivery) -> None:
    """Append `key attempt pid`. A first attempt then waits at the gate, where there is one.

    Past the gate, one whose key ends in `fails` raises.
    """
    line = f"{delivery.key} {delivery.attempt} {os.getpid()}\n".encode()
    descriptor = os.open(os.environ["ACCEPTANCE_NOTES"], os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, line)
    os.close(descriptor)
    gate = os.environ.get("ACCEPTANCE_GATE")
    if gate is not None and delivery.attempt == 1:
        while not Path(gate).exists():
            time.sleep(0.01)
        if delivery.key.endswith("fails"):
            raise RuntimeError("too late to say so")
