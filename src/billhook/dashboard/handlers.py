"""The pages of handlers and of their failures.

The list of handlers, and one with what waits for it, its durations, its issues and options; the list of
issues, and one with what an operator can do about it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from shlex import quote
from typing import NamedTuple

from flask import Response, abort, request, url_for

from billhook.basics.printable import printable
from billhook.basics.type_names import is_reading, types_read
from billhook.clock import format_duration, parse_duration
from billhook.dashboard.context import (
    RANGES,
    SEVERITY_TONES,
    DashboardContext,
    attempts_chart,
    backlog_levels,
    describe,
    parse_rate,
    read_not_before,
    read_range,
    replay_batches,
    replay_due_at,
    stored_and_loaded,
)
from billhook.doctor.causes import find_causes
from billhook.doctor.runbook import read_runbook
from billhook.engines.first_runs import backfill
from billhook.errors.program import in_program
from billhook.events import EVENT_TYPES
from billhook.handlers import Handler, RetrySchedule
from billhook.handlers.options import HEADINGS, in_words
from billhook.handlers.registered import missing_names, missing_remedy, names_of, types_by_handler
from billhook.inbox import PausedHandler
from billhook.inbox.counting.counts import DURATION_BOUNDS
from billhook.inbox.operating.operations import ReplayResult, later_option
from billhook.inbox.operating.takeover import take_over
from billhook.inbox.reading.deliveries import handler_names
from billhook.inbox.reading.handler_shares import first_release, read_share
from billhook.inbox.watching.disagreements import read_not_called
from billhook.inbox.watching.handler_backlogs import HandlerBacklog, read_handler_backlogs
from billhook.inbox.watching.issue_hours import by_hour
from billhook.inbox.watching.issue_updates import resolves_text
from billhook.inbox.watching.issues import (
    RESOLVES_ITSELF,
    Issue,
    IssueState,
    Replayable,
    change_issue,
    count_replayable,
    failing_delivery_ids,
    find_issue,
    list_issues,
    newest_traceback,
)
from billhook.inbox.watching.judgement import condition_of
from billhook.inbox.watching.occurrences import IssueKind
from billhook.inbox.watching.overview import HandlerFigures, PeriodFigures, read_overview
from billhook.inbox.watching.snoozes import COUNTED, MOST_MORE
from billhook.inbox.watching.success import SuccessOverTime, read_success
from billhook.pages.charts import Bars, Series, Sparkline, bar_chart, sparkline

_PARTS = (0.95, 0.5)
_STEPS = ", ".join(map(format_duration, DURATION_BOUNDS[6:10])) + " and so on"
"""Some of the steps of duration that attempts are counted by."""
_ISSUE_TONES = {
    IssueState.ACKNOWLEDGED: "accent",
    IssueState.SNOOZED: "quiet",
    IssueState.RESOLVED: "good",
}


def issue_tone(one: Issue, now: datetime) -> str:
    """Return the colour of an issue's state; that of an open, live one is of its condition's severity."""
    if one.state is IssueState.OPEN and not one.is_live(now):
        return "quiet"
    return _ISSUE_TONES.get(one.state) or SEVERITY_TONES[condition_of(one.kind).severity]


def show_failures(context: DashboardContext) -> Response:
    """Return the page of all issues: open ones first, resolved ones folded."""
    every = list_issues(context.inbox)
    tones = {issue_tone(one, context.now) for one in every}
    issues = [one for one in every if one.state is not IssueState.RESOLVED]
    return context.render(
        "failures.html",
        issues=issues,
        live_issues=sum(one.is_live(context.now) for one in issues),
        resolved=[one for one in every if one.state is IssueState.RESOLVED],
        worst=next((each for each in ("bad", "warn") if each in tones), ""),
        courses=courses(context, every),
        handlers=stored_and_loaded(context),
        types=sorted(EVENT_TYPES),
    )


def show_issue(context: DashboardContext, issue_id: str) -> Response:
    """Return the page of one issue, with the newest traceback open."""
    one = _find(context, issue_id)
    paused = bool(context.inbox.paused_handlers(one.subject))
    title, text = read_runbook()[condition_of(one.kind).runbook]
    left = count_replayable(context.inbox, one)
    return context.render(
        "issue.html",
        issue=one,
        chart=_by_hour(context, one) if one.kind is IssueKind.FAILURE else None,
        newest=newest_traceback(context.inbox, one.id),
        share=read_share(context.inbox, one),
        causes=find_causes(context.inbox, one),
        since_release=first_release(context.inbox, one.id),
        steps=list(_steps(one, left, paused=paused)),
        left=left,
        pace=_pace(context, one, left),
        resolves=resolves_text(one, left, context.now),
        has_handler=one.handler is not None,
        has_number=one.kind in COUNTED,
        gone=_remedy(context, one.handler),
        others=sorted(each.name for each in context.state.handlers.every()),
        runbook=(title, in_program(text)),
    )


def _pace(context: DashboardContext, one: Issue, left: Replayable) -> str | None:
    """Return how long a replay takes at the pace of the last minutes; None if no run ended in them."""
    with context.inbox.database.read() as connection:
        every = read_handler_backlogs(connection, context.now, context.inbox.limits())
    backlog = next((each for each in every if each.name == one.handler), None)
    if backlog is None or not backlog.per_second or not left.number:
        return None
    seconds = (backlog.unfinished + left.dead) / backlog.per_second
    return f"{60 * backlog.per_second:,.3g} a minute lately: all are through in {format_duration(seconds)}"


def _remedy(context: DashboardContext, name: str | None) -> str | None:
    """Return what to do about a handler that this app does not have; None if it has it, or none at all."""
    handlers = context.state.handlers
    if name is None or not handlers.count() or not missing_names(handlers, [name]):
        return None
    return missing_remedy(name)


def _steps(one: Issue, left: Replayable, *, paused: bool) -> Iterator[str]:
    """Yield what an operator can do about an issue, the next step first.

    A paused handler is resumed, or what is replayed waits for it. What is dead is replayed before anything is
    said of the issue; what is retried anyway after it. One without either is resolved.
    """
    if one.handler is not None and paused:
        yield "resume"
    if left.dead:
        yield "replay"
    if one.state is IssueState.OPEN:
        yield "ack"
    if left.retried and not left.dead:
        yield "replay"
    if one.state is not IssueState.RESOLVED:
        yield "resolve"
    if one.handler is not None and not paused:
        yield "pause"
    if one.state not in (IssueState.OPEN, IssueState.ACKNOWLEDGED):
        yield "ack"
    yield "snooze"


_STATES = {
    "ack": IssueState.ACKNOWLEDGED,
    "resolve": IssueState.RESOLVED,
    "snooze": IssueState.SNOOZED,
}


def change(context: DashboardContext, issue_id: str, verb: str) -> Response:
    """Acknowledge, resolve or snooze an issue, and return to its page."""
    one, state = _find(context, issue_id), _STATES[verb]
    until, more = _read_snooze(context, one) if state is IssueState.SNOOZED else (None, None)
    # Another may work on it; who resolves or ignores it is the visitor, though the form may say another.
    worked_on_by = context.reason("to") if state is IssueState.ACKNOWLEDGED else ""
    who, why = worked_on_by or context.visitor, context.reason() or None
    with context.recorded(verb, f"issue {one.id}"):
        change_issue(context.inbox, one.id, state, context.now, who=who, why=why, until=until, more=more)
    snoozed = _find(context, one.id).snooze_text
    shown = f"The issue is {state.value}" + (f" {snoozed}." if snoozed else ".")
    return context.pages.redirect(url_for(".issue", issue_id=one.id), shown)


def _read_snooze(context: DashboardContext, one: Issue) -> tuple[datetime | None, int | None]:
    """Read until when the form snoozes an issue, and until how many more occurrences; default: 7 days."""
    more, duration = (request.form.get(name, "").strip() for name in ("more", "duration"))
    if more and not (more.isascii() and more.isdecimal() and 0 < int(more) <= MOST_MORE):
        abort(400, f"How many more times it happens is a number from 1 to {MOST_MORE:,}.")
    if more and one.kind not in COUNTED:
        abort(400, "This issue does not happen a number of times: give a time.")
    number = int(more) if more else None
    if number is not None and not duration:
        return None, number
    try:
        return context.now + parse_duration(duration or "7d"), number
    except (ValueError, OverflowError):
        abort(400, "The time to snooze it is a duration such as 90s, 30m, 2h or 7d.")


def replay_issue(context: DashboardContext, issue_id: str) -> Response:
    """Replay the deliveries of an issue at a rate, and return to its page."""
    one = _find(context, issue_id)
    rate, to = parse_rate(request.form.get("rate", "")), request.form.get("to", "")
    batches, not_before = failing_delivery_ids(context.inbox, one), read_not_before(context)
    if to:
        done = _take_over(context, one, to, batches, not_before)
    else:
        which = f"issue {one.id}{later_option(not_before)}"
        done = replay_batches(context, batches, which, rate=rate, handler=one.handler, not_before=not_before)
    tone, then = ("good", f" {RESOLVES_ITSELF}.") if done.deliveries else ("warn", "")
    if rate is not None and done.runs > 1:
        last_at = replay_due_at(not_before or context.now, rate, 0, done.runs - 1)
        then = f" The last of them is due at {last_at:%Y-%m-%d %H:%M:%S} UTC.{then}"
    return context.pages.redirect(
        url_for(".issue", issue_id=one.id), describe(context, done, to, not_before) + then, tone
    )


def _take_over(
    context: DashboardContext,
    one: Issue,
    to: str,
    batches: Iterable[list[int]],
    not_before: datetime | None,
) -> ReplayResult:
    """Have another handler take over the runs that failed by an issue."""
    handlers, inbox, done = context.state.handlers, context.inbox, ReplayResult()
    options = backfill(handlers, to)
    if one.handler is None or to == one.handler or options is None:
        abort(400, "There is no other handler of that name.")
    with context.recorded("replay", printable(f"issue {one.id} --to {quote(to)}")) as recorder:
        for batch in batches:
            changed = take_over(
                inbox, batch, context.now, handler=one.handler, to=to, to_names=names_of(handlers, to),
                options=options, only_failed=True, not_before=not_before,
            )  # fmt: skip
            recorder.add(changed.deliveries, batch)
            done += changed
            inbox.waker.wake()
    return done


def _find(context: DashboardContext, issue_id: str) -> Issue:
    one = find_issue(context.inbox, issue_id)
    if one is None:
        abort(404, "There is no such issue, or it was resolved long ago.")
    return one


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
    rows = [(f"{at:%m-%d %H}:00", (number,)) for at, number in zip(times, numbers, strict=True)]
    return bar_chart("Failed attempts", (Series("failed", "warn"),), rows, unit="an hour (UTC)")


class HandlerRow(NamedTuple):
    """A handler in the list. `handler` is None if this app has not loaded it.

    `figures` are of the last 24 hours; None if it was not called. `backlog` is None if nothing of it waits or
    is dead.
    """

    name: str
    handler: Handler | None
    event_types: Sequence[str]
    figures: HandlerFigures | None
    success: SuccessOverTime
    backlog: HandlerBacklog | None
    paused: PausedHandler | None
    not_called: str | None
    """Why it gets no deliveries, where processes lack it."""

    @property
    def reads(self) -> bool:
        """Whether these are the runs that read events of own types, and call no handler."""
        return is_reading(self.name)

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
        gone=_remedy(context, row.name),
        issues=[one for one in issues if one.state is not IssueState.RESOLVED],
        courses=courses(context, issues),
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
    success = read_success(context.inbox, context.now)
    with context.inbox.database.read() as connection:
        not_called = {one.name: one.text for one in read_not_called(connection, context.now)}
    stored = {*handler_names(context.inbox), *paused, *figures, *backlogs}
    others = missing_names(context.state.handlers, stored)
    readings = filter(is_reading, stored)
    rows = []
    for name in sorted([*handled, *others, *readings]):
        handler, types = handled.get(name, (None, types_read(name)))
        every = len(types) == len(EVENT_TYPES) + 1
        shown = ["all"] if every else types
        of_it = figures.get(name), success.get(name, SuccessOverTime()), backlogs.get(name), paused.get(name)
        rows.append(HandlerRow(name, handler, shown, *of_it, not_called.get(name)))
    return rows, unhandled


def _durations_chart(name: str, periods: Sequence[PeriodFigures]) -> Bars:
    """Return the chart of how long attempts took: p50 before p95. It says so where they are estimated."""
    rows = [(f"{one.at:{RANGES[name].label}}", [one.took(part) or 0.0 for part in _PARTS]) for one in periods]
    series = (Series("p95", "quiet"), Series("p50", "accent"))
    unit = f"half (p50) and 95 % (p95) of the attempts of {RANGES[name].each} (UTC) took no longer"
    if any(one.is_estimated for one in periods):
        unit += f"; estimated from numbers by steps: {_STEPS}"
    return bar_chart("Duration", series, rows, overlaid=True, show=format_duration, unit=unit)


def pause(context: DashboardContext) -> Response:
    """Pause a handler, and return to its page."""
    name = _named(context)
    with context.recorded("pause", name):
        context.inbox.pause_handler(name, context.reason() or None, context.now)
    return _back(context, name, f"{name} is paused: its deliveries wait.", "warn")


def resume(context: DashboardContext) -> Response:
    """Resume a paused handler, and return to its page."""
    name = _named(context)
    if not context.inbox.paused_handlers(name):
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
