"""Summarise the state of an inbox and its crossed thresholds, for `billhook status` and for pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple

from billhook.clock import clock_off, format_ago, format_duration
from billhook.errors import BacklogFull, DeadlinePassed, InboxUnavailable, OutOfResources
from billhook.events import EVENT_TYPES
from billhook.inbox.counts import OTHER_TYPES, Counted, hour_of
from billhook.inbox.overview import COUNT_LIMIT, RUNS_LIMIT, TypeFigures, read_periods
from billhook.printable import printable

if TYPE_CHECKING:
    from billhook.inbox import Inbox
    from billhook.inbox.crashes import ThreadCrashes
    from billhook.inbox.overview import HandlerBacklog, Overview

OLD = timedelta(minutes=10)
"""A delivery that is unfinished for longer needs attention."""
_HOUR = timedelta(hours=1)
NOT_STORED = tuple(error.cause for error in (InboxUnavailable, DeadlinePassed, BacklogFull, OutOfResources))
"""The causes of refusals that are the receiver's own; a process that stops in order is none of them."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The limits that an operator sets; None and empty: no limit."""

    max_age: timedelta | None = None
    """The highest age of the oldest unfinished delivery."""
    max_dead: int | None = None
    """How many deliveries may be dead."""
    max_silence: Mapping[str, timedelta] = field(default_factory=dict)
    """How long ago the last delivery of an event type may be; "*" stands for any type."""
    max_refused: tuple[int, int] | None = None
    """How many deliveries may be refused, in how many hours."""


def crossed_thresholds(inbox: Inbox, overview: Overview, thresholds: Thresholds) -> list[str]:
    """Return a line for each threshold that is crossed: the name of its option, the value, and the limit."""
    lines = []
    backlog = overview.backlog
    if thresholds.max_age is not None and backlog.oldest_at is not None:
        age = overview.at - backlog.oldest_at
        if age > thresholds.max_age:
            limit = _age(thresholds.max_age)
            lines.append(f"max-age: the oldest unfinished delivery is {_age(age)} old, the limit is {limit}")
    if thresholds.max_dead is not None and backlog.dead > thresholds.max_dead:
        dead = _are(backlog.dead, "delivery", "deliveries")
        lines.append(f"max-dead: {dead} dead, the limit is {thresholds.max_dead}")
    lines += _silent(overview, thresholds.max_silence)
    if thresholds.max_refused is not None:
        limit_number, hours = thresholds.max_refused
        refused = _refused_within(inbox, overview.at, hours)
        if refused > limit_number:
            span = "hour" if hours == 1 else f"{hours} hours"
            lines.append(
                f"max-refused: about {refused:.0f} deliveries were refused in the last {span}, "
                f"the limit is {limit_number}"
            )
    return lines


def _silent(overview: Overview, max_silence: Mapping[str, timedelta]) -> list[str]:
    last = {one.event_type: one.last_at for one in overview.types} | {"*": overview.last_at}
    lines = []
    for event_type, limit in max_silence.items():
        last_at = last.get(event_type)
        named = "delivery" if event_type == "*" else event_type
        if last_at is None:
            lines.append(f"max-silence: no {named} was ever received, the limit is {_age(limit)}")
        elif overview.at - last_at > limit:
            age = _age(overview.at - last_at)
            lines.append(f"max-silence: the last {named} is {age} old, the limit is {_age(limit)}")
    return lines


def _refused_within(inbox: Inbox, now: datetime, hours: int) -> float:
    """Estimate the refusals of the last hours; of the earliest hour only the part within the range counts."""
    hour = hour_of(now)
    periods = read_periods(inbox, hour - hours * _HOUR, hour + _HOUR, _HOUR, (Counted.REFUSED,))
    first, *others = [period.counted[Counted.REFUSED] for period in periods]
    return first * (1 - (now - hour) / _HOUR) + sum(others)


class Problem(NamedTuple):
    """Something that needs attention, as a part of a sentence; `about` is its kind, for a link."""

    about: Literal[
        "row-security", "worker", "crash", "dead", "quarantined", "paused", "age", "refused", "clock", "issue"
    ]
    text: str


def find_problems(
    overview: Overview, missing_worker: str | None = None, no_policy_for: str = "", open_issues: int = 0
) -> list[Problem]:
    """Return what needs attention, the worst first.

    What strangers can send is no problem here: whether refused signatures are one, the issue of them decides.

    `missing_worker` is what billhook.doctor.inbox.missing_worker found: it knows which engine is used.
    `no_policy_for` is the text of billhook.inbox.database.RowSecurity.
    """
    backlog, problems = overview.backlog, []
    if no_policy_for:
        problems.append(Problem("row-security", f"row security has no policy for {no_policy_for}"))
    if missing_worker is not None:
        problems.append(Problem("worker", missing_worker[0].lower() + missing_worker[1:]))
    problems += [Problem("crash", crashes_text(one, overview.at)) for one in overview.crashes]
    if backlog.dead:
        problems.append(Problem("dead", f"{_are(backlog.dead, 'delivery', 'deliveries')} dead"))
    if backlog.quarantined:
        text = f"{_are(backlog.quarantined, 'delivery', 'deliveries')} quarantined"
        problems.append(Problem("quarantined", text))
    if overview.paused:
        problems.append(Problem("paused", f"{_are(len(overview.paused), 'handler', 'handlers')} paused"))
    if backlog.oldest_at is not None and overview.at - backlog.oldest_at > OLD:
        age = format_duration((overview.at - backlog.oldest_at).total_seconds())
        problems.append(Problem("age", f"the oldest unfinished delivery waits for {age}"))
    if refused := sum(overview.refused.get(cause, 0) for cause in NOT_STORED):
        deliveries = "1 delivery" if refused == 1 else f"{number_text(refused)} deliveries"
        problems.append(Problem("refused", f"{deliveries} could not be stored in 24 hours"))
    if off := clock_off(overview.machine_ahead_seconds):
        problems.append(Problem("clock", off))
    if open_issues:
        text = "1 issue is open" if open_issues == 1 else f"{open_issues:,} issues are open"
        problems.append(Problem("issue", text))
    return problems


def crashes_text(crashes: ThreadCrashes, now: datetime) -> str:
    """Return how often a thread has crashed, and by what the last time, as a part of a sentence."""
    times = "once" if crashes.number == 1 else f"{number_text(crashes.number)} times"
    last = f"last {format_ago(crashes.last_at, now)}, with {printable(crashes.last_error)}"
    return f"the thread {printable(crashes.thread)} has crashed {times} in 24 hours, {last}"


def healthy_summary(overview: Overview) -> str:
    """Return the sentence for an inbox without problems."""
    if overview.last_at is None:
        return "No delivery has been received yet."
    last = format_ago(overview.last_at, overview.at)
    return f"All is well: nothing failed and nothing waits for long. The last delivery came {last}."


def summary(overview: Overview, problems: Sequence[Problem]) -> str:
    """Return one sentence on the state of the inbox, with what `find_problems` found."""
    texts = ", ".join(problem.text for problem in problems)
    return f"Needs attention: {texts}." if texts else healthy_summary(overview)


def types_of_models(overview: Overview) -> list[TypeFigures]:
    """Return the figures of each type with a model, of deliveries without a type, and of all others as "*".

    Types without a model are counted together, as "*"; only their last deliveries are known one by one.
    """
    known: list[TypeFigures] = []
    others: list[TypeFigures] = []
    for one in overview.types:
        (known if one.event_type in EVENT_TYPES or not one.event_type else others).append(one)
    if others:
        counted = next((one for one in others if one.event_type == OTHER_TYPES), TypeFigures(OTHER_TYPES))
        last_at = max((one.last_at for one in others if one.last_at is not None), default=None)
        known.append(replace(counted, last_at=last_at))
    return known


def number_text(number: int, limit: int = COUNT_LIMIT) -> str:
    """Return a number of deliveries as shown: at the limit of counting with a plus sign."""
    return f"{number:,}+" if number >= limit else f"{number:,}"


def backlog_text(backlog: HandlerBacklog, now: datetime) -> str:
    """Return what waits for a handler in words: `8,000 limited, 2 running; oldest 3 h ago`."""
    states = ", ".join(
        f"{number_text(number, RUNS_LIMIT)} {state}" for state, number in backlog.states.items() if number
    )
    oldest = f"oldest {format_ago(backlog.oldest_due_at, now)}" if backlog.oldest_due_at else ""
    through = f"through {through_text(backlog, now)}" if backlog.through_at else ""
    return "; ".join(filter(None, (states, oldest, through)))


def through_text(backlog: HandlerBacklog, now: datetime) -> str:
    """Return when a handler's runs are handled: `in 2 h`, `in more than 2 h` if not all are counted."""
    text = format_ago(backlog.through_at, now)
    return text.replace("in ", "in more than ", 1) if backlog.through_at_least else text


def unfinished_text(backlog: HandlerBacklog) -> str:
    """Return how many runs of a handler are unfinished, with a plus sign if not all are counted."""
    return f"{backlog.unfinished:,}" + ("+" if backlog.is_capped else "")


def _are(number: int, one: str, more: str) -> str:
    return f"1 {one} is" if number == 1 else f"{number_text(number)} {more} are"


def _age(age: timedelta) -> str:
    return format_duration(max(0.0, age.total_seconds()))
