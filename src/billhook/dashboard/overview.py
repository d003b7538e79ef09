"""The overview: the state in one sentence, four numbers, charts over time, and a row for every event type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from flask import Response, current_app, request, url_for

from billhook.dashboard.context import (
    DAY,
    MINUTE,
    RANGES,
    DashboardContext,
    attempts_chart,
    read_range,
    stacked_chart,
)
from billhook.dashboard.deliveries import parse_id
from billhook.doctor.checks import examine
from billhook.doctor.examined import Setup
from billhook.doctor.inbox import about_worker
from billhook.events import EVENT_TYPES
from billhook.inbox.actions import issues_acted_on, list_actions
from billhook.inbox.counts import OTHER_TYPES, ROWS_READ, Counted, hour_of
from billhook.inbox.issues import IssueState, count_issues
from billhook.inbox.occurrences import is_silent
from billhook.inbox.overview import Overview, PeriodFigures, read_overview, read_periods
from billhook.pages.charts import Bars, Sparkline, sparkline
from billhook.status import find_problems, healthy_summary, number_text, types_of_models

_CAUSES = 5
"""The most causes of refusals that are shown separately, the most frequent first."""
SAMPLE = 300
"""How many of the newest deliveries the findings page examines: fewer than the command, to be quick."""
PAGE = 50


class TypeRow(NamedTuple):
    """An event type in the list; `number` and `chart` cover the requested range."""

    name: str
    number: int
    chart: Sparkline
    last_at: datetime | None
    handlers: tuple[str, ...]
    silent: bool


def show_overview(context: DashboardContext) -> Response:
    """Return the page; `range` in the address is that of the charts."""
    now, inbox = context.now, context.inbox
    overview = read_overview(inbox, now)
    name, periods = read_range(context)
    accepted = sum(each.counted.get(Counted.ACCEPTED, 0) for each in periods)
    # Only counts of accepted deliveries are needed to find silent types.
    midnight = hour_of(now).replace(hour=0)
    days = read_periods(inbox, midnight - 29 * DAY, midnight + DAY, DAY, (Counted.ACCEPTED,))
    return context.render(
        "overview.html",
        overview=overview,
        accepted=number_text(accepted, ROWS_READ) if name == "1h" else f"{accepted:,}",
        troubles=list(_troubles(context, overview)),
        all_well=healthy_summary(overview),
        range=name,
        ranges=RANGES,
        received=_received_chart(name, periods),
        handled=attempts_chart(name, periods),
        types=_type_rows(context, overview, periods, days),
        alive=sum(one.alive for one in overview.workers),
        behind=[one for one in overview.handler_backlogs if one.unfinished],
    )


# --- the sentence -------------------------------------------------------------------------------------


def _troubles(context: DashboardContext, overview: Overview) -> Iterator[tuple[str, str]]:
    """Yield what needs attention, the worst first: a part of a sentence, and the URL of its page."""
    missing = next(about_worker(Setup.of_app(context.state.app)), None)
    addresses = {
        "row-security": url_for(".health"),
        "worker": url_for(".health"),
        "crash": url_for(".health"),
        "dead": url_for(".failures"),
        "quarantined": url_for(".deliveries", state="quarantined"),
        "paused": url_for(".handlers"),
        "age": url_for(".deliveries", state="planned"),
        "refused": "#received",
        "clock": url_for(".health"),
        "issue": url_for(".failures"),
    }
    no_policy_for = context.inbox.database.row_security().text
    opened = count_issues(context.inbox)[IssueState.OPEN]
    for about, text in find_problems(
        overview, None if missing is None else missing.what, no_policy_for, opened
    ):
        yield text, addresses[about]


# --- charts -------------------------------------------------------------------------------------------


def _received_chart(name: str, periods: Sequence[PeriodFigures]) -> Bars:
    causes = sum((period.refused for period in periods), Counter[str]())
    shown = [cause for cause, _ in causes.most_common(_CAUSES)]
    tones = {"accepted": "good", "duplicate": "quiet", "conflict": "warn"}
    tones |= {f"refused: {cause}": "bad" for cause in shown}
    if len(causes) > len(shown):
        tones["refused: other causes"] = "bad"
    if RANGES[name].step == MINUTE:
        tones = {"accepted": "good"}
    rows = []
    for period in periods:
        numbers = Counter(period.counted)
        for cause, number in period.refused.items():
            numbers[f"refused: {cause if cause in shown else 'other causes'}"] += number
        rows.append(numbers)
    return stacked_chart("Received", tones, name, periods, rows)


# --- types --------------------------------------------------------------------------------------------


def _type_rows(
    context: DashboardContext,
    overview: Overview,
    periods: Sequence[PeriodFigures],
    days: Sequence[PeriodFigures],
) -> list[TypeRow]:
    """Return a row for each type with a model and one for all others; types that were seen come first."""
    seen = {one.event_type: one.last_at for one in types_of_models(overview)}
    rows = []
    for name in (*EVENT_TYPES, OTHER_TYPES):
        last_at = seen.get(name)
        values = [period.by_type[name] for period in periods]
        silent = is_silent([day.by_type[name] for day in days], last_at, overview.at)
        handlers = context.state.handlers.names(name)
        rows.append(TypeRow(name, sum(values), sparkline(name, values), last_at, handlers, silent))
    return sorted(
        rows,
        key=lambda row: (row.last_at is None, not row.silent, -row.number, row.name == OTHER_TYPES, row.name),
    )


def show_health(context: DashboardContext) -> Response:
    """Return the page of findings, the worst first, and of what was examined."""
    app = current_app._get_current_object()  # type: ignore[attr-defined]
    found, well = examine(Setup.of_app(app, sample_size=SAMPLE), "page")
    return context.render(
        "health.html",
        findings=found,
        well=well,
        serious=sum(one.level in ("error", "warning") for one in found),
        command=f"{context.command} doctor",
    )


def show_actions(context: DashboardContext) -> Response:
    """Return a page of actions, newest first; the URL has the last id of the previous page."""
    before = parse_id(request.args.get("before"))
    found = list_actions(context.inbox, PAGE + 1, before)
    shown = found[:PAGE]
    return context.render(
        "actions.html",
        actions=shown,
        issues=issues_acted_on(context.inbox, shown),
        first=url_for(".actions") if before is not None else None,
        next=url_for(".actions", before=shown[-1].id) if len(found) > PAGE else None,
        command=f"{context.command} actions",
    )
