"""The sandbox's clock: what falls due is done, in order, once, and none is left out.

The specification shows no clock: all of this is the sandbox's own.
"""

from __future__ import annotations

import itertools
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from billhook.clock import FrozenClock
from billhook.events import PingTest
from billhook.sandbox import Sandbox, SandboxOptions, scheduled_jobs
from billhook.sandbox.clock import CalendarDuration
from billhook.sandbox.scheduled_jobs import Scheduler
from billhook.sandbox.storage.database import Transaction
from billhook.sandbox.storage.tables import raised_event
from billhook.sandbox.webhooks.outbox import raise_event
from support.processes import until
from support.sandbox import INVALID, START, Running, running
from support.scenarios import STARTED, contract, customer, dates


def move(sandbox: Running, **body: Any) -> Any:
    return sandbox.ok("POST", "/_sandbox/clock", body)


def shown(sandbox: Running) -> Any:
    return sandbox.ok("GET", "/_sandbox/clock")


def test_the_clock_shows_what_is_due_next_and_is_advanced_by_an_iso_8601_duration(sandbox: Running) -> None:
    before = shown(sandbox)
    moved = move(sandbox, advance="P1M2DT3H")
    sandbox.token = ""

    assert before == {"now": STARTED, "nextDueAt": "2026-02-01T00:00:00Z"}
    assert moved == {"now": "2026-02-12T15:00:00Z", "steps": 1}
    assert shown(sandbox)["now"] == "2026-02-12T15:00:00Z"


def test_a_machine_whose_clock_goes_back_does_not_take_the_sandbox_with_it(sandbox: Running) -> None:
    before = shown(sandbox)["now"]
    sandbox.real.advance(seconds=-3600)
    meanwhile = move(sandbox, advance="PT0S")["now"]
    answer = sandbox.call("POST", "/_sandbox/clock", {"to": "2026-01-10T11:30:00Z"})
    sandbox.real.advance(seconds=3610)
    afterwards = shown(sandbox)["now"]

    assert before == meanwhile == STARTED
    assert answer.error() == INVALID
    assert afterwards == "2026-01-10T12:00:10Z"


def test_due_steps_run_in_order_at_their_own_time(sandbox: Running) -> None:
    customer(sandbox)
    sandbox.advance("P2M")

    when = [body["date"] for kind, body in sandbox.raised() if kind != "CustomerCreated"]
    reports = {body["reportId"] for _, body in sandbox.raised("MonthEndReport")}

    assert when == ["2026-01-17T12:00:00Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"]
    assert len(reports) == 2


@pytest.mark.slow
def test_other_requests_are_served_while_the_clock_moves() -> None:
    with running() as running_sandbox:
        contract(running_sandbox)
        sandbox = running_sandbox.sandbox
        moved = []
        mover = threading.Thread(
            target=lambda: moved.append(sandbox.scheduler.move(CalendarDuration(120).after))
        )
        mover.start()

        turns = 0
        while mover.is_alive():
            with sandbox.service.transaction(writes=True) as tx:
                raise_event(tx, PingTest())
            turns += 1
        mover.join()

    # Without taking turns it is one for some two hundred steps.
    assert turns > moved[0][1] / 10


def test_the_clock_and_due_steps_survive_a_restart(sandbox_url) -> None:
    with running(database_url=sandbox_url) as sandbox:
        sandbox.advance("P40D")
    with running(database_url=sandbox_url) as sandbox:
        before = shown(sandbox)
        sandbox.advance("P30D")
        months = dates(sandbox, "MonthEndReport")

    assert before == {"now": "2026-02-19T12:00:00Z", "nextDueAt": "2026-03-01T00:00:00Z"}
    assert months == ["2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"]


def test_steps_that_fell_due_while_stopped_run_at_start(tmp_path) -> None:
    url = f"sqlite:///{tmp_path}/sandbox.db"
    real = FrozenClock(START)
    Sandbox(SandboxOptions(database_url=url), clock=real).close()
    real.advance(seconds=60 * 24 * 3600)
    sandbox = Sandbox(SandboxOptions(database_url=url), clock=real)

    def count() -> int:
        with sandbox.service.transaction(writes=False) as tx:
            return tx.connection.execute(select(func.count()).select_from(raised_event)).scalar_one()

    sandbox.start()
    try:
        until(lambda: count() == 2, 120)
    finally:
        sandbox.close()


def test_a_failed_step_is_rolled_back_and_logged_and_the_next_runs() -> None:
    def good(tx: Transaction, subject: str) -> None:
        raise_event(tx, PingTest())

    def bad(tx: Transaction, subject: str) -> None:
        raise_event(tx, PingTest())
        raise ZeroDivisionError("over the step")

    with running() as running_sandbox:
        sandbox = running_sandbox.sandbox
        keeper = Scheduler(sandbox.service, {"good": good, "bad": bad, "month_end": good})
        with sandbox.service.transaction(writes=True) as tx:
            for hours, kind, subject in ((1, "good", "first"), (2, "bad", "second"), (3, "good", "third")):
                scheduled_jobs.schedule(tx, START + timedelta(hours=hours), kind, subject)

        with pytest.raises(ZeroDivisionError, match="over the step"):
            keeper.move(CalendarDuration(time=timedelta(hours=5)).after)
        stopped = sandbox.clock.now()
        done_before = len(running_sandbox.raised("PingTest"))
        keeper.move(CalendarDuration(time=timedelta(hours=5)).after)
        done_after = len(running_sandbox.raised("PingTest"))

    assert stopped == START + timedelta(hours=1)
    assert (done_before, done_after) == (1, 2)


def test_moves_take_turns_and_others_are_told_to_wait_while_all_else_is_served(sandbox: Running) -> None:
    """Forty moves, and a job of the first one waits as long as another transaction writes."""
    sandbox.ok("GET", "/_sandbox/clock")
    with ThreadPoolExecutor(40) as pool:
        with sandbox.sandbox.service.transaction(writes=True):
            moves = [
                pool.submit(sandbox.call, "POST", "/_sandbox/clock", {"advance": "P1D"}) for _ in range(40)
            ]
            told = [done.result() for done in itertools.islice(as_completed(moves, timeout=60), 39)]
            served = sandbox.call("GET", "/_sandbox/customers")
        moved = [move.result().status for move in moves]

    assert {(*answer.error(), answer.headers["Retry-After"]) for answer in told} == {
        (503, "api_error", "busy", "1")
    }
    assert served.status == 200
    assert sorted(moved) == [200, *[503] * 39]


def test_requests_that_wait_for_deliveries_hold_no_connection(sandbox: Running) -> None:
    """More of them than the pool has connections, and a receiver that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(25) as pool:
        hook = {"callbackUrl": f"http://127.0.0.1:{silent.getsockname()[1]}/", "eventType": "PingTest"}
        sandbox.ok("POST", "/webhook", hook)
        flush = {"timeoutSeconds": 4}
        waiting = [pool.submit(sandbox.call, "POST", "/_sandbox/flush", flush) for _ in range(25)]
        time.sleep(0.5)
        served = sandbox.call("GET", "/_sandbox/customers")
        early = [each.done() for each in waiting]

    assert served.status == 200
    assert not any(early)
    assert [(each.result().status, each.result().json["due"]) for each in waiting] == [(200, 1)] * 25
