"""A process that is killed while it moves the clock: nothing is left out, and nothing is done twice."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from billhook.sandbox import scheduled_jobs
from support.sandbox import API_TOKEN, running
from support.scenarios import contract, dates, invoices

_MOVER = textwrap.dedent("""
    import sys
    from datetime import UTC, datetime

    from billhook.clock import FrozenClock
    from billhook.sandbox import Sandbox, SandboxOptions
    from billhook.sandbox.clock import CalendarDuration

    options = SandboxOptions(database_url=sys.argv[1], api_token=sys.argv[2])
    sandbox = Sandbox(options, clock=FrozenClock(datetime(2026, 1, 10, 12, tzinfo=UTC)))
    sandbox.scheduler.move(CalendarDuration(12 * 100).after)
""")


def _raised(url: str) -> int:
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            return int(connection.execute(text("SELECT count(*) FROM raised")).scalar_one())
    finally:
        engine.dispose()


def _killed_in_the_middle(url: str, after: int) -> int:
    """Begin to move the clock by a century in another process, and kill it; its exit status."""
    began_with = _raised(url)
    with subprocess.Popen([sys.executable, "-c", _MOVER, url, API_TOKEN]) as mover:
        ends_at = time.monotonic() + 180
        while _raised(url) < began_with + after and time.monotonic() < ends_at and mover.poll() is None:
            time.sleep(0.005)
        with contextlib.suppress(ProcessLookupError):
            os.kill(mover.pid, signal.SIGKILL)
        return mover.wait()


@pytest.mark.slow
def test_a_process_killed_while_it_moves_the_clock_leaves_no_gap_and_repeats_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/sandbox.db"
    with running(database_url=url) as sandbox:
        contract(sandbox)

    statuses = [_killed_in_the_middle(url, after) for after in (10, 37, 64)]
    with running(database_url=url) as sandbox:
        stood_at = sandbox.ok("GET", "/_sandbox/clock")
        sandbox.advance("P1Y")
        months = dates(sandbox, "MonthEndReport")
        cycles = [each["billingCycle"] for each in invoices(sandbox)]
        numbers = [each["invoiceNumber"] for each in invoices(sandbox)]

    assert statuses == [-signal.SIGKILL] * 3
    # It may have died between two jobs that are due at the same time: then the second one is due at once.
    assert "2026-02-01T00:00:00Z" < stood_at["now"] <= stood_at["nextDueAt"]
    first, count = 2026 * 12 + 1, len(months)
    assert months == [f"{n // 12}-{n % 12 + 1:02}-01T00:00:00Z" for n in range(first, first + count)]
    assert [each["startTime"] for each in cycles[1:]] == [each["endTime"] for each in cycles[:-1]]
    assert len(numbers) == len(set(numbers)) > 12


def test_control_a_step_removed_before_it_runs_is_lost() -> None:
    """The control of the test above: what it looks for is found where step and agenda are not one."""
    with running() as running_sandbox:
        sandbox = running_sandbox.sandbox
        with sandbox.service.transaction(writes=True) as tx:
            scheduled_jobs.pop_due(tx, tx.now + timedelta(days=60))
        # Here the careless process dies.
        running_sandbox.advance("P3M")

        months = dates(running_sandbox, "MonthEndReport")

    assert months == []
