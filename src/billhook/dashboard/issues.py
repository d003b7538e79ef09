"""The pages of failures: the list of issues, and one issue with what an operator can do about it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from flask import Response, abort, request, url_for

from billhook.clock import parse_duration
from billhook.dashboard.context import DashboardContext, describe, parse_rate, replay_batches
from billhook.handlers.description import users_frames
from billhook.inbox.issues import (
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
from billhook.pages.charts import Bars, Series, Sparkline, bar_chart, sparkline

ISSUE_TONES = {
    IssueState.OPEN: "bad",
    IssueState.ACKNOWLEDGED: "warn",
    IssueState.IGNORED: "quiet",
    IssueState.RESOLVED: "good",
}


def show_failures(context: DashboardContext) -> Response:
    """Return the page of all issues: open ones first, resolved ones folded."""
    every = list_issues(context.inbox)
    return context.pages.render(
        "failures.html",
        issues=[one for one in every if one.state is not IssueState.RESOLVED],
        resolved=[one for one in every if one.state is IssueState.RESOLVED],
        tones=ISSUE_TONES,
        courses=courses(context, every),
        command=f"{context.command} failures",
        now=context.now,
    )


def show_issue(context: DashboardContext, issue_id: str) -> Response:
    """Return the page of one issue, with the newest traceback open."""
    one, now = _find(context, issue_id), context.now
    newest = newest_traceback(context.inbox, one.id)
    return context.pages.render(
        "issue.html",
        issue=one,
        chart=_by_hour(context, one) if one.kind is IssueKind.FAILURE else None,
        newest=newest,
        tone=ISSUE_TONES[one.state],
        frames=users_frames,
        replayable=one.kind is not IssueKind.WORKER and one.count > 0,
        paused=one.subject in {each.name for each in context.inbox.paused_handlers()},
        has_handler=one.kind in (IssueKind.FAILURE, IssueKind.DEAD),
        command=f"{context.command} failures show {one.id}",
        runbook=f"{context.command} runbook {one.kind.runbook}",
        now=now,
    )


def acknowledge(context: DashboardContext, issue_id: str) -> Response:
    """Acknowledge an issue, and return to its page."""
    return _change(context, issue_id, "ack", IssueState.ACKNOWLEDGED)


def resolve(context: DashboardContext, issue_id: str) -> Response:
    """Resolve an issue, and return to its page."""
    return _change(context, issue_id, "resolve", IssueState.RESOLVED)


def ignore(context: DashboardContext, issue_id: str) -> Response:
    """Ignore an issue for a time, and return to its page."""
    try:
        until = context.now + parse_duration(request.form.get("duration", "").strip() or "7d")
    except (ValueError, OverflowError):
        abort(400, "The time to ignore it is a duration such as 90s, 30m, 2h or 7d.")
    return _change(context, issue_id, "ignore", IssueState.IGNORED, until)


def _change(
    context: DashboardContext, issue_id: str, verb: str, state: IssueState, until: datetime | None = None
) -> Response:
    one = _find(context, issue_id)
    who, why = context.visitor, context.reason or None
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
    tone = "good" if done.deliveries else "warn"
    return context.pages.redirect(url_for(".issue", issue_id=one.id), describe(done), tone)


def _find(context: DashboardContext, issue_id: str) -> Issue:
    one = find_issue(context.inbox, issue_id)
    if one is None:
        abort(404, "There is no such issue, or it was resolved long ago.")
    return one


def courses(context: DashboardContext, issues: Collection[Issue]) -> dict[str, Sparkline]:
    """Return small charts of the last 24 hours by the ids of the issues that failed in them."""
    numbers = by_hour(context.inbox, issues, context.now)
    return {
        its_id: sparkline("Failed attempts by hour", each, "bad")
        for its_id, each in numbers.items()
        if any(each)
    }


def _by_hour(context: DashboardContext, one: Issue) -> Bars:
    """Return the chart of failed attempts in the last 24 hours."""
    numbers = by_hour(context.inbox, [one], context.now)[one.id]
    times = [context.now - timedelta(hours=back) for back in reversed(range(len(numbers)))]
    rows = [(f"{at:%H}:00", (number,)) for at, number in zip(times, numbers, strict=True)]
    return bar_chart("Failed attempts by hour", (Series("failed", "bad"),), rows)
