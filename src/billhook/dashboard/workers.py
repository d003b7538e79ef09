"""The page of workers: where they run, since when, with which release and limits, and what each runs now."""

from __future__ import annotations

from flask import Response, abort, request, url_for

from billhook.dashboard.context import DashboardContext
from billhook.inbox.operating.holds import HOLDABLE, hold_worker, resume_worker
from billhook.inbox.reading.worker_list import ListedWorker, WorkerState, list_workers
from billhook.inbox.watching.disagreements import read_disagreement

_TONES = {
    WorkerState.RUNNING: "good",
    WorkerState.HELD: "warn",
    WorkerState.LOST: "warn",
    WorkerState.STOPPED: "quiet",
}


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
        holdable=HOLDABLE,
    )


def hold(context: DashboardContext) -> Response:
    """Have a worker start no run, and return to the page."""
    one = _named(context)
    is_held, why = one.state is WorkerState.HELD, context.reason()
    if is_held and not why:
        return _back(context, one, "was held already.", "warn")
    with context.recorded("hold", f"worker {one.place}"):
        hold_worker(context.inbox, one.owner, context.now, why or None)
    known = "was held already; its reason is the new one."
    return _back(context, one, known if is_held else "starts no run from its next poll on.", "warn")


def resume(context: DashboardContext) -> Response:
    """Have a held worker start runs again, and return to the page."""
    one = _named(context)
    if one.state is not WorkerState.HELD:
        return _back(context, one, "was not held.", "warn")
    with context.recorded("resume", f"worker {one.place}"):
        resume_worker(context.inbox, one.owner)
    return _back(context, one, "starts runs again.", "good")


def _back(context: DashboardContext, one: ListedWorker, notice: str, tone: str) -> Response:
    context.inbox.waker.wake()
    return context.pages.redirect(url_for(".workers"), f"{one.place} {notice}", tone)


def _named(context: DashboardContext) -> ListedWorker:
    """Return the live worker that the form names; another one is a bad request."""
    owner = request.form.get("owner", "")
    alive = (one for one in list_workers(context.inbox, context.now) if one.ended_at is None)
    found = next((one for one in alive if one.owner == owner and one.engine in HOLDABLE), None)
    if found is None:
        abort(400, "There is no such worker alive that can be held.")
    return found
