"""The page of workers: where they run, since when, with which release and limits, and what each runs now."""

from __future__ import annotations

from flask import Response

from billhook.dashboard.context import DashboardContext
from billhook.inbox.worker_list import WorkerState, list_workers

_TONES = {WorkerState.RUNNING: "good", WorkerState.LOST: "warn", WorkerState.STOPPED: "quiet"}


def show_workers(context: DashboardContext) -> Response:
    """Return the page."""
    found = list_workers(context.inbox, context.now)
    return context.render(
        "workers.html",
        workers=[one for one in found if one.ended_at is None],
        ended=[one for one in found if one.ended_at is not None],
        tones=_TONES,
    )
