"""A worker that stood still for longer than its lease has no say in what others have settled since."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from billhook.inbox import RunPlan, RunState
from billhook.inbox.sqlite.library import sqlite3
from support.acceptance.stack import Process, Stack
from support.inbox_view import change, incoming, postgres
from support.processes import until

THREADS = 64
REFUSED = "is no longer this worker's: its result is not stored"
LOST = "the worker died, or was silent for longer than BILLHOOK_LEASE_SECONDS"


def stop_between_turns(stack: Stack, worker: Process) -> None:
    """SIGSTOP, at a moment when it holds no lock: else nobody could take over until it goes on."""

    def stopped() -> bool:
        os.kill(worker.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, worker.pid, os.WSTOPPED)
        if not locked(stack):
            return True
        os.kill(worker.pid, signal.SIGCONT)
        return False

    until(stopped, 30)


def locked(stack: Stack) -> bool:
    """Whether somebody is in the middle of writing."""
    if isinstance(stack.where, str):
        with postgres(stack.where) as connection:
            try:
                connection.execute("SELECT id FROM run FOR UPDATE NOWAIT")
            except psycopg.errors.LockNotAvailable:
                return True
        return False
    with (
        Path(f"{stack.where}-lock").open("rb") as lock,
        contextlib.closing(sqlite3.connect(stack.where, timeout=0)) as connection,
    ):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            connection.execute("BEGIN IMMEDIATE")
        except (BlockingIOError, sqlite3.OperationalError):
            return True
    return False


def results(stack: Stack) -> dict[int, tuple]:
    """How each run stands: its id, and all that a settling writes."""
    found = stack.rows("SELECT id, state, attempts, finished_at, last_error FROM run")
    failures = stack.rows("SELECT run_id, attempt, error FROM failure ORDER BY id")
    return {row[0]: (*row[1:], [f for f in failures if f[0] == row[0]]) for row in found}


def changed(before: dict[int, tuple], after: dict[int, tuple]) -> set[int]:
    """The runs of which a second worker has said how they ended."""
    return {run_id for run_id, result in before.items() if after[run_id] != result}


@pytest.mark.long
def test_the_settling_of_a_worker_that_lost_its_lease_is_refused(stack, inbox, figures):
    rounds, threads = 4, THREADS
    stale = settled = 0
    for number in range(rounds):
        gate = stack.folder / f"gate-{number}"
        # Half of the late ones would say that they failed.
        keys = {f"msg_{number}_{n}_{'fails' if n % 2 else 'ok'}" for n in range(threads)}
        for key in keys:
            inbox.put(incoming(key))
        stopped = stack.start_worker(threads=threads, BILLHOOK_LEASE_SECONDS="2", ACCEPTANCE_GATE=str(gate))
        until(lambda keys=keys: keys <= {key for key, _, _ in stack.noted()}, 60)
        stop_between_turns(stack, stopped)
        other = stack.start_worker(threads=threads, BILLHOOK_LEASE_SECONDS="30")
        stack.drain()
        before = results(stack)
        gate.touch()
        os.kill(stopped.pid, signal.SIGCONT)
        until(lambda log=stopped.log: log.read_text().count(REFUSED) == threads, 60)
        stale, settled = stale + len(changed(before, results(stack))), settled + threads
        stopped.stop()
        other.stop()

    figures.add("stale settles accepted", stale, settled, rounds, "workers stopped")
    assert stale == 0
    for run_id, result in results(stack).items():
        state, attempts, _, last_error, failures = result
        assert (state, attempts, last_error, failures) == ("succeeded", 2, None, [(run_id, 1, LOST)])


def test_a_settling_without_the_token_is_caught(stack, inbox):
    now = datetime.now(UTC)
    receipt = inbox.put(incoming("msg_1"))
    later = now + timedelta(seconds=2)
    with inbox.transaction("stopped") as transaction:
        transaction.plan([RunPlan(receipt.delivery_id, ("note",))], now)
        (late,) = transaction.claim(1, now, now + timedelta(seconds=1))
    with inbox.transaction("other") as transaction:
        (again,) = transaction.claim(1, later, later + timedelta(seconds=30))
        transaction.settle([again.ended(RunState.SUCCEEDED, later)])
    before = results(stack)

    with inbox.transaction("stopped") as transaction:
        refused = transaction.settle(
            [late._replace(attempt=again.attempt).ended(RunState.DEAD, later, error="x")]
        )
    unchanged = results(stack)
    change(stack.where, "UPDATE run SET state = 'dead', last_error = 'x' WHERE id = ?", late.run_id)

    assert refused == set()
    assert changed(before, unchanged) == set()
    assert changed(before, results(stack)) == {late.run_id}
