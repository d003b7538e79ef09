"""The overview: the state in one sentence, four numbers, charts over time, and a row for every event type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from flask import Response, url_for

from billhook.basics.type_names import is_reading
from billhook.dashboard.context import (
    MINUTE,
    RANGES,
    SEVERITY_TONES,
    DashboardContext,
    attempts_chart,
    backlog_levels,
    banner_tone,
    read_range,
    stacked_chart,
)
from billhook.doctor.status_texts import types_of_models
from billhook.events import EVENT_TYPES
from billhook.inbox.counting.counts import OTHER_TYPES, ROWS_READ, Counted
from billhook.inbox.watching.conditions import Facts, number_text
from billhook.inbox.watching.handler_backlogs import HandlerBacklog
from billhook.inbox.watching.judgement import Condition, HeldCondition, judge
from billhook.inbox.watching.overview import Overview, PeriodFigures, read_overview
from billhook.inbox.watching.success import SuccessOverTime, read_success
from billhook.pages.charts import Bars, Sparkline, sparkline

_CAUSE_TONES = ("warn", "bad", "violet", "rose")
"""Those of the most frequent causes of refusals; all others share one."""
_HANDLERS = 12
"""How many handlers are shown: those that matter most. The others are on their page."""


class TypeRow(NamedTuple):
    """An event type in the list; `number` and `chart` cover the requested range."""

    name: str
    number: int
    chart: Sparkline
    last_at: datetime | None
    handlers: tuple[str, ...]
    silent: bool


_OF_WORKERS = ("crash-loop", "hanging", "lost-worker", "no-worker")
_PLACES: dict[str, tuple[str, str, dict[str, Any]]] = {
    **dict.fromkeys(_OF_WORKERS, ("workers", ".workers", {})),
    "held": ("actions", ".actions", {}),
    "not-stored": ("requests", ".overview", {"_anchor": "received"}),
    "paused": ("handlers", ".handlers", {}),
    "quarantined": ("quarantined deliveries", ".deliveries", {"state": "quarantined"}),
    "waiting": ("unfinished deliveries", ".deliveries", {"state": "unfinished"}),
}
"""By the name of a condition, the page that shows what it is about: what its link says, and its view."""


def show_overview(context: DashboardContext) -> Response:
    """Return the page; `range` in the address is that of the charts."""
    now, inbox = context.now, context.inbox
    overview = read_overview(inbox, now)
    behind = [one for one in overview.handler_backlogs if one.unfinished]
    handlers = _handler_glances(context, overview)
    name, periods = read_range(context)
    accepted = sum(each.counted.get(Counted.ACCEPTED, 0) for each in periods)
    settings = context.state.settings
    judgement = judge(Facts(inbox, now, settings.engine, settings.notify_file, given=overview))
    silent = {one.subject for one in judgement.holding if one.condition.name == "silence"}
    return context.render(
        "overview.html",
        overview=overview,
        accepted=number_text(accepted, ROWS_READ) if name == "1h" else f"{accepted:,}",
        troubles=_with_places(judgement.problems),
        refusals=_with_places(judgement.refusals),
        all_well=judgement.all_well,
        tones={one.condition.name: SEVERITY_TONES[one.condition.severity] for one in judgement.problems},
        tone_of_all=banner_tone(judgement),
        range=name,
        ranges=RANGES,
        received=_received_chart(name, periods),
        handled=attempts_chart(name, periods),
        types=_type_rows(context, overview, periods, silent),
        alive=sum(one.alive for one in overview.workers),
        handlers=handlers[:_HANDLERS],
        handlers_left_out=len(handlers[_HANDLERS:]),
        levels=backlog_levels(behind),
    )


class HandlerGlance(NamedTuple):
    """A handler at a glance: what is not finished of it, and how large a part of its runs succeeded."""

    name: str
    backlog: HandlerBacklog | None
    success: SuccessOverTime


def _handler_glances(context: DashboardContext, overview: Overview) -> list[HandlerGlance]:
    """Return the handlers: with a backlog first, then what succeeded least in the last day, by name."""
    success = read_success(context.inbox, context.now)
    backlogs = {one.name: one for one in overview.handler_backlogs if one.unfinished}
    loaded = {one.name for one in context.state.handlers.every()}
    # Runs that read events succeed with nearly all: they are shown where they are behind.
    names = sorted({name for name in {*loaded, *success} if not is_reading(name)} | {*backlogs})
    rows = [HandlerGlance(name, backlogs.get(name), success.get(name, SuccessOverTime())) for name in names]
    return sorted(
        rows, key=lambda row: (row.backlog is None, 1.0 if (rate := row.success.day.rate) is None else rate)
    )


def _with_places(holding: Iterable[HeldCondition]) -> list[tuple[str, str, str, str]]:
    """Return of each its text, the first command, and the name and the URL of its page."""
    return [
        (one.detailed, one.condition.first_command(one.subject), *_place(one.condition)) for one in holding
    ]


def _place(condition: Condition) -> tuple[str, str]:
    """Return the name and the URL of a condition's page: the failures, of one with an issue and no other."""
    other = "health" if condition.kind is None else "failures"
    name, view, values = _PLACES.get(condition.name, (other, f".{other}", {}))
    return name, url_for(view, **values)


def _received_chart(name: str, periods: Sequence[PeriodFigures]) -> Bars:
    causes = sum((period.refused for period in periods), Counter[str]())
    shown = [cause for cause, _ in causes.most_common(len(_CAUSE_TONES))]
    tones = {"accepted": "good", "duplicate": "quiet", "conflict": "accent"}
    tones |= {f"refused: {cause}": tone for cause, tone in zip(shown, _CAUSE_TONES, strict=False)}
    if len(causes) > len(shown):
        tones["refused: other causes"] = "strong"
    if RANGES[name].step == MINUTE:
        tones = {"accepted": "good"}
    rows = []
    for period in periods:
        numbers = Counter(period.counted)
        for cause, number in period.refused.items():
            numbers[f"refused: {cause if cause in shown else 'other causes'}"] += number
        rows.append(numbers)
    return stacked_chart("Received deliveries", tones, name, periods, rows)


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
