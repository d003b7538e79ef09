"""`billhook worker` as real processes: handlers that do their worst."""

from __future__ import annotations

import signal
import time
from collections import Counter

import pytest

from support.processes import alive, children, until
from support.timeouts import scaled


def body_of(event_type: str) -> bytes:
    from billhook.events import EVENT_TYPES, sample

    return sample(EVENT_TYPES[event_type]).to_json()


WORST_KINDS = {
    "poison": ("PingTest", 3),
    "exit": ("PingTest", 3),
    "late": ("InvoiceApproved", 3),
    "hangs": ("PaymentFailed", 3),
    "greedy": ("MonthEndReport", 1),
}
"""Their types, and how often each is called."""
LOST = {"exit", "greedy"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [("poison", "exit", "late", "hangs"), pytest.param(("greedy",), marks=pytest.mark.long)],
    ids="-".join,
)
def test_the_worst_of_handlers_is_dead_after_its_schedule_and_all_else_flows(group, keys):
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


@pytest.mark.long
def test_a_child_that_blocks_all_threads_prints_a_traceback_and_is_replaced(group):
    worker = group.work(processes=2)
    before = children(worker.pid)
    group.put("greedy", "MonthEndReport", body_of("MonthEndReport"))

    until(lambda: "exited with code 1; restarting" in group.log(), 30)

    assert "in greedy" in group.log()
    until(lambda: len(alive(children(worker.pid))) == 2, 15)
    assert len(before & children(worker.pid)) == 1


@pytest.mark.long
def test_control_an_unsupervised_worker_hangs_with_a_blocking_handler(group):
    worker = group.work()
    group.put("first")
    # It has registered itself by then. One that blocks while it does holds the inbox's lock, too.
    until(lambda: group.states()["first"] == "done", 15)
    group.put("greedy", "MonthEndReport", body_of("MonthEndReport"))
    until(lambda: group.notes("begun") == ["first", "greedy"], 15)
    time.sleep(1)  # it notes that just before it blocks

    group.put("flow")
    worker.send_signal(signal.SIGTERM)
    time.sleep(7)  # longer than a watched one would have been silent

    assert group.states()["flow"] == "received"
    assert worker.poll() is None
