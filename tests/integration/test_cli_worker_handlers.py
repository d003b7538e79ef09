"""`billhook worker` as real processes: handlers that do their worst."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from support.processes import until
from support.timeouts import scaled


def body_of(event_type: str) -> bytes:
    from billhook.events import EVENT_TYPES, sample

    return sample(EVENT_TYPES[event_type]).to_json()


WORST_KINDS = {
    "poison": ("PingTest", 3),
    "exit": ("PingTest", 3),
    "late": ("InvoiceApproved", 3),
    "hangs": ("PaymentFailed", 3),
}
"""Their types, and how often each is called."""
LOST = {"exit"}


@pytest.mark.slow
def test_the_worst_of_handlers_is_dead_after_its_schedule_and_all_else_flows(group):
    keys = tuple(WORST_KINDS)
    group.work(processes=3)
    for key in keys:
        group.put(key, WORST_KINDS[key][0], body_of(WORST_KINDS[key][0]))
    until(lambda: set(keys) <= set(group.notes("begun")), 15)
    flowing, slowest = 0, 0.0
    while any(group.states()[key] != "dead" for key in keys):
        started = time.monotonic()
        group.put(f"flow-{flowing}")
        until(lambda flowing=flowing: group.states()[f"flow-{flowing}"] == "done", 20)
        slowest = max(slowest, time.monotonic() - started)
        flowing += 1

    called, runs = Counter(group.notes("begun")), group.runs()
    for key in keys:
        calls = WORST_KINDS[key][1]
        # An attempt that is lost beside others does not count: it is made again alone.
        assert calls <= called[key] <= calls + (key in LOST)
        assert runs[key][1] >= calls
        assert group.failures(key) >= calls
    assert Counter(group.states().values()) == {"done": flowing, "dead": len(keys)}
    # A run that its worker took along waits for its lease, and perhaps for a new worker.
    assert slowest < scaled(12)
