"""The conditions: what can be wrong with an inbox, each once, with the function that finds it by its facts.

Each says when it holds, how grave it is, what to do and who is notified; inbox.watching.judgement judges.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from billhook.basics.engine_kinds import ENGINES, WORKER, Place
from billhook.basics.file_modes import access_by_others
from billhook.basics.printable import counted, first_line, printable
from billhook.basics.type_names import is_reading
from billhook.clock import clock_off, format_ago, format_duration, format_time
from billhook.inbox.counting.counts import OTHER_TYPES, Counted, hour_of
from billhook.inbox.counting.crashes import ThreadCrashes
from billhook.inbox.counting.unconsumed import read_unconsumed
from billhook.inbox.inbox import Inbox
from billhook.inbox.running.lost_workers import REPORTED_FOR
from billhook.inbox.watching.backlog_pace import OLD, read_not_stored
from billhook.inbox.watching.disagreements import read_disagreement
from billhook.inbox.watching.issues import IssueState, OpenIssue, count_issues, list_issues, list_open
from billhook.inbox.watching.occurrences import IssueKind, Occurrence, little_space, read_occurrences
from billhook.inbox.watching.overview import (
    COUNT_LIMIT,
    Overview,
    read_overview,
    read_periods,
    read_refused_since,
)
from billhook.inbox.watching.snoozes import count_dead_of_snoozed, count_quarantined_of_snoozed, snoozed_ids
from billhook.inbox.watching.stalled import read_hanging, read_held

_WORKER_SEEN_WITHIN = timedelta(minutes=1)
"""Three times the interval at which a worker renews its row in the inbox."""
_HOUR = timedelta(hours=1)
_MESSAGE_CHARACTERS = 100
_MANY_MISMATCHES = 5
"""A stranger's attempts, or a test with another secret, are fewer."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The limits that an operator sets with `billhook status --max-…`; None and empty: no limit."""

    max_age: timedelta | None = None
    """The highest age of the oldest unfinished delivery."""
    max_dead: int | None = None
    """How many deliveries may be dead."""
    max_silence: Mapping[str, timedelta] = field(default_factory=dict)
    """How long ago the last delivery of an event type may be; "*" stands for any type."""
    max_refused: tuple[int, int] | None = None
    """How many deliveries may be refused, in how many hours."""


@dataclass
class Facts:
    """What conditions are judged by. Each part is read when the first condition asks for it.

    `engine` is that of the deployment; `notify_file` holds the addresses of messages.
    """

    inbox: Inbox
    now: datetime
    engine: str = WORKER.name
    notify_file: str | None = None
    thresholds: Thresholds = field(default_factory=Thresholds)
    given: Overview | None = None

    @cached_property
    def overview(self) -> Overview:
        """The figures of the inbox."""
        return self.given or read_overview(self.inbox, self.now)

    @cached_property
    def occurrences(self) -> Collection[Occurrence]:
        """What is wrong by rows and figures, and is an issue."""
        return read_occurrences(self.inbox, self.now)

    @cached_property
    def snoozed(self) -> Collection[str]:
        """The ids of the issues that are snoozed."""
        return snoozed_ids(self.inbox)

    @cached_property
    def opened(self) -> Sequence[OpenIssue]:
        """The issues that are open."""
        return list_open(self.inbox, self.now)

    def of_kind(self, kind: IssueKind | None, *, snoozed: bool) -> Iterator[tuple[str, str]]:
        """Yield the occurrences of a kind, each with its subject: `snoozed` ones too, or without them."""
        for each in self.occurrences:
            if each.kind is kind and (snoozed or each.fingerprint not in self.snoozed):
                yield each.subject, each.title


Found = Iterator[tuple[str, str] | tuple[str, str, str]]
"""The subject, the sentence and a detail of each thing that is wrong; the subject may be empty."""


class Severity(StrEnum):
    """How grave a condition is: `critical` loses or stops deliveries, or soon will."""

    CRITICAL = "critical"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that can be wrong. `holds` says when, `command` is the first to run.

    `alert` is the rule of deploy/prometheus-alerts.yml that mirrors it.
    """

    name: str
    severity: Severity
    holds: str
    command: str
    runbook: str
    kind: IssueKind | None = None
    alert: str = ""
    find: Callable[[Facts], Found] | None = field(default=None, compare=False, repr=False)
    """Finds what is wrong. None: the condition holds while an issue of its `kind` happens."""

    @property
    def is_notified(self) -> bool:
        """Whether a message is sent of it; not of what a stranger could cause."""
        return self.kind not in (None, IssueKind.REFUSED)

    def first_command(self, subject: str) -> str:
        """Return the first command to run about a subject, as a shell takes it."""
        if is_reading(subject):  # no handler, which could be paused
            return "failures"
        return self.command.format(subject=shlex.quote(printable(subject)))


_CRITICAL, _WARNING, _NOTE = Severity


def row_security(facts: Facts) -> Found:
    if text := facts.inbox.database.row_security().text:
        yield "", f"row security has no policy for {text}"


def disk_full(facts: Facts) -> Found:
    if space := little_space(facts.inbox, critical=True):
        yield "", space


def no_worker(facts: Facts) -> Found:
    if text := worker_missing(facts):
        yield "", text


def no_consumer(facts: Facts) -> Found:
    with facts.inbox.database.read() as connection:
        for queue in read_unconsumed(connection, facts.now):
            yield queue, f"no Celery worker consumes the queue {printable(queue)}"


def killer(facts: Facts) -> Found:
    found = {one.subject: one.title for one in facts.opened if one.kind is IssueKind.KILLER and one.live}
    kills = (one for one in facts.occurrences if one.kind is IssueKind.KILLER)
    if lately := [one for one in kills if facts.now - one.last_at < REPORTED_FOR]:
        closed = list_issues(facts.inbox, [IssueState.RESOLVED])
        mended = {one.subject: one.changed_at for one in closed if one.kind is IssueKind.KILLER}
        for one in lately:
            if one.subject not in mended or one.last_at > mended[one.subject]:
                found[one.subject] = one.title
    yield from found.items()


def not_stored(facts: Facts) -> Found:
    if found := read_not_stored(facts.inbox, facts.now):
        deliveries = "1 delivery" if found[0] == 1 else f"{number_text(found[0])} deliveries"
        yield "", f"{deliveries} could not be stored in this hour and the one before"


def thread_crashed(facts: Facts) -> Found:
    for one in facts.overview.crashes:
        yield one.thread, crashes_text(one, facts.now)


def dead(facts: Facts) -> Found:
    dead = facts.overview.backlog.dead
    if dead and (dead := dead - count_dead_of_snoozed(facts.inbox, COUNT_LIMIT)):
        yield "", f"{_are(dead, 'delivery', 'deliveries')} dead"


def quarantined(facts: Facts) -> Found:
    quarantined = facts.overview.backlog.quarantined
    if quarantined and (quarantined := quarantined - count_quarantined_of_snoozed(facts.inbox)):
        yield "", f"{_are(quarantined, 'delivery', 'deliveries')} quarantined"


def paused(facts: Facts) -> Found:
    if paused := facts.overview.paused:
        named = f": {printable(paused[0].name)}" if len(paused) == 1 else ""
        yield paused[0].name, f"{_are(len(paused), 'handler', 'handlers')} paused{named}"


def held(facts: Facts) -> Found:
    with facts.inbox.database.read() as connection:
        if found := read_held(connection, facts.now):
            yield found.places[0], found.text


def hanging(facts: Facts) -> Found:
    with facts.inbox.database.read() as connection:
        for one in read_hanging(connection, facts.now, OLD):
            yield one.handler, one.text(facts.now)


def waiting(facts: Facts) -> Found:
    since = facts.overview.waiting_since
    if since is None or facts.now - since <= OLD:
        return
    age, limited = _age(facts.now - since), None
    if since != facts.overview.backlog.oldest_unread_at:
        waits = (one for one in facts.overview.handler_backlogs if one.oldest_due_at == since)
        limited = next((one.name for one in waits if one.limited), None)
    if limited is None:
        yield "", f"a delivery has waited for a worker for {age}"
    else:
        yield "", f"a delivery has waited for {age}: {printable(limited)} is at its limit"


def workers_disagree(facts: Facts) -> Found:
    with facts.inbox.database.read() as connection:
        if text := read_disagreement(connection, facts.now):
            yield "", printable(text)


def disk(facts: Facts) -> Found:
    if space := little_space(facts.inbox, critical=False):
        yield "", space


def clock(facts: Facts) -> Found:
    if off := clock_off(facts.overview.machine_ahead_seconds):
        yield "", off


def notify_file(facts: Facts) -> Found:
    may = None if facts.notify_file is None else access_by_others(Path(facts.notify_file))
    if may is not None:
        yield "", f"other users may {may} BILLHOOK_NOTIFY_FILE"


def failing(facts: Facts) -> Found:
    # The others are conditions of their own, and shown as such.
    live = [one for one in facts.opened if one.kind is IssueKind.FAILURE and one.live]
    if len(live) == 1:
        error, _, message = live[0].title.partition(":")
        message = message.strip().rstrip(".")
        # A message of ids alone, as in `KeyError: …`, tells nothing.
        detail = first_line(message, _MESSAGE_CHARACTERS) if re.search(r"\w", message) else ""
        yield "", printable(f"{live[0].subject} fails: {error}"), detail
    elif live:
        yield "", f"{len(live):,} issues are live"


def known_issues(facts: Facts) -> Found:
    found = count_issues(facts.inbox)
    numbers = {
        "quiet": sum(not one.live for one in facts.opened),
        "acknowledged": found[IssueState.ACKNOWLEDGED],
        "snoozed": found[IssueState.SNOOZED],
    }
    texts = [f"{number:,} {what}" for what, number in numbers.items() if number]
    if texts:
        only = sum(numbers.values()) == 1
        yield "", f"{'1 issue is ' + texts[0][2:] if only else 'issues: ' + ', '.join(texts)}"


def unknown_type(facts: Facts) -> Found:
    known = facts.inbox.known_types
    for one in facts.overview.types if known is not None else ():
        is_known = one.event_type in ("", OTHER_TYPES) or one.event_type in (known or ())
        if not is_known and one.last_at is not None and one.last_at >= facts.overview.since:
            yield one.event_type, f"no class is declared of {printable(one.event_type)}"


def clock_refusals(facts: Facts) -> Found:
    for cause, whose in (("stale", "behind"), ("future", "ahead of")):
        if seconds := facts.overview.refused_seconds.get(cause):
            number = facts.overview.refused[cause]
            deliveries = f"{counted(number, 'genuine delivery')} {'was' if number == 1 else 'were'}"
            signed = f"the signed time is {seconds:.0f} s {whose} this clock on average"
            yield cause, f"{deliveries} refused: {signed}"


def refused_all(facts: Facts) -> Found:
    overview = facts.overview
    # Not by the counts alone: a delivery is counted as accepted when a worker reads it.
    stored = overview.last_at is not None and overview.last_at >= overview.since
    mismatched = overview.refused.get("mismatch", 0)
    if mismatched and not stored and not any(one.duplicates for one in overview.types):
        signatures = counted(mismatched, "signature")
        yield "", f"{signatures} matched no secret, and no delivery was accepted in 24 hours"


def refused_since(facts: Facts) -> Found:
    for one in read_refused_since(facts.inbox, facts.overview.since, ("mismatch",)):
        if one.authentic_at is not None and one.number >= _MANY_MISMATCHES:
            since = f"the last accepted delivery, which came at {format_time(one.authentic_at)} UTC"
            many = f"about {one.number:,} signatures have matched no secret since {since}"
            yield one.source, f"source {printable(one.source)}: {many}"


def max_age(facts: Facts) -> Found:
    limit, oldest_at = facts.thresholds.max_age, facts.overview.backlog.oldest_at
    if limit is not None and oldest_at is not None and facts.now - oldest_at > limit:
        age = _age(facts.now - oldest_at)
        yield "", f"the oldest unfinished delivery is {age} old, the limit is {_age(limit)}"


def max_dead(facts: Facts) -> Found:
    limit, dead = facts.thresholds.max_dead, facts.overview.backlog.dead
    if limit is not None and dead > limit:
        yield "", f"{_are(dead, 'delivery', 'deliveries')} dead, the limit is {limit}"


def max_silence(facts: Facts) -> Found:
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


def max_refused(facts: Facts) -> Found:
    if facts.thresholds.max_refused is None:
        return
    limit, hours = facts.thresholds.max_refused
    hour = hour_of(facts.now)
    periods = read_periods(facts.inbox, hour - hours * _HOUR, hour + _HOUR, _HOUR, (Counted.REFUSED,))
    first, *others = [period.counted[Counted.REFUSED] for period in periods]
    # Of the earliest hour only the part within the range counts.
    refused = first * (1 - (facts.now - hour) / _HOUR) + sum(others)
    if refused > limit:
        span = "hour" if hours == 1 else f"{hours} hours"
        yield "", f"about {refused:.0f} deliveries were refused in the last {span}, the limit is {limit}"


# fmt: off
CONDITIONS = (
    Condition("row-security", _CRITICAL, "row security hides rows of the inbox from billhook's role",
        "doctor", "the-inbox-cannot-be-read", find=row_security),
    Condition("disk-full", _CRITICAL, "less than 100 MiB are free beside a SQLite inbox",
        "deliveries prune", "deliveries-were-answered-503", IssueKind.DISK, find=disk_full),
    Condition("no-worker", _CRITICAL,
        "no worker was seen for 60 s (an issue after 90 s; stopped in order, if a delivery waits 10 min)",
        "doctor", "no-worker-is-alive", IssueKind.WORKER, "BillhookWorkerGone", find=no_worker),
    Condition("no-consumer", _CRITICAL,
        "no Celery worker consumes the queue of the messages, and deliveries wait for 50 s",
        "doctor", "deliveries-wait", find=no_consumer),
    Condition("killer", _CRITICAL,
        "workers die while one handler runs alone, or it ran in each of three that died",
        "handlers pause {subject}", "workers-die", IssueKind.KILLER, find=killer),
    Condition("crash-loop", _CRITICAL, "three workers died one after another in 5 minutes",
        "workers", "workers-die", IssueKind.CRASH_LOOP, "BillhookWorkersRestart"),
    Condition("not-stored", _CRITICAL, "deliveries were answered 503 in this hour or the one before",
        "doctor", "deliveries-were-answered-503", IssueKind.NOT_STORED, "BillhookNotStored",
        find=not_stored),
    Condition("lost-worker", _WARNING,
        "a worker died in the last 15 minutes, and was not seen for 110 s",
        "workers", "workers-die", IssueKind.LOST_WORKER),
    Condition("thread-crashed", _WARNING, "an error ended a thread of billhook's own in 24 hours",
        "doctor", "workers-die", find=thread_crashed),
    Condition("dead", _WARNING, "attempts of deliveries are used up",
        "failures", "runs-are-dead", IssueKind.DEAD, "BillhookDeliveriesDead", find=dead),
    Condition("quarantined", _WARNING, "deliveries cannot be read, or contradict another",
        "deliveries list --state quarantined", "deliveries-are-quarantined", IssueKind.QUARANTINE,
        "BillhookDeliveriesQuarantined", find=quarantined),
    Condition("paused", _WARNING, "a handler is paused",
        "handlers", "a-handler-is-paused", None, "BillhookHandlerPaused", find=paused),
    Condition("held", _WARNING, "an operator holds a worker, which starts no run",
        "actions", "a-handler-is-paused", find=held),
    Condition("hanging", _WARNING,
        "a call has not returned for 10 minutes, and three times as long as the longest of its handler",
        "workers", "deliveries-wait", find=hanging),
    Condition("waiting", _WARNING, "a delivery that could have run has not for 10 minutes",
        "deliveries list --state unfinished", "deliveries-wait", None,
        "BillhookDeliveriesWait", find=waiting),
    Condition("workers-disagree", _WARNING,
        "live processes have other handlers, types or sources than others",
        "workers", "workers-disagree", None, "BillhookWorkersDisagree", find=workers_disagree),
    Condition("left-out", _WARNING,
        "the newest list lacks a handler for 5 minutes, or all lack it, and its type has no other",
        "failures", "workers-disagree", IssueKind.LEFT_OUT),
    Condition("missed", _WARNING,
        "deliveries were read without a handler, as no process that has it read any for 60 s",
        "deliveries replay --handler {subject} --without-handler {subject}", "workers-disagree",
        IssueKind.MISSED),
    Condition("backlog", _WARNING,
        "under 80 % of the deliveries of 10 minutes were handled, and they wait as long; until 5 minutes",
        "workers", "deliveries-wait", IssueKind.BACKLOG, "BillhookBacklogGrows"),
    Condition("slow", _WARNING,
        "half of a handler's calls of 10 minutes take three times what 95 % took in 3 days",
        "handlers", "deliveries-wait", IssueKind.SLOW, "BillhookHandlerSlow"),
    Condition("silence", _WARNING,
        "a type has not come for twice its longest gap in 30 days, of five or more",
        "reconcile", "the-service-is-silent", IssueKind.SILENCE, "BillhookTypeSilent"),
    Condition("refused", _WARNING,
        "over 50 signed deliveries were refused, and none was accepted for 15 minutes",
        "doctor", "signed-deliveries-are-refused", IssueKind.REFUSED, "BillhookDeliveriesRefused"),
    Condition("disk", _WARNING, "less than 1 GiB, or than the size of a SQLite inbox, is free beside it",
        "deliveries prune", "deliveries-were-answered-503", find=disk),
    Condition("clock", _WARNING, "this machine's clock is more than 5 s off the database server's",
        "doctor", "signed-deliveries-are-refused", find=clock),
    Condition("notify-file", _WARNING, "other users may read or write BILLHOOK_NOTIFY_FILE",
        "doctor", "the-inbox-cannot-be-read", find=notify_file),
    Condition("failing", _WARNING,
        "an open issue is live that no other condition shows: a run of it is left, or failed in 10 minutes",
        "failures", "runs-are-dead", IssueKind.FAILURE, "BillhookHandlerFails", find=failing),
    Condition("known-issues", _NOTE,
        "issues are open and quiet, so that nothing of them is left, or acknowledged, or snoozed",
        "failures", "runs-are-dead", find=known_issues),
    Condition("unknown-type", _NOTE, "deliveries came in 24 hours of a type that has no class",
        "events", "deliveries-are-quarantined", find=unknown_type),
    Condition("clock-refusals", _NOTE, "genuine deliveries were refused in 24 hours for their signed time",
        "doctor", "signed-deliveries-are-refused", find=clock_refusals),
    Condition("refused-all", _NOTE, "signatures matched no secret, and no delivery was accepted in 24 hours",
        "doctor", "signed-deliveries-are-refused", find=refused_all),
    Condition("refused-since", _NOTE, "five signatures matched no secret since the last accepted delivery",
        "doctor", "signed-deliveries-are-refused", find=refused_since),
    Condition("max-age", _WARNING, "the oldest unfinished delivery is older than --max-age",
        "deliveries list --state unfinished", "deliveries-wait", find=max_age),
    Condition("max-dead", _WARNING, "more deliveries are dead than --max-dead",
        "failures", "runs-are-dead", find=max_dead),
    Condition("max-silence", _WARNING, "a type's last delivery is older than --max-silence",
        "reconcile", "the-service-is-silent", None, "BillhookSilent", find=max_silence),
    Condition("max-refused", _WARNING, "more deliveries were refused than --max-refused",
        "doctor", "signed-deliveries-are-refused", find=max_refused),
)
# fmt: on
"""The gravest first. A new one is shown, counted and documented everywhere by its line here."""
LIMITS = tuple(one for one in CONDITIONS if one.name.startswith("max-"))
"""The conditions that hold only by a limit that an operator sets."""


def worker_missing(facts: Facts) -> str | None:
    """Return that no worker serves the inbox, as a part of a sentence; None if one does."""
    seen_at = facts.inbox.worker_seen_at()
    needs_none = ENGINES[facts.engine].place is Place.REQUEST
    if needs_none or (seen_at is not None and facts.now - seen_at <= _WORKER_SEEN_WITHIN):
        return None
    if seen_at is None:
        return "no worker is running"
    age = format_duration((facts.now - seen_at).total_seconds())
    return f"no worker has been seen for {' '.join(age.split(' ')[:2])}"  # one unit is enough


def crashes_text(crashes: ThreadCrashes, now: datetime) -> str:
    """Return how often a thread has crashed, and by what the last time, as a part of a sentence."""
    times = "once" if crashes.number == 1 else f"{number_text(crashes.number)} times"
    last = f"last {format_ago(crashes.last_at, now)}, with {printable(crashes.last_error)}"
    return f"the thread {printable(crashes.thread)} has crashed {times} in 24 hours, {last}"


def number_text(number: int, limit: int = COUNT_LIMIT) -> str:
    """Return a number of deliveries as shown: at the limit of counting with a plus sign."""
    return f"{number:,}+" if number >= limit else f"{number:,}"


def _are(number: int, one: str, more: str) -> str:
    return f"1 {one} is" if number == 1 else f"{number_text(number)} {more} are"


def _age(age: timedelta) -> str:
    return format_duration(max(0.0, age.total_seconds()))
