"""The pages of handlers and of their failures.

The list of handlers, and one with what waits for it, its durations, its issues and options; the list of
issues, and one with what an operator can do about it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import NamedTuple

from flask import Response, abort, request, url_for

from billhook.clock import format_duration, parse_duration
from billhook.dashboard.context import (
    RANGES,
    SEVERITY_TONES,
    DashboardContext,
    attempts_chart,
    backlog_levels,
    describe,
    parse_rate,
    read_range,
    replay_batches,
)
from billhook.events import EVENT_TYPES
from billhook.handlers import Handler, RetrySchedule
from billhook.handlers.options import HEADINGS, in_words
from billhook.handlers.registered import missing_names, types_by_handler
from billhook.inbox import PausedHandler
from billhook.inbox.conditions import condition_of
from billhook.inbox.deliveries import handler_names
from billhook.inbox.issues import (
    RESOLVES_ITSELF,
    Issue,
    IssueState,
    by_hour,
    change_issue,
    failing_delivery_ids,
    find_issue,
    list_issues,
    newest_traceback,
)
from billhook.inbox.occurrences import IssueKind
from billhook.inbox.overview import HandlerBacklog, HandlerFigures, PeriodFigures, percentile, read_overview
from billhook.inbox.shares import first_release, newest_errors, read_share
from billhook.pages.charts import Bars, Series, Sparkline, bar_chart, sparkline
from billhook.printable import first_line
from billhook.program import in_program
from billhook.runbook import read_runbook

_ISSUE_TONES = {
    IssueState.ACKNOWLEDGED: "accent",
    IssueState.IGNORED: "quiet",
    IssueState.RESOLVED: "good",
}


def issue_tone(one: Issue) -> str:
    """Return the colour of an issue's state; that of an open one is of its condition's severity."""
    return _ISSUE_TONES.get(one.state) or SEVERITY_TONES[condition_of(one.kind).severity]


def show_failures(context: DashboardContext) -> Response:
    """Return the page of all issues: open ones first, resolved ones folded."""
    every = list_issues(context.inbox)
    return context.render(
        "failures.html",
        issues=[one for one in every if one.state is not IssueState.RESOLVED],
        resolved=[one for one in every if one.state is IssueState.RESOLVED],
        critical=any(issue_tone(one) == "bad" for one in every),
        courses=courses(context, every),
        errors=_errors(context, every),
    )


def show_issue(context: DashboardContext, issue_id: str) -> Response:
    """Return the page of one issue, with the newest traceback open."""
    one = _find(context, issue_id)
    paused = one.subject in {each.name for each in context.inbox.paused_handlers()}
    title, text = read_runbook()[condition_of(one.kind).runbook]
    return context.render(
        "issue.html",
        issue=one,
        chart=_by_hour(context, one) if one.kind is IssueKind.FAILURE else None,
        newest=newest_traceback(context.inbox, one.id),
        error=_errors(context, [one]).get(one.id),
        share=read_share(context.inbox, one),
        since_release=first_release(context.inbox, one.id),
        steps=list(_steps(one, paused=paused)),
        has_handler=one.handler is not None,
        runbook=(title, in_program(text)),
    )


def _steps(one: Issue, *, paused: bool) -> Iterator[str]:
    """Yield what an operator can do about an issue, the next step first.

    An open one is acknowledged; then its handler is resumed, and its deliveries are replayed; an
    issue without any is resolved.
    """
    if one.state is IssueState.OPEN:
        yield "ack"
    if one.handler is not None and paused:
        yield "resume"
    if one.deliveries:
        yield "replay"
    if one.state is not IssueState.RESOLVED:
        yield "resolve"
    if one.handler is not None and not paused:
        yield "pause"
    if one.state not in (IssueState.OPEN, IssueState.ACKNOWLEDGED):
        yield "ack"
    yield "ignore"


_STATES = {
    "ack": IssueState.ACKNOWLEDGED,
    "resolve": IssueState.RESOLVED,
    "ignore": IssueState.IGNORED,
}


def change(context: DashboardContext, issue_id: str, verb: str) -> Response:
    """Acknowledge or resolve an issue, or ignore it for a time, and return to its page."""
    one, state, until = _find(context, issue_id), _STATES[verb], None
    if state is IssueState.IGNORED:
        try:
            until = context.now + parse_duration(request.form.get("duration", "").strip() or "7d")
        except (ValueError, OverflowError):
            abort(400, "The time to ignore it is a duration such as 90s, 30m, 2h or 7d.")
    # Another may work on it; who resolves or ignores it is the visitor, though the form may say another.
    worked_on_by = context.reason("to") if state is IssueState.ACKNOWLEDGED else ""
    who, why = worked_on_by or context.visitor, context.reason() or None
    with context.recorded(verb, f"issue {one.id}"):
        change_issue(context.inbox, one.id, state, context.now, who=who, why=why, until=until)
    shown = f"The issue is {state.value}" + (f" until {until:%Y-%m-%d %H:%M} UTC." if until else ".")
    return context.pages.redirect(url_for(".issue", issue_id=one.id), shown)


def replay_issue(context: DashboardContext, issue_id: str) -> Response:
    """Replay the deliveries of an issue at a rate, and return to its page."""
    one = _find(context, issue_id)
    rate = parse_rate(request.form.get("rate", ""))
    batches = failing_delivery_ids(context.inbox, one)
    done = replay_batches(context, batches, f"issue {one.id}", rate=rate, handler=one.handler)
    tone, then = ("good", f" {RESOLVES_ITSELF}.") if done.deliveries else ("warn", "")
    return context.pages.redirect(url_for(".issue", issue_id=one.id), describe(done) + then, tone)


def _find(context: DashboardContext, issue_id: str) -> Issue:
    one = find_issue(context.inbox, issue_id)
    if one is None:
        abort(404, "There is no such issue, or it was resolved long ago.")
    return one


def _errors(context: DashboardContext, issues: Collection[Issue]) -> dict[str, str]:
    """Return the first line of the newest error of each issue of failures, by its id."""
    found = newest_errors(context.inbox, [one.id for one in issues])
    return {its_id: first_line(error) for its_id, error in found.items()}


def courses(context: DashboardContext, issues: Collection[Issue]) -> dict[str, Sparkline]:
    """Return small charts of the last 24 hours by the ids of the issues that failed in them."""
    numbers = by_hour(context.inbox, issues, context.now)
    return {
        its_id: sparkline("Failed attempts by hour", each, "warn")
        for its_id, each in numbers.items()
        if any(each)
    }


def _by_hour(context: DashboardContext, one: Issue) -> Bars:
    """Return the chart of failed attempts in the last 24 hours."""
    numbers = by_hour(context.inbox, [one], context.now)[one.id]
    times = [context.now - timedelta(hours=back) for back in reversed(range(len(numbers)))]
    rows = [(f"{at:%H}:00", (number,)) for at, number in zip(times, numbers, strict=True)]
    return bar_chart("Failed attempts by hour", (Series("failed", "warn"),), rows)


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
    levels = backlog_levels(row.backlog for row in rows if row.backlog is not None)
    return context.render("handlers.html", handlers=rows, unhandled=unhandled, levels=levels)


def show_handler(context: DashboardContext) -> Response:
    """Return the page of one handler: what waits for it, how it does, its issues and its options."""
    name = request.args.get("name", "")
    row = next((one for one in _rows(context)[0] if name in one.names), None)
    if row is None:
        abort(404, "No handler of that name is loaded here, has runs, or was called in the last 24 hours.")
    range_name, periods = read_range(context, row.names)
    issues = [one for each in row.names for one in list_issues(context.inbox, subject=each)]
    return context.render(
        "handler.html",
        one=row,
        terms=_terms(row.handler, context.state.settings.retry_schedule_seconds) if row.handler else (),
        issues=[one for one in issues if one.state is not IssueState.RESOLVED],
        courses=courses(context, issues),
        errors=_errors(context, issues),
        range=range_name,
        ranges=RANGES,
        attempts=attempts_chart(range_name, periods),
        durations=_durations_chart(range_name, periods),
    )


def _rows(context: DashboardContext) -> tuple[list[HandlerRow], list[str]]:
    """Return all handlers, and the event types that have none."""
    handled, unhandled = types_by_handler(context.state.handlers, "unknown types")
    overview = read_overview(context.inbox, context.now)
    paused = {one.name: one for one in overview.paused}
    figures = {one.name: one for one in overview.handlers}
    backlogs = {one.name: one for one in overview.handler_backlogs}
    stored = {*handler_names(context.inbox), *paused, *figures, *backlogs}
    others = missing_names(context.state.handlers, stored)
    rows = []
    for name in sorted([*handled, *others]):
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
        context.inbox.pause_handler(name, context.reason() or None, context.now)
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
    unset = {**HEADINGS, "retries": str(RetrySchedule.of(default_retries))}
    return [
        (heading, text.replace("\n", ", ") or unset[heading]) for heading, text in in_words(handler).items()
    ]
