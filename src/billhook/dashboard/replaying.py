"""Replay for the pages: batches of deliveries, at a rate that the inbox keeps."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial

from flask import abort

from billhook.dashboard.context import DashboardContext
from billhook.inbox.replay import ReplayResult, replay

__all__ = ["describe", "parse_rate", "replay_batches"]

MOST_PER_SECOND = 10_000.0


def parse_rate(text: str) -> float | None:
    """Return a number of runs per second as a form has it; None for an empty field."""
    if not text.strip():
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0.01 <= rate <= MOST_PER_SECOND:  # false for NaN
        abort(400, "The rate is a number of runs per second from 0.01 to 10000.")
    return rate


def replay_batches(
    context: DashboardContext,
    batches: Iterable[list[int]],
    which: str,
    *,
    rate: float | None = None,
    handler: str | None = None,
    again: bool = False,
) -> ReplayResult:
    """Replay deliveries, a transaction for each batch. With a rate, each run is due when its turn comes.

    What failed is replayed; with `again` what `handler` has finished well, too. A run may succeed between the
    page that showed it as failed and the form, and must not be made twice by that.

    So the rate holds without a request or a process that waits, and after a restart. Runs with an order key
    are due in their order instead.
    """
    done, now, inbox = ReplayResult(), context.now, context.inbox
    with context.recorded("replay", which) as record:
        for batch in batches:
            due = None if rate is None else partial(_due_at, now, rate, done.runs)
            changed = replay(inbox, batch, now, handler=handler, only_failed=not again, due=due)
            record(changed.deliveries, batch)
            done += changed
            inbox.notifier.notify()
    return done


def _due_at(now: datetime, rate: float, earlier: int, index: int) -> datetime:
    return now + timedelta(seconds=(earlier + index) / rate)


def describe(done: ReplayResult) -> str:
    """Return what a replay did, as a sentence."""
    if not done.deliveries:
        return "Nothing was replayed: no handler of these deliveries failed."
    parts = []
    if done.runs or done.added:
        number = done.runs + done.added
        parts.append(f"{number:,} {'run is' if number == 1 else 'runs are'} due again")
    if done.requeued:
        parts.append(
            f"{done.requeued:,} {'delivery is' if done.requeued == 1 else 'deliveries are'} read again"
        )
    return f"Replayed: {', '.join(parts)}."
