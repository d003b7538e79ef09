"""Machines whose clock is wrong, and workers that the system stops, call no handler a second time."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from support.acceptance.stack import Stack
from support.acceptance.wrong_clock import WrongClock
from support.inbox_view import incoming
from support.processes import until
from support.races import only_postgres

THREADS = 4
LEASE_SECONDS = 20  # a late renewal is not what these are about; the clocks are off by more
OFF = "s ahead of the database server's"

pytestmark = pytest.mark.slow


@pytest.fixture
def wrong(tmp_path: Path) -> WrongClock:
    """A clock that a test sets."""
    return WrongClock(tmp_path)


def calls(stack: Stack) -> Counter[str]:
    """How often the handler was called with each delivery."""
    return Counter(key for key, _, _ in stack.noted())


def handled_beside_a_machine_ahead(stack, inbox, wrong, **control) -> Counter[str]:
    """How often two machines called the handler; the second is ahead, and begins while the first works."""
    gate = stack.folder / "gate"
    working = {"ACCEPTANCE_GATE": str(gate), "BILLHOOK_LEASE_SECONDS": str(LEASE_SECONDS)}
    keys = {f"msg_{number}" for number in range(THREADS)}
    for key in keys:
        inbox.put(incoming(key))
    stack.start_worker(threads=THREADS, **working)
    until(lambda: keys <= calls(stack).keys(), 60)
    wrong.set(90)
    ahead = stack.start_worker(threads=THREADS, wrap=wrong.wrap, **working, **control)
    inbox.put(incoming("another"))
    until(lambda: calls(stack)["another"], 60)  # it has polled
    if control:
        until(lambda: max(calls(stack).values()) > 1, 60)
    else:
        until(lambda: ahead.says(OFF), 60)
        wrong.set(3_600)
        inbox.put(incoming("msg_hour_ahead"))
        until(lambda: calls(stack)["msg_hour_ahead"], 60)
        wrong.set(-3_600)
        inbox.put(incoming("msg_hour_behind"))
        until(lambda: calls(stack)["msg_hour_behind"], 60)
    found = calls(stack)
    gate.touch()
    stack.drain()
    return found


@only_postgres
def test_a_machine_whose_clock_is_wrong_takes_no_run_from_another(stack, inbox, wrong):
    found = handled_beside_a_machine_ahead(stack, inbox, wrong)

    assert set(found.values()) == {1}
    assert calls(stack) == found
    assert stack.rows("SELECT DISTINCT attempts FROM run") == [(1,)]
    assert stack.value("SELECT count(*) FROM failure") == 0


@only_postgres
def test_a_machine_that_went_by_its_own_clock_would_be_noticed(stack, inbox, wrong):
    found = handled_beside_a_machine_ahead(stack, inbox, wrong, ACCEPTANCE_OWN_CLOCK="1")

    assert max(found.values()) > 1


def test_a_clock_that_is_set_while_handlers_run_calls_none_again(stack, inbox, wrong):
    """One worker, on either database."""
    keys = [f"msg_{number}" for number in range(3 * THREADS)]
    gate = stack.folder / "gate"
    stack.start_worker(
        threads=THREADS, wrap=wrong.wrap, ACCEPTANCE_GATE=str(gate), BILLHOOK_LEASE_SECONDS=str(LEASE_SECONDS)
    )
    for key in keys[:THREADS]:
        inbox.put(incoming(key))
    until(lambda: len(calls(stack)) == THREADS, 60)

    wrong.set(90)
    for key in keys[THREADS:]:
        inbox.put(incoming(key))
    gate.touch()
    until(lambda: calls(stack).keys() == set(keys), 60)
    wrong.set(30)
    stack.drain()

    assert calls(stack) == dict.fromkeys(keys, 1)


def test_a_worker_that_is_stopped_for_longer_than_its_lease_calls_nothing_again(stack, inbox):
    worker = stack.start_worker(threads=8)  # with a lease of a second
    keys = [f"msg_{number}" for number in range(400)]
    for begin in range(0, len(keys), 100):
        for key in keys[begin : begin + 100]:
            inbox.put(incoming(key))
        os.kill(worker.pid, signal.SIGSTOP)
        time.sleep(1.2)
        os.kill(worker.pid, signal.SIGCONT)
    stack.drain()

    assert calls(stack) == dict.fromkeys(keys, 1)
