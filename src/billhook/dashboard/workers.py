"""The page of workers: where they run, since when, with which release and limits, and what each runs now."""

from __future__ import annotations

from flask import Response

from billhook.dashboard.context import DashboardContext
from billhook.inbox.reading.worker_list import WorkerState, list_workers
from billhook.inbox.watching.disagreements import read_disagreement

_TONES = {WorkerState.RUNNING: "good", WorkerState.LOST: "warn", WorkerState.STOPPED: "quiet"}


def show_workers(context: DashboardContext) -> Response:
    """Return the page."""
    found = list_workers(context.inbox, context.now)
    with context.inbox.database.read() as connection:
        disagreement = read_disagreement(connection, context.now)
    return context.render(
        "workers.html",
        disagreement=disagreement,
        workers=[one for one in found if one.ended_at is None],
        ended=[one for one in found if one.ended_at is not None],
        tones=_TONES,
    )
