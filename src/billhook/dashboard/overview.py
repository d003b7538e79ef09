"""The overview: the state in one sentence, four numbers, charts over time, and a row for every event type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from flask import Response, current_app, request, url_for

from billhook.dashboard.context import DashboardContext
from billhook.dashboard.deliveries import parse_id
from billhook.doctor.checks import examine
from billhook.doctor.inbox import about_worker
from billhook.doctor.setup import Setup
from billhook.events import EVENT_TYPES
from billhook.inbox.actions import list_actions
from billhook.inbox.counts import OTHER_TYPES, Counted, hour_of
from billhook.inbox.occurrences import is_silent
from billhook.inbox.overview import Overview, PeriodFigures, read_overview, read_periods
from billhook.pages.charts import Bars, Series, Sparkline, bar_chart, sparkline
from billhook.status import find_problems, healthy_summary, types_of_models

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
_LONG_DAYS = 30
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
    """Return the page; `range=30d` in the address shows days instead of hours."""
    now, inbox = context.now, context.inbox
    overview = read_overview(inbox, now)
    in_days = request.args.get("range") == "30d"
    hour = hour_of(now)
    midnight = hour.replace(hour=0)
    # For a range in hours, days are read too, to find silent types; only counts of accepted deliveries are
    # needed.
    needed = tuple(Counted) if in_days else (Counted.ACCEPTED,)
    days = read_periods(inbox, midnight - (_LONG_DAYS - 1) * DAY, midnight + DAY, DAY, needed)
    periods = days if in_days else read_periods(inbox, hour - 23 * HOUR, hour + HOUR, HOUR)
    labels = [f"{one.at:%m-%d}" if in_days else f"{one.at:%H:%M}" for one in periods]
    return context.pages.render(
        "overview.html",
        overview=overview,
        accepted=sum(each.counted.get(Counted.ACCEPTED, 0) for each in periods),
        troubles=list(_troubles(context, overview)),
        all_well=healthy_summary(overview),
        in_days=in_days,
        received=_received_chart(labels, periods),
        handled=_handled_chart(labels, periods),
        types=_type_rows(context, overview, periods, days),
        alive=sum(one.alive for one in overview.workers),
        now=now,
    )


# --- the sentence -------------------------------------------------------------------------------------


def _troubles(context: DashboardContext, overview: Overview) -> Iterator[tuple[str, str]]:
    """Yield what needs attention, the worst first: a part of a sentence, and the URL of its page."""
    missing = next(about_worker(Setup.of_app(context.state.app)), None)
    addresses = {
        "worker": url_for(".health"),
        "dead": url_for(".failures"),
        "quarantined": url_for(".deliveries", state="quarantined"),
        "paused": url_for(".handlers"),
        "age": url_for(".deliveries", state="planned"),
        "refused": "#received",
    }
    for about, text in find_problems(overview, None if missing is None else missing.what):
        yield text, addresses[about]


# --- charts -------------------------------------------------------------------------------------------


def _received_chart(labels: Sequence[str], periods: Sequence[PeriodFigures]) -> Bars:
    causes = sum((period.refused for period in periods), Counter[str]())
    shown = [cause for cause, _ in causes.most_common(_CAUSES)]
    tones = {"accepted": "good", "duplicate": "quiet", "conflict": "warn"}
    tones |= {f"refused: {cause}": "bad" for cause in shown}
    if len(causes) > len(shown):
        tones["refused: other causes"] = "bad"
    rows = []
    for period in periods:
        numbers = Counter(period.counted)
        for cause, number in period.refused.items():
            numbers[f"refused: {cause if cause in shown else 'other causes'}"] += number
        rows.append(numbers)
    return _chart("Received", tones, labels, rows)


def _handled_chart(labels: Sequence[str], periods: Sequence[PeriodFigures]) -> Bars:
    tones = {"succeeded": "good", "failed, tried again": "warn", "dead": "bad"}
    rows = [one.counted | Counter({"failed, tried again": one.counted[Counted.FAILED]}) for one in periods]
    return _chart("Attempts of handlers", tones, labels, rows)


def _chart(title: str, tones: Mapping[str, str], labels: Sequence[str], rows: Sequence[Counter[str]]) -> Bars:
    values = [[numbers[name] for name in tones] for numbers in rows]
    return bar_chart(title, [*map(Series._make, tones.items())], [*zip(labels, values, strict=True)])


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
    """Return the page of findings, the worst first."""
    app = current_app._get_current_object()  # type: ignore[attr-defined]
    findings = [one.in_program(app) for one in examine(Setup.of_app(app, sample_size=SAMPLE), "page")]
    return context.pages.render(
        "health.html", findings=findings, command=f"{context.command} doctor", sample=SAMPLE
    )


def show_actions(context: DashboardContext) -> Response:
    """Return a page of actions, newest first; the URL has the last id of the previous page."""
    before = parse_id(request.args.get("before"))
    found = list_actions(context.inbox, PAGE + 1, before)
    shown = found[:PAGE]
    return context.pages.render(
        "actions.html",
        actions=shown,
        first=url_for(".actions") if before is not None else None,
        next=url_for(".actions", before=shown[-1].id) if len(found) > PAGE else None,
        command=f"{context.command} actions",
        now=context.now,
    )
