"""DashboardContext, which all views share: the app's state, the pages, and the record of actions.

The views also share the word and the colour of each state, the replay of deliveries in batches, at a rate
that the inbox keeps, and the range of time that charts cover.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from flask import Response, abort, current_app, g, request

from billhook.basics.printable import counted
from billhook.clock import format_time, parse_duration, parse_time
from billhook.extension import get_state
from billhook.handlers.registered import left_alone, missing_from
from billhook.inbox.operating.actions import ActionRecorder, recorded
from billhook.inbox.operating.operations import NO_RUN_YET, ReplayResult, replay
from billhook.inbox.operating.takeover import passed_over
from billhook.inbox.reading.deliveries import ListedDelivery, details, handler_names
from billhook.inbox.running.postponing import LONGEST_POSTPONEMENT
from billhook.inbox.watching.handler_backlogs import HandlerBacklog
from billhook.inbox.watching.judgement import Judgement, Severity
from billhook.inbox.watching.overview import PeriodFigures, read_periods
from billhook.pages.charts import Bars, Series, Sparkline, bar_chart, end_of_axis, level
from billhook.pages.pages import Pages

if TYPE_CHECKING:
    from billhook.extension.state import BillhookState
    from billhook.inbox import DeliveryDetails, Inbox


_TONES = {
    "done": "good",
    "succeeded": "good",
    "running": "accent",
    "retrying": "warn",
    "paused": "warn",
    "dead": "strong",
    "quarantined": "warn",
    "error": "bad",
    "warning": "warn",
}
SEVERITY_TONES = {Severity.CRITICAL: "bad", Severity.WARNING: "warn", Severity.NOTE: "quiet"}
"""The colour of a condition by its severity. Nothing is red but what holds of the highest one."""
MOST_PER_SECOND = 10_000.0
_LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class DashboardContext:
    """The pages of one dashboard, and the billhook of the app that serves the current request."""

    pages: Pages

    @property
    def state(self) -> BillhookState:
        """The state of the app. Raises ConfigError without a Billhook."""
        return get_state(current_app._get_current_object())  # type: ignore[attr-defined]

    @property
    def inbox(self) -> Inbox:
        """The app's inbox."""
        return self.state.inbox

    @property
    def now(self) -> datetime:
        """The time, by the clock of the app."""
        return self.state.dispatcher.clock.now()

    @property
    def visitor(self) -> str:
        """The name of the visitor, as the app knows it."""
        return str(g.billhook_visitor.name)

    def reason(self, field: str = "why") -> str:
        """Return the reason, or the text of another field of the form, on one line; empty if it has none."""
        return " ".join(request.form.get(field, "").replace("\0", "").split())[:_LONGEST_REASON]

    def render(self, template: str, **values: Any) -> Response:
        """Return a page made from a template with these values, and with the time as `now`."""
        return self.pages.render(template, now=self.now, **values)

    def delivery(self, delivery_id: int) -> DeliveryDetails:
        """Return a delivery; the page of an unknown one is 404."""
        # No database has larger ids.
        found = details(self.inbox, [delivery_id]) if delivery_id < 2**63 else []
        if not found:
            abort(404, f"There is no delivery {delivery_id} in this inbox.")
        return found[0]

    def recorded(self, what: str, which: str) -> AbstractContextManager[ActionRecorder]:
        """Record an action of the visitor while the block does it: a row, and a line of the log.

        The block calls the recorder's `add` after each batch, with the number of changes and the ids.
        """
        return recorded(self.inbox, self.visitor, what, which, self.now)


def stored_and_loaded(context: DashboardContext) -> list[str]:
    """Return the names of the handlers that are loaded or have runs, in order."""
    loaded = {handler.name for handler in context.state.handlers.every()}
    return sorted(loaded.union(handler_names(context.inbox)))


def banner_tone(judgement: Judgement) -> str:
    """Return the colour of a judgement's sentence; amber where that is of refused requests, a note."""
    if judgement.worst is not None:
        return SEVERITY_TONES[judgement.worst]
    return "warn" if judgement.refusals else "good" if judgement.last_at is not None else ""


def tone(state: str) -> str:
    """Return the colour of a state; a quiet one for states that need no attention."""
    return _TONES.get(state, "quiet")


def last_error(one: ListedDelivery) -> str | None:
    """Return why a delivery was not handled: its own error, or that of a run."""
    if one.parsed_error is not None:
        return str(one.parsed_error["error"])
    return next((run.last_error for run in reversed(one.runs) if run.last_error), None)


def parse_rate(text: str) -> float | None:
    """Return a number of runs per second as a form has it; None for an empty field."""
    if not text.strip():
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0.01 <= rate <= MOST_PER_SECOND:  # false for NaN
        abort(400, "The rate is a number of runs per second from 0.01 to 10000.")
    return rate


def replay_batches(
    context: DashboardContext,
    batches: Iterable[list[int]],
    which: str,
    *,
    rate: float | None = None,
    handler: str | None = None,
    failed_since: datetime | None = None,
    again: bool = False,
    not_before: datetime | None = None,
) -> ReplayResult:
    """Replay deliveries, a transaction for each batch. With a rate, each run is due when its turn comes.

    Failed runs are replayed, with `failed_since` those that failed since then; with `again` also those that
    `handler` finished well. Without it, a run that succeeds between the page that showed it as failed and the
    form is not made twice. The due times keep the rate without a request or process that waits, and after a
    restart; they begin `not_before` a time, if there is one. Runs with an order key are due in their order
    instead. A run whose handler is not there stays as it is.
    """
    done, now, inbox = ReplayResult(), context.now, context.inbox
    is_missing = missing_from(context.state.handlers)
    with context.recorded("replay", which) as recorder:
        for batch in batches:
            due = None if rate is None else partial(replay_due_at, not_before or now, rate, done.runs)
            changed = replay(
                inbox, batch, now, handler=handler, only_failed=not again, failed_since=failed_since, due=due,
                is_missing=is_missing, not_before=not_before,
            )  # fmt: skip
            recorder.add(changed.deliveries, batch)
            done += changed
            inbox.waker.wake()
    return done


_NOTHING_FAILED = "Nothing was replayed: no handler of these deliveries failed."


def replay_due_at(start: datetime, rate: float, before: int, index: int) -> datetime:
    """Return when a run of a replay at a rate is due: the index-th after those before."""
    return start + timedelta(seconds=(before + index) / rate)


def read_until(text: str, now: datetime) -> datetime:
    """Return until when a form puts runs off: by a duration from now on, or to a time."""
    try:
        # A duration is from now on here, and no age.
        until = now + parse_duration(text) if text[-1:].isalpha() else parse_time(text, now)
    except (ValueError, OverflowError):
        abort(400, "Give a duration such as 90s, 30m, 2h or 7d, or a time such as 2026-01-31T18:45.")
    if until > now + LONGEST_POSTPONEMENT:
        abort(400, "That is more than 31 days ahead: put it off for less.")
    return until


def read_not_before(context: DashboardContext) -> datetime | None:
    """Return the time in a form of a replay before which no run is called; None for an empty field."""
    text = request.form.get("not-before", "").strip()
    until = read_until(text, context.now) if text else None
    if until is not None and until <= context.now:
        abort(400, "That time has passed: without one they are due at once.")
    return until


def describe(
    context: DashboardContext, done: ReplayResult, to: str = "", not_before: datetime | None = None
) -> str:
    """Return sentences about what a replay did and left; `to` is the handler that took runs over."""
    left = [f"{text}." for text in left_alone(context.state.handlers, done.missing)]
    left += [f"{text}." for text in passed_over(done, to)]
    if done.without_runs:
        left.append(f"{counted(done.without_runs, 'delivery')} passed over: {NO_RUN_YET}.")
    if not done.deliveries:
        return " ".join(["Nothing was replayed.", *left]) if left else _NOTHING_FAILED
    if done.runs and not context.state.handlers.count():
        left.append("This app has loaded no handler: whether those of the runs exist is not known here.")
    parts = []
    for number, one, more in (
        (done.runs + done.added, "run is due", "runs are due"),
        (done.requeued, "delivery is read", "deliveries are read"),
    ):
        if number:
            parts.append(f"{number:,} {one if number == 1 else more} again")
    when = f", not before {format_time(not_before)} UTC" if not_before is not None else ""
    return " ".join([f"Replayed: {', '.join(parts)}{when}.", *left])


MINUTE = timedelta(minutes=1)


class Range(NamedTuple):
    """A range of time: `number` steps, the last one under way.

    `label` is the format of their times, `each` what is said of a number: three "a minute".
    """

    text: str
    step: timedelta
    number: int
    label: str
    each: str

    def read(self, context: DashboardContext, handlers: Collection[str] | None = None) -> list[PeriodFigures]:
        """Return all its periods: with those before the first delivery, no bar is wide in a young inbox."""
        seconds = self.step.total_seconds()
        until = datetime.fromtimestamp((context.now.timestamp() // seconds + 1) * seconds, UTC)
        since = until - self.number * self.step
        return read_periods(context.inbox, since, until, self.step, handlers=handlers)


RANGES = {
    "1h": Range("last hour", MINUTE, 60, "%m-%d %H:%M", "a minute"),
    "24h": Range("24 hours", timedelta(hours=1), 24, "%m-%d %H:%M", "an hour"),
    "30d": Range("30 days", timedelta(days=1), 30, "%Y-%m-%d", "a day"),
}


def read_range(
    context: DashboardContext, handlers: Collection[str] | None = None
) -> tuple[str, list[PeriodFigures]]:
    """Return the name of the range in the URL, and its periods. The default fits the data.

    It is the last hour if that has all there is, and else 24 hours.
    """
    name = request.args.get("range", "")
    if name in RANGES:
        return name, RANGES[name].read(context, handlers)
    periods = RANGES["24h"].read(context, handlers)
    if not any(one.counted for one in periods[:-2]):
        minutes = RANGES["1h"].read(context, handlers)
        if any(_sum(minutes)) and _sum(minutes) == _sum(periods):  # nothing is older, or without a row
            return "1h", minutes
    return "24h", periods


def _sum(periods: Sequence[PeriodFigures]) -> Counter[str]:
    return sum((one.counted for one in periods), Counter[str]())


def attempts_chart(name: str, periods: Sequence[PeriodFigures]) -> Bars:
    """Return the chart of attempts of handlers by their result."""
    tones = {"succeeded": "good", "failed": "warn", "dead": "strong"}
    return stacked_chart("Attempts of handlers", tones, name, periods, [one.counted for one in periods])


_LEVELS = {"waiting": "quiet", "limited": "good", "running": "accent", "retrying": "warn", "paused": "strong"}
_SHORTEST_LEVEL = 10
"""What a whole bar is at least: one run is no full bar."""


class BacklogLevels(NamedTuple):
    """The bars of what is not finished, by handler; a whole one is `whole` runs. `series` is their legend."""

    bars: Mapping[str, Sparkline]
    whole: int
    series: Sequence[Series]


def backlog_levels(backlogs: Iterable[HandlerBacklog]) -> BacklogLevels:
    """Return a bar of what is not finished for each handler, all to one scale that ends at a round number."""
    every = list(backlogs)
    whole = max(_SHORTEST_LEVEL, int(end_of_axis(max((one.unfinished for one in every), default=0))))
    series = [Series(*one) for one in _LEVELS.items()]
    bars = {one.name: level([(each, one.states[each.name]) for each in series], whole) for one in every}
    met = [each for each in series if any(one.states[each.name] for one in every)]
    return BacklogLevels(bars, whole, met)


def stacked_chart(
    title: str,
    tones: Mapping[str, str],
    name: str,
    periods: Sequence[PeriodFigures],
    numbers: Sequence[Counter[str]],
) -> Bars:
    """Return a chart of numbers in each period of a range, and a part of a bar for each name with a tone."""
    rows = [
        (f"{period.at:{RANGES[name].label}}", [each[part] for part in tones])
        for period, each in zip(periods, numbers, strict=True)
    ]
    unit = f"{RANGES[name].each} (UTC)"
    return bar_chart(title, [*map(Series._make, tones.items())], rows, unit=unit)
