"""The page of one delivery: its attempts over time, its body with meanings, its headers, what is related."""

from __future__ import annotations

import re
from collections.abc import Iterable

from flask import Response, abort, current_app, request, url_for

from billhook.dashboard.body import indented_json, read_body
from billhook.dashboard.context import DashboardContext, describe, replay_batches, run_state, tone
from billhook.dispatch.quarantine import parse_error
from billhook.dispatch.tracebacks import users_frames
from billhook.inbox import DeliveryDetails
from billhook.inbox.admin import RunDetails
from billhook.inbox.discard import discard
from billhook.inbox.erase import empty_log, erase
from billhook.inbox.siblings import siblings
from billhook.pages import Lane, LaneChart, Mark, format_time, lane_chart
from billhook.receiver import webhook_routes

__all__ = ["discard_one", "erase_one", "masked_headers", "replay_one", "send_body", "show"]

RAW_CHARACTERS = 40_000
_LONGEST_REASON = 500
_SECRET_NAME = re.compile(r"SIG|AUTH|COOKIE|TOKEN|SECRET|PASSW|CREDENTIAL|SESSION|KEY|HMAC|JWT")
_HARMLESS = re.compile(r"[0-9]{1,16}|[0-9T:.+Z-]{10,35}")
"""A time of signing, in the forms that schemes know."""


def show(context: DashboardContext, delivery_id: int) -> Response:
    """Return the page of one delivery."""
    found = context.delivery(delivery_id)
    text = found.body.decode("utf-8", "backslashreplace")
    raw = indented_json(text) if len(text) <= RAW_CHARACTERS else text[:RAW_CHARACTERS]
    runs = [(run.handler, run.order_key) for run in found.runs]
    return context.pages.render(
        "delivery.html",
        found=found,
        summary=found.summary,
        error=None if found.error is None else parse_error(found.error),
        chart=_attempts(found),
        typed=read_body(found.summary.event_type, found.body),
        raw=raw,
        cut=len(text) > RAW_CHARACTERS,
        headers=masked_headers(found, _signature_headers()),
        related=siblings(context.inbox, found.summary, runs),
        failed=any(run_state(run) in ("dead", "retrying") for run in found.runs),
        open=found.summary.state not in ("done", "pruned", "erased"),
        unfinished=found.summary.state in ("received", "planned"),
        frames=users_frames,
        command=f"{context.command} deliveries show {delivery_id}",
        now=context.now,
    )


def send_body(context: DashboardContext, delivery_id: int) -> Response:
    """Return the exact bytes of a body as a file, which no browser shows or runs."""
    found = context.delivery(delivery_id)
    response = Response(found.body, content_type="application/octet-stream")
    response.headers["Content-Disposition"] = f'attachment; filename="delivery-{delivery_id}.bin"'
    return response


def replay_one(context: DashboardContext, delivery_id: int) -> Response:
    """Replay what failed of a delivery, or the run of one handler, and return to its page."""
    found = context.delivery(delivery_id)
    handler = request.form.get("handler") or None
    if handler is not None and handler not in {run.handler for run in found.runs}:
        abort(400, "This delivery has no run of that handler.")
    which = "" if handler is None else f"handler {handler}"
    again = request.form.get("again") == "1"
    done = replay_batches(context, [[delivery_id]], which, handler=handler, again=again)
    return _back(context, delivery_id, describe(done), "good" if done.deliveries else "warn")


def discard_one(context: DashboardContext, delivery_id: int) -> Response:
    """Discard a delivery for a reason, and return to its page."""
    context.delivery(delivery_id)
    reason = " ".join(request.form.get("reason", "").split())[:_LONGEST_REASON]
    if not reason or "\0" in reason:
        abort(400, "Give a reason: it is stored with the delivery.")
    with context.recorded("discard", "") as record:
        done = discard(context.inbox, [delivery_id], reason, context.now)
        record(done.deliveries, [delivery_id])
    context.inbox.notifier.notify()
    if not done.deliveries:
        return _back(context, delivery_id, "Nothing was discarded: it is done.", "warn")
    return _back(context, delivery_id, "Discarded: its handlers are not called again.", "good")


def erase_one(context: DashboardContext, delivery_id: int) -> Response:
    """Erase the content of a delivery for good, and return to its page."""
    context.delivery(delivery_id)
    give_up = request.form.get("discard") == "1"
    with context.recorded("erase", "") as record:
        done = erase(context.inbox, [delivery_id], context.now, discard_unfinished=give_up)
        record(done.erased, [delivery_id])
    if done.unfinished:
        return _back(context, delivery_id, "Not erased: it is not finished. Discard it first.", "warn")
    if not done.erased:
        return _back(context, delivery_id, "Nothing was erased: there is no content.", "warn")
    context.inbox.notifier.notify()
    if not empty_log(context.inbox):
        told = "Erased. The database's log holds it until no process reads the inbox for a moment."
        return _back(context, delivery_id, told, "warn")
    return _back(context, delivery_id, "Erased: only its key, its times and the results are kept.", "good")


def _back(context: DashboardContext, delivery_id: int, notice: str, how: str) -> Response:
    return context.pages.redirect(url_for(".delivery", delivery_id=delivery_id), notice, how)


# --- headers ------------------------------------------------------------------------------------------


def _signature_headers() -> set[str]:
    """Return the headers that the app's sources read, as they are stored."""
    app = current_app._get_current_object()  # type: ignore[attr-defined]
    names = (name for route in webhook_routes(app) for name in route.source.scheme.headers)
    return {name.upper().replace("-", "_") for name in names}


def masked_headers(found: DeliveryDetails, signed_by: Iterable[str]) -> list[tuple[str, str, bool]]:
    """Return each header's name, its value, and whether dots stand for the value.

    Masked are headers of signatures, but for the key and the time that are signed, and what by its name may
    be a credential.
    """
    signature_names = set(signed_by)
    shown = []
    for name, value in found.headers.items():
        harmless = value == found.summary.key or _HARMLESS.fullmatch(value) is not None
        masked = _SECRET_NAME.search(name) is not None or (name in signature_names and not harmless)
        # Stored as WSGI names them: the spelling that the sender used is not known.
        title = name.replace("_", "-").title()
        shown.append((title, f"•••••• ({len(value)} characters)" if masked else value, masked))
    return shown


# --- attempts -----------------------------------------------------------------------------------------


def _attempts(found: DeliveryDetails) -> LaneChart:
    return lane_chart(
        found.summary.received_at, [Lane(run.handler, tuple(_marks(run))) for run in found.runs]
    )


def _marks(run: RunDetails) -> list[Mark]:
    marks = [
        Mark(one.failed_at, "bad", f"attempt {one.attempt} failed at {format_time(one.failed_at)}")
        for one in run.failures
    ]
    if run.finished_at is not None and run.state in ("succeeded", "discarded"):
        marks.append(Mark(run.finished_at, tone(run.state), f"{run.state} at {format_time(run.finished_at)}"))
    if run.state == "due" and run.due_at is not None:
        marks.append(Mark(run.due_at, "warn", f"next attempt at {format_time(run.due_at)}", open=True))
    return marks
