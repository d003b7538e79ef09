"""The pages of handlers: the list, and one with what waits for it, its durations, its issues and options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flask import Response, abort, request, url_for

from billhook.clock import format_duration
from billhook.dashboard.context import RANGES, DashboardContext, attempts_chart, read_range
from billhook.dashboard.issues import ISSUE_TONES, courses
from billhook.events import EVENT_TYPES
from billhook.handlers.description import identity_text, limits_text, order_text, types_by_handler
from billhook.handlers.handler import Handler
from billhook.inbox import PausedHandler
from billhook.inbox.deliveries import handler_names
from billhook.inbox.issues import IssueState, list_issues
from billhook.inbox.overview import HandlerBacklog, HandlerFigures, PeriodFigures, percentile, read_overview
from billhook.pages.charts import Bars, Series, bar_chart


class HandlerRow(NamedTuple):
    """A handler in the list. `handler` is None if this app has not loaded it.

    `figures` are of the last 24 hours; None if it was not called. `backlog` is None if nothing of it waits or
    is dead.
    """

    name: str
    handler: Handler | None
    event_types: Sequence[str]
    figures: HandlerFigures | None
    backlog: HandlerBacklog | None
    paused: PausedHandler | None

    @property
    def names(self) -> tuple[str, ...]:
        """Its name and its former names."""
        return (self.name, *(self.handler.aliases if self.handler else ()))


def show_handlers(context: DashboardContext) -> Response:
    """Return the page of all handlers, including stored names that this app has not loaded."""
    rows, unhandled = _rows(context)
    return context.pages.render("handlers.html", handlers=rows, unhandled=unhandled, now=context.now)


def show_handler(context: DashboardContext) -> Response:
    """Return the page of one handler: what waits for it, how it does, its issues and its options."""
    name = request.args.get("name", "")
    row = next((one for one in _rows(context)[0] if name in one.names), None)
    if row is None:
        abort(404, "No handler of that name is loaded here, has runs, or was called in the last 24 hours.")
    range_name, periods = read_range(context, row.names)
    issues = [one for each in row.names for one in list_issues(context.inbox, subject=each)]
    return context.pages.render(
        "handler.html",
        one=row,
        terms=_terms(row.handler, context.state.settings.retry_schedule_seconds) if row.handler else (),
        issues=[one for one in issues if one.state is not IssueState.RESOLVED],
        tones=ISSUE_TONES,
        courses=courses(context, issues),
        range=range_name,
        ranges=RANGES,
        attempts=attempts_chart(range_name, periods),
        durations=_durations_chart(range_name, periods),
        now=context.now,
    )


def _rows(context: DashboardContext) -> tuple[list[HandlerRow], list[str]]:
    """Return all handlers, and the event types that have none."""
    handled, unhandled = types_by_handler(context.state.handlers, "unknown types")
    overview = read_overview(context.inbox, context.now)
    paused = {one.name: one for one in overview.paused}
    figures = {one.name: one for one in overview.handlers}
    backlogs = {one.name: one for one in overview.handler_backlogs}
    known = {alias for one, _ in handled.values() for alias in (one.name, *one.aliases)}
    others = {*handler_names(context.inbox), *paused, *figures, *backlogs} - known
    rows = []
    for name in sorted(handled.keys() | others):
        handler, types = handled.get(name, (None, []))
        every = len(types) == len(EVENT_TYPES) + 1
        shown = ["all"] if every else types
        rows.append(HandlerRow(name, handler, shown, figures.get(name), backlogs.get(name), paused.get(name)))
    return rows, unhandled


def _durations_chart(name: str, periods: Sequence[PeriodFigures]) -> Bars:
    """Return the chart of how long attempts took: p50 before p95."""
    rows = [
        (
            f"{one.at:{RANGES[name].label}}",
            [percentile(one.durations, part) or 0.0 for part in (0.95, 0.5)],
        )
        for one in periods
    ]
    series = (Series("p95", "quiet"), Series("p50", "accent"))
    return bar_chart("Duration", series, rows, overlaid=True, show=format_duration)


def pause(context: DashboardContext) -> Response:
    """Pause a handler, and return to its page."""
    name = _named(context)
    with context.recorded("pause", name):
        context.inbox.pause_handler(name, context.reason or None, context.now)
    return _back(context, name, f"{name} is paused: its deliveries wait.", "warn")


def resume(context: DashboardContext) -> Response:
    """Resume a paused handler, and return to its page."""
    name = _named(context)
    if name not in {one.name for one in context.inbox.paused_handlers()}:
        return _back(context, name, f"{name} was not paused.", "warn")
    with context.recorded("resume", name):
        context.inbox.resume_handler(name)
    return _back(context, name, f"{name} is resumed.", "good")


def _back(context: DashboardContext, name: str, notice: str, tone: str) -> Response:
    # A handler that is not loaded here, and has no runs, was known by its pause alone.
    place = url_for(".handler", name=name) if name in _known(context) else url_for(".handlers")
    return context.pages.redirect(place, notice, tone)


def _named(context: DashboardContext) -> str:
    """Return the handler that the form names; an unknown one is a bad request."""
    name = request.form.get("handler", "")
    if name not in _known(context):
        abort(400, "There is no handler of that name.")
    return name


def _known(context: DashboardContext) -> set[str]:
    return {name for one in _rows(context)[0] for name in one.names}


def _terms(handler: Handler, default_retries: Sequence[float]) -> list[tuple[str, str]]:
    """Return the options of a handler in words."""
    seconds = handler.timeout_seconds
    retries = handler.retry.delays_seconds if handler.retry is not None else default_retries
    delays = ", ".join(map(format_duration, retries))
    return [
        ("time-out", "none" if seconds is None else format_duration(seconds)),
        ("retries", f"after {delays}" if delays else "none"),
        ("limits", ", ".join(limits_text(handler).splitlines()) or "none"),
        ("ordered by", order_text(handler) or ""),
        ("same content", ", ".join(identity_text(handler).splitlines())),
        ("sources", ", ".join(handler.sources)),
        ("formerly", ", ".join(handler.aliases)),
    ]
