"""The overview: the state in one sentence, four numbers, charts over time, and a row for every event type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

from flask import Response, current_app, request, url_for

from billhook.dashboard.context import (
    MINUTE,
    RANGES,
    DashboardContext,
    attempts_chart,
    backlog_levels,
    read_range,
    stacked_chart,
)
from billhook.dashboard.deliveries import parse_id
from billhook.doctor.checks import examine
from billhook.doctor.examined import Setup
from billhook.events import EVENT_TYPES
from billhook.inbox.actions import issues_acted_on, list_actions
from billhook.inbox.condition_checks import Facts, number_text
from billhook.inbox.conditions import judge
from billhook.inbox.counts import OTHER_TYPES, ROWS_READ, Counted
from billhook.inbox.overview import Overview, PeriodFigures, read_overview
from billhook.pages.charts import Bars, Sparkline, sparkline
from billhook.status import types_of_models

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
    behind = [one for one in overview.handler_backlogs if one.unfinished]
    name, periods = read_range(context)
    accepted = sum(each.counted.get(Counted.ACCEPTED, 0) for each in periods)
    settings = context.state.settings
    judgement = judge(Facts(inbox, now, settings.engine, settings.notify_file, given=overview))
    silent = {one.subject for one in judgement.holding if one.condition.name == "silence"}
    return context.render(
        "overview.html",
        overview=overview,
        accepted=number_text(accepted, ROWS_READ) if name == "1h" else f"{accepted:,}",
        troubles=[(one.text, _address(one.condition.name)) for one in judgement.problems],
        all_well=judgement.all_well,
        severity=judgement.worst,
        range=name,
        ranges=RANGES,
        received=_received_chart(name, periods),
        handled=attempts_chart(name, periods),
        types=_type_rows(context, overview, periods, silent),
        alive=sum(one.alive for one in overview.workers),
        behind=behind,
        levels=backlog_levels(behind),
    )


# --- the sentence -------------------------------------------------------------------------------------


def _address(name: str) -> str:
    """Return the URL of the page that shows what a condition is about."""
    addresses = {
        "dead": url_for(".failures"),
        "quarantined": url_for(".deliveries", state="quarantined"),
        "paused": url_for(".handlers"),
        "waiting": url_for(".deliveries", state="planned"),
        "not-stored": "#received",
        "failing": url_for(".failures"),
    }
    return addresses.get(name, url_for(".health"))


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
    silent: Collection[str],
) -> list[TypeRow]:
    """Return a row for each type with a model and one for all others; types that were seen come first."""
    seen = {one.event_type: one.last_at for one in types_of_models(overview)}
    rows = []
    for name in (*EVENT_TYPES, OTHER_TYPES):
        last_at = seen.get(name)
        values = [period.by_type[name] for period in periods]
        handlers = context.state.handlers.names(name)
        rows.append(TypeRow(name, sum(values), sparkline(name, values), last_at, handlers, name in silent))
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
        errors=any(one.level == "error" for one in found),
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
