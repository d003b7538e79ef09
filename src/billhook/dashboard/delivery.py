"""The page of one delivery: its attempts over time, its body, its headers, and related deliveries."""

from __future__ import annotations

from flask import Response, abort, current_app, request, url_for

from billhook.basics.printable import printable
from billhook.clock import format_time
from billhook.dashboard.body import read_body
from billhook.dashboard.context import DashboardContext, describe, read_until, replay_batches, tone
from billhook.dashboard.deliveries import parse_id, read_filter_form
from billhook.engines.resend import resend
from billhook.errors import ConfigError, PayloadError, Retry
from billhook.fields.model import describe_details
from billhook.inbox.operating.operations import discard, empty_log, erase
from billhook.inbox.operating.postpone import postpone
from billhook.inbox.reading.deliveries import FailureDetails, RunDetails
from billhook.inbox.reading.handler_shares import known_issues
from billhook.inbox.reading.searches import neighbours, related_deliveries
from billhook.pages.charts import Lane, Mark, lane_chart
from billhook.pages.text import indented_json
from billhook.receiver.masking import masked_headers, signature_headers

RAW_CHARACTERS = 40_000


def show(context: DashboardContext, delivery_id: int) -> Response:
    """Return the page of one delivery; the URL has the filters of the list that the visitor came from."""
    found = context.delivery(delivery_id)
    form = read_filter_form(context, request.args).within_search_limit(context.inbox)
    previous, following = neighbours(context.inbox, form.filter, delivery_id)
    text = found.body.decode("utf-8", "backslashreplace")
    raw = indented_json(text) if len(text) <= RAW_CHARACTERS else text[:RAW_CHARACTERS]
    runs = [(run.handler, run.order_key) for run in found.runs]
    named = context.state.handlers.by_name(found.summary.event_type)
    return context.render(
        "delivery.html",
        found=found,
        summary=found.summary,
        error=found.parsed_error,
        chart=lane_chart(found.summary.received_at, [Lane(run.handler, _marks(run)) for run in found.runs]),
        typed=read_body(found.summary.event_type, found.body),
        raw=raw,
        cut=len(text) > RAW_CHARACTERS,
        headers=masked_headers(found, signature_headers(current_app)),
        related=related_deliveries(context.inbox, found.summary, runs),
        issues=known_issues(
            context.inbox, {one.issue for run in found.runs for one in run.failures if one.issue}
        ),
        failed=any(run.standing in ("dead", "retrying") for run in found.runs),
        has_dead=any(run.state == "dead" for run in found.runs),
        has_put_off=any(_is_put_off(one) for run in found.runs for one in run.failures),
        postponable=any(run.state in ("due", "waiting") for run in found.runs),
        open=found.summary.state not in ("done", "pruned", "erased"),
        unfinished=found.summary.state in ("received", "planned"),
        editable=text if text.encode() == found.body and len(text) <= RAW_CHARACTERS else None,
        handlers=sorted(name for name, one in named.items() if one.handles(found.summary.source)),
        here=form.fields,
        before=parse_id(request.args.get("before")),
        previous=previous,
        next=following,
    )


def _marks(run: RunDetails) -> list[Mark]:
    marks = []
    for one in run.failures:
        at = format_time(one.failed_at)
        if run.state == "dead" and one is run.failures[-1]:
            marks.append(Mark(one.failed_at, tone("dead"), f"attempt {one.attempt} failed at {at}: dead"))
        elif _is_put_off(one):
            marks.append(Mark(one.failed_at, "quiet", f"put off by its handler at {at}"))
        else:
            marks.append(Mark(one.failed_at, "warn", f"attempt {one.attempt} failed at {at}"))
    if run.finished_at is not None and run.state in ("succeeded", "discarded"):
        marks.append(Mark(run.finished_at, tone(run.state), f"{run.state} at {format_time(run.finished_at)}"))
    if run.state == "due" and run.due_at is not None:
        marks.append(Mark(run.due_at, "accent", f"next attempt at {format_time(run.due_at)}", open=True))
    return marks


def _is_put_off(attempt: FailureDetails) -> bool:
    """Return whether a handler asked to be called again, which is no failure."""
    return attempt.issue is None and attempt.error.partition(":")[0] == Retry.__name__


def send_body(context: DashboardContext, delivery_id: int) -> Response:
    """Return the exact bytes of a body as a file that no browser displays or runs."""
    headers = {"Content-Disposition": f'attachment; filename="delivery-{delivery_id}.bin"'}
    body = context.delivery(delivery_id).body
    return Response(body, headers=headers, content_type="application/octet-stream")


def replay_one(context: DashboardContext, delivery_id: int) -> Response:
    """Replay the failed runs of a delivery, or the run of one handler, and return to its page.

    A run that succeeded is replayed only after a confirmation, because its effect is made a second time.
    """
    found = context.delivery(delivery_id)
    handler = request.form.get("handler") or None
    if handler is not None and handler not in {run.handler for run in found.runs}:
        abort(400, "This delivery has no run of that handler.")
    which = "" if handler is None else f"handler {handler}"
    again = request.form.get("again") == "1"
    repeated = [run for run in found.runs if run.state == "succeeded" and handler in (None, run.handler)]
    if again and repeated and request.form.get("confirmed") != "1":
        return context.render("repeat.html", summary=found.summary, handler=handler, repeated=repeated)
    done = replay_batches(context, [[delivery_id]], which, handler=handler, again=again)
    return _back(context, delivery_id, describe(context, done), "good" if done.deliveries else "warn")


def resend_one(context: DashboardContext, delivery_id: int) -> Response:
    """Have one handler called with the edited body, as a new delivery, and show that."""
    found = context.delivery(delivery_id)
    if found.summary.state in ("pruned", "erased"):
        abort(400, "The body of this delivery is gone.")
    handler, body = request.form.get("handler", ""), request.form.get("body", "").encode()
    try:
        with context.recorded("resend", f"{delivery_id} edited, handler {printable(handler)}") as recorder:
            new_id = resend(context.inbox, context.state.handlers, found, handler, body, context.now)
            recorder.add(1, [new_id])
    except PayloadError as error:
        wrong = f" ({describe_details(error.details)})" if error.details else ""
        abort(400, f"Nothing was stored: {error}{wrong}.")
    except ConfigError as error:
        abort(400, f"Nothing was stored: {error}.")
    context.inbox.waker.wake()
    return _back(context, new_id, f"Stored, with the edited body, for {printable(handler)}.", "good")


def postpone_one(context: DashboardContext, delivery_id: int) -> Response:
    """Put the runs of a delivery off, and return to its page."""
    context.delivery(delivery_id)
    now = context.now
    until = read_until(request.form.get("until", "").strip(), now)
    with context.recorded("postpone", "") as recorder:
        done = postpone(context.inbox, [delivery_id], now, until)
        recorder.add(done.deliveries, [delivery_id])
    context.inbox.waker.wake()
    if not done.runs:
        running = "it is running." if done.running else "no run of it is unfinished."
        return _back(context, delivery_id, f"Nothing was put off: {running}", "warn")
    when = "due at once" if until <= now else f"not called before {until:%Y-%m-%d %H:%M} UTC"
    behind = f" Deliveries that wait behind it in an order: {done.behind:,}." if done.behind else ""
    runs = "Its run is" if done.runs == 1 else f"Its {done.runs:,} runs are"
    return _back(context, delivery_id, f"{runs} {when}.{behind}", "good")


def discard_one(context: DashboardContext, delivery_id: int) -> Response:
    """Discard a delivery for a reason, and return to its page."""
    context.delivery(delivery_id)
    reason = context.reason("reason")
    if not reason:
        abort(400, "Give a reason: it is stored with the delivery.")
    with context.recorded("discard", "") as recorder:
        done = discard(context.inbox, [delivery_id], reason, context.now)
        recorder.add(done.deliveries, [delivery_id])
    context.inbox.waker.wake()
    if not done.deliveries:
        return _back(context, delivery_id, "Nothing was discarded: it is done.", "warn")
    return _back(context, delivery_id, "Discarded: its handlers are not called again.", "good")


def erase_one(context: DashboardContext, delivery_id: int) -> Response:
    """Erase the content of a delivery for good, and return to its page."""
    context.delivery(delivery_id)
    give_up = request.form.get("discard") == "1"
    with context.recorded("erase", "") as recorder:
        done = erase(context.inbox, [delivery_id], context.now, discard_unfinished=give_up)
        recorder.add(done.deliveries, [delivery_id])
    if done.unfinished:
        return _back(context, delivery_id, "Not erased: it is not finished. Discard it first.", "warn")
    if not done.deliveries:
        return _back(context, delivery_id, "Nothing was erased: there is no content.", "warn")
    context.inbox.waker.wake()
    if not empty_log(context.inbox):
        notice = "Erased. The database's log holds it until no process reads the inbox for a moment."
        return _back(context, delivery_id, notice, "warn")
    return _back(context, delivery_id, "Erased: only its key, its times and the results are kept.", "good")


def _back(context: DashboardContext, delivery_id: int, notice: str, how: str) -> Response:
    return context.pages.redirect(url_for(".delivery", delivery_id=delivery_id), notice, how)
