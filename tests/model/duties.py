"""What a worker must do, beside what the rules allow it: take what is due, and keep what it holds."""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime, timedelta

from model.records import ALIVE, Process
from model.rules import Rules

READINGS_OF_NAME = 3
"""As many of one name a worker holds at least, beside what it handles."""


def left_by(
    rules: Rules,
    process: Process,
    now: datetime,
    lease: timedelta,
    orphans: Container[tuple[int, str, int]],
    *,
    was_set: bool,
) -> list[str]:
    """Say what a poll should have done whatever else is under way.

    Leases are renewed every third of their time, unless a clock `was_set`; `orphans`, claims that the process
    does not know of, as the answer of their commit was lost, are released.
    """
    left = []
    for claim in process.holds.values():
        run = claim.run
        if claim.is_held:
            least = timedelta(0) if was_set else lease * 2 / 3
            if run.due - now < least:
                left.append(f"the lease of {run.id} until {run.due}")
    for run in rules.runs.values():
        its_own = run.state == "running" and run.owner == process.name
        if its_own and (*run.id, run.token) in orphans:
            left.append(f"the claim of {run.id}, which it does not know of")
    return left


def unclaimed(rules: Rules, process: Process, now: datetime, alone: timedelta) -> list[str]:
    """Say what a worker with a free thread has not taken though it is due.

    What it leaves to newer lists it need not leave once it has been `alone`, as no other process has polled,
    for as long as each of them is waited for.

    While there are suspects, only one without any run need take one; one that it has begun is a suspect to it
    until it ends, also if it was discarded meanwhile. What another worker of the process is late with counts
    as due here, so that suspects wait for it; so does a run of its own handler by the name, of a type that
    only another process calls. One that is held takes nothing.
    """
    if process.held:
        return []
    is_idle = not any(each.holds for each in process.shared.workers)
    begun = any(claim.then.alone for claim in process.holds.values())
    if not is_idle and (begun or any(run.alone and run.unfinished for run in rules.runs.values())):
        return []
    unread = [each for each in rules.deliveries.values() if each.state == "received"]
    left = [
        f"delivery {each.id} unread"
        for each in unread
        if alone >= rules.longest_wait(process, now) or rules.has_to_plan(process, each, now)
    ]
    due = [run for run in rules.runs.values() if run.state == "due" and run.due <= now]
    by_name = any(process.owner_of(run.name).types and not process.find(run) for run in due if not run.alone)
    for run in rules.runs.values():
        if run.alone and by_name:
            continue
        if run.reads and run.state == "due":
            held = sum(claim.run.name == run.name for claim in process.holds.values())
            has_to = rules.has_to_plan(process, run.delivery, now)
            is_due = run.due <= now and not process.has_under_way(run)
            if is_due and has_to and held < READINGS_OF_NAME:
                left.append(f"{run.id} unread since {run.due}")
        elif rules.reason_against_claim(process, run, now) is None:
            left.append(f"{run.id} due since {run.due}")
        elif run.state == "running" and run.due <= now and not process.has_under_way(run):
            left.append(f"{run.id}, the lease of which ended {run.due}")
    return left


def seconds_to_last(rules: Rules, now: datetime) -> float:
    """Return when all runs are due and all leases have ended; no process that was killed is alive then."""
    last = max((run.due for run in rules.runs.values() if run.unfinished), default=now)
    return max(ALIVE.total_seconds() + 1, (last - now).total_seconds())
