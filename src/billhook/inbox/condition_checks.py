"""Find what is wrong by the facts of an inbox: a function for each condition of billhook.inbox.conditions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path

from billhook.clock import clock_off, format_ago, format_duration, format_time
from billhook.file_modes import access_by_others
from billhook.inbox.counts import OTHER_TYPES
from billhook.inbox.crashes import ThreadCrashes
from billhook.inbox.inbox import Inbox
from billhook.inbox.issues import IssueState, OpenIssue, list_issues, list_open
from billhook.inbox.lost_workers import REPORTED_FOR
from billhook.inbox.occurrences import (
    IssueKind,
    Occurrence,
    little_space,
    occurrences,
    occurrences_in_figures,
)
from billhook.inbox.overview import COUNT_LIMIT, Overview, read_overview, read_refused_since
from billhook.inbox.pace import OLD, read_not_stored
from billhook.inbox.thresholds import NO_THRESHOLDS, Thresholds, refused_within
from billhook.printable import counted, printable

_WORKER_SEEN_WITHIN = timedelta(minutes=1)
"""Three times the interval at which a worker renews its row in the inbox."""
_MANY_MISMATCHES = 5
"""A stranger's attempts, or a test with another secret, are fewer."""


@dataclass
class Facts:
    """What conditions are judged by. Each part is read when the first condition asks for it.

    `engine` is that of the deployment; `notify_file` holds the addresses of messages.
    """

    inbox: Inbox
    now: datetime
    engine: str = "worker"
    notify_file: str | None = None
    thresholds: Thresholds = NO_THRESHOLDS
    given: Overview | None = None

    @cached_property
    def overview(self) -> Overview:
        """The figures of the inbox."""
        return self.given or read_overview(self.inbox, self.now)

    @cached_property
    def occurrences(self) -> Collection[Occurrence]:
        """What is wrong by rows and figures, and is an issue."""
        figures = occurrences_in_figures(self.inbox, self.now)
        with self.inbox.database.read() as connection:
            return occurrences(connection, self.now, figures).values()

    @cached_property
    def opened(self) -> Sequence[OpenIssue]:
        """The issues that are open."""
        return list_open(self.inbox)

    def of_kind(self, kind: IssueKind | None) -> Iterator[tuple[str, str]]:
        """Yield the occurrences of a kind, each with its subject."""
        yield from ((each.subject, each.title) for each in self.occurrences if each.kind is kind)


Found = Iterator[tuple[str, str]]
"""The subject and the sentence of each thing that is wrong; the subject may be empty."""


def worker_missing_since(facts: Facts) -> tuple[bool, datetime | None]:
    """Return whether no worker serves the inbox, and when the last was seen."""
    seen_at = facts.inbox.worker_seen_at()
    missing = seen_at is None or facts.now - seen_at > _WORKER_SEEN_WITHIN
    return facts.engine != "inline" and missing, seen_at


def find_no_worker(facts: Facts) -> Found:
    missing, seen_at = worker_missing_since(facts)
    if missing and seen_at is None:
        yield "", "no worker is running"
    elif missing and seen_at is not None:
        age = format_duration((facts.now - seen_at).total_seconds())
        yield "", f"no worker has been seen for {' '.join(age.split(' ')[:2])}"  # one unit is enough


def find_row_security(facts: Facts) -> Found:
    if text := facts.inbox.database.row_security().text:
        yield "", f"row security has no policy for {text}"


def find_crashed(facts: Facts) -> Found:
    for one in facts.overview.crashes:
        yield one.thread, crashes_text(one, facts.now)


def crashes_text(crashes: ThreadCrashes, now: datetime) -> str:
    """Return how often a thread has crashed, and by what the last time, as a part of a sentence."""
    times = "once" if crashes.number == 1 else f"{number_text(crashes.number)} times"
    last = f"last {format_ago(crashes.last_at, now)}, with {printable(crashes.last_error)}"
    return f"the thread {printable(crashes.thread)} has crashed {times} in 24 hours, {last}"


def find_disk(facts: Facts, *, critical: bool) -> Found:
    if space := little_space(facts.inbox, critical=critical):
        yield "", space


def find_dead(facts: Facts) -> Found:
    if dead := facts.overview.backlog.dead:
        yield "", f"{_are(dead, 'delivery', 'deliveries')} dead"


def find_quarantined(facts: Facts) -> Found:
    if quarantined := facts.overview.backlog.quarantined:
        yield "", f"{_are(quarantined, 'delivery', 'deliveries')} quarantined"


def find_paused(facts: Facts) -> Found:
    if paused := facts.overview.paused:
        yield paused[0].name, f"{_are(len(paused), 'handler', 'handlers')} paused"


def find_waiting(facts: Facts) -> Found:
    oldest_at = facts.overview.backlog.oldest_at
    if oldest_at is not None and facts.now - oldest_at > OLD:
        yield "", f"the oldest unfinished delivery waits for {_age(facts.now - oldest_at)}"


def find_not_stored(facts: Facts) -> Found:
    if found := read_not_stored(facts.inbox, facts.now):
        deliveries = "1 delivery" if found[0] == 1 else f"{number_text(found[0])} deliveries"
        yield "", f"{deliveries} could not be stored in this hour and the one before"


def find_clock(facts: Facts) -> Found:
    if off := clock_off(facts.overview.machine_ahead_seconds):
        yield "", off


def find_notify_file(facts: Facts) -> Found:
    may = None if facts.notify_file is None else access_by_others(Path(facts.notify_file))
    if may is not None:
        yield "", f"other users may {may} BILLHOOK_NOTIFY_FILE"


def find_killers(facts: Facts) -> Found:
    found = {one.subject: one.title for one in facts.opened if one.kind is IssueKind.KILLER}
    kills = (one for one in facts.occurrences if one.kind is IssueKind.KILLER)
    if lately := [one for one in kills if facts.now - one.last_at < REPORTED_FOR]:
        closed = list_issues(facts.inbox, [IssueState.RESOLVED])
        mended = {one.subject: one.changed_at for one in closed if one.kind is IssueKind.KILLER}
        for one in lately:
            if one.subject not in mended or one.last_at > mended[one.subject]:
                found[one.subject] = one.title
    yield from found.items()


def find_unknown_types(facts: Facts) -> Found:
    known = facts.inbox.known_types
    for one in facts.overview.types if known is not None else ():
        is_known = one.event_type in ("", OTHER_TYPES) or one.event_type in (known or ())
        if not is_known and one.last_at is not None and one.last_at >= facts.overview.since:
            yield one.event_type, f"no class is declared of {printable(one.event_type)}"


def find_refused_times(facts: Facts) -> Found:
    for cause, whose in (("stale", "behind"), ("future", "ahead of")):
        if seconds := facts.overview.refused_seconds.get(cause):
            number = facts.overview.refused[cause]
            deliveries = f"{counted(number, 'genuine delivery')} {'was' if number == 1 else 'were'}"
            signed = f"the signed time is {seconds:.0f} s {whose} this clock on average"
            yield cause, f"{deliveries} refused: {signed}"


def find_all_refused(facts: Facts) -> Found:
    overview = facts.overview
    # Not by the counts alone: a delivery is counted as accepted when a worker reads it.
    stored = overview.last_at is not None and overview.last_at >= overview.since
    mismatched = overview.refused.get("mismatch", 0)
    if mismatched and not stored and not any(one.duplicates for one in overview.types):
        signatures = counted(mismatched, "signature")
        yield "", f"{signatures} matched no secret, and no delivery was accepted in 24 hours"


def find_refused_since(facts: Facts) -> Found:
    for one in read_refused_since(facts.inbox, facts.overview.since, ("mismatch",)):
        if one.authentic_at is not None and one.number >= _MANY_MISMATCHES:
            since = f"the last accepted delivery, which came at {format_time(one.authentic_at)} UTC"
            many = f"about {one.number:,} signatures have matched no secret since {since}"
            yield one.source, f"source {printable(one.source)}: {many}"


def find_open_issues(facts: Facts) -> Found:
    # The others are conditions of their own, and shown as such.
    opened = [one for one in facts.opened if one.kind is IssueKind.FAILURE]
    if len(opened) == 1:
        error = opened[0].title.partition(":")[0]
        yield "", printable(f"{opened[0].subject} fails: {error}")
    elif opened:
        yield "", f"{len(opened):,} issues are open"


def find_too_old(facts: Facts) -> Found:
    limit, oldest_at = facts.thresholds.max_age, facts.overview.backlog.oldest_at
    if limit is not None and oldest_at is not None and facts.now - oldest_at > limit:
        age = _age(facts.now - oldest_at)
        yield "", f"the oldest unfinished delivery is {age} old, the limit is {_age(limit)}"


def find_too_many_dead(facts: Facts) -> Found:
    limit, dead = facts.thresholds.max_dead, facts.overview.backlog.dead
    if limit is not None and dead > limit:
        yield "", f"{_are(dead, 'delivery', 'deliveries')} dead, the limit is {limit}"


def find_too_silent(facts: Facts) -> Found:
    overview = facts.overview
    last = {one.event_type: one.last_at for one in overview.types} | {"*": overview.last_at}
    for event_type, limit in facts.thresholds.max_silence.items():
        last_at = last.get(event_type)
        named = "delivery" if event_type == "*" else event_type
        if last_at is None:
            yield event_type, f"no {named} was ever received, the limit is {_age(limit)}"
        elif facts.now - last_at > limit:
            age = _age(facts.now - last_at)
            yield event_type, f"the last {named} is {age} old, the limit is {_age(limit)}"


def find_too_many_refused(facts: Facts) -> Found:
    if facts.thresholds.max_refused is None:
        return
    limit, hours = facts.thresholds.max_refused
    refused = refused_within(facts.inbox, facts.now, hours)
    if refused > limit:
        span = "hour" if hours == 1 else f"{hours} hours"
        yield "", f"about {refused:.0f} deliveries were refused in the last {span}, the limit is {limit}"


def number_text(number: int, limit: int = COUNT_LIMIT) -> str:
    """Return a number of deliveries as shown: at the limit of counting with a plus sign."""
    return f"{number:,}+" if number >= limit else f"{number:,}"


def _are(number: int, one: str, more: str) -> str:
    return f"1 {one} is" if number == 1 else f"{number_text(number)} {more} are"


def _age(age: timedelta) -> str:
    return format_duration(max(0.0, age.total_seconds()))
