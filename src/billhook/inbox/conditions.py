"""What can be wrong with an inbox, each once: when it holds, how grave it is, who is notified, what to do.

`billhook status`, the banner, Health, `billhook doctor`, the metric `billhook_condition`, issues and messages
show what `judge` finds, and nothing else judges. A condition without an issue is shown while it holds; of one
with an issue a message is sent once, unless a stranger could cause it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from billhook.clock import format_ago
from billhook.errors import BillhookError
from billhook.inbox import condition_checks as checks
from billhook.inbox.condition_checks import Facts, Found
from billhook.inbox.occurrences import IssueKind
from billhook.printable import printable


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
    find: Callable[[Facts], Found] | None = field(compare=False, repr=False)
    """Finds it; None where it is an issue of its kind that happens."""
    kind: IssueKind | None = None
    alert: str = ""

    @property
    def is_notified(self) -> bool:
        """Whether a message is sent of it; not of what a stranger could cause."""
        return self.kind not in (None, IssueKind.REFUSED)

    def first_command(self, subject: str) -> str:
        """Return the first command to run about a subject, as a shell takes it."""
        return self.command.format(subject=shlex.quote(printable(subject)))


class HeldCondition(NamedTuple):
    """A condition that holds: of what, and in words that are a part of a sentence."""

    condition: Condition
    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """Which conditions hold, the gravest first, and which could not be judged, with the cause."""

    holding: Sequence[HeldCondition]
    unjudged: Mapping[str, str]
    last_at: datetime | None
    at: datetime

    @property
    def crossed(self) -> list[str]:
        """A line for each limit of an operator's that is crossed."""
        return [f"{one.condition.name}: {one.text}" for one in self.holding if one.condition in LIMITS]

    @property
    def problems(self) -> list[HeldCondition]:
        """What holds without a limit of an operator's, and needs attention."""
        shown = (one for one in self.holding if one.condition.severity is not Severity.NOTE)
        return [one for one in shown if one.condition not in LIMITS]

    def by_name(self) -> dict[str, bool]:
        """Return whether each condition holds that could be judged and has no limit of an operator's."""
        holding = {one.condition.name for one in self.holding}
        names = (one.name for one in CONDITIONS if one not in LIMITS and one.name not in self.unjudged)
        return {name: name in holding for name in names}

    def holds(self, name: str) -> bool:
        """Return whether the condition of this name holds."""
        return any(one.condition.name == name for one in self.holding)

    @property
    def worst(self) -> Severity | None:
        """The highest severity of what holds."""
        return min((one.condition.severity for one in self.problems), key=[*Severity].index, default=None)

    @property
    def all_well(self) -> str:
        """What is said where nothing is wrong: only where each condition could be judged that all is well."""
        if self.unjudged:
            return f"Not known: {', '.join(sorted(self.unjudged))} could not be judged."
        if self.last_at is None:
            return "No delivery has been received yet."
        last = format_ago(self.last_at, self.at)
        return f"All is well: nothing failed and nothing waits for long. The last delivery came {last}."

    @property
    def sentence(self) -> str:
        """The state in one sentence. A note needs no attention."""
        texts = ", ".join(one.text for one in self.problems)
        unknown = f" {self.all_well}" if self.unjudged else ""
        return f"Needs attention: {texts}.{unknown}" if texts else self.all_well


def judge(facts: Facts) -> Judgement:
    """Judge each condition. One that cannot be judged is named, and the others are judged all the same."""
    holding: list[HeldCondition] = []
    unjudged: dict[str, str] = {}
    last_at = None
    try:
        last_at = facts.overview.last_at
    except BillhookError as error:
        unjudged["inbox"] = printable(str(error))
    for condition in CONDITIONS:
        try:
            found = condition.find(facts) if condition.find else facts.of_kind(condition.kind)
            holding += [HeldCondition(condition, *each) for each in found]
        except (BillhookError, OSError) as error:
            unjudged[condition.name] = printable(str(error))
    return Judgement(holding, unjudged, last_at, facts.now)


_CRITICAL, _WARNING, _NOTE = Severity
CONDITIONS = (
    Condition(
        "row-security", _CRITICAL, "row security hides rows of the inbox from billhook's role",
        "doctor", "the-inbox-cannot-be-read", checks.find_row_security,
    ),
    Condition(
        "disk-full", _CRITICAL, "less than 100 MiB are free beside a SQLite inbox",
        "deliveries prune", "deliveries-were-answered-503",
        lambda facts: checks.find_disk(facts, critical=True),
        IssueKind.DISK,
    ),
    Condition(
        "no-worker", _CRITICAL,
        "no worker was seen for 60 s (an issue after 90 s; stopped in order, if a delivery waits 10 min)",
        "doctor", "no-worker-is-alive", checks.find_no_worker, IssueKind.WORKER, "BillhookWorkerGone",
    ),
    Condition(
        "killer", _CRITICAL, "workers die while one handler runs alone, or it ran in each of three that died",
        "handlers pause {subject}", "workers-die", checks.find_killers, IssueKind.KILLER,
    ),
    Condition(
        "crash-loop", _CRITICAL, "three workers died one after another in 5 minutes",
        "workers", "workers-die", None, IssueKind.CRASH_LOOP,
        "BillhookWorkersRestart",
    ),
    Condition(
        "not-stored", _CRITICAL, "deliveries were answered 503 in this hour or the one before",
        "doctor", "deliveries-were-answered-503", checks.find_not_stored, IssueKind.NOT_STORED,
        "BillhookNotStored",
    ),
    Condition(
        "lost-worker", _WARNING, "a worker died in the last 15 minutes, and was not seen for 110 s",
        "workers", "workers-die", None, IssueKind.LOST_WORKER,
    ),
    Condition(
        "thread-crashed", _WARNING, "an error ended a thread of billhook's own in 24 hours",
        "doctor", "workers-die", checks.find_crashed,
    ),
    Condition(
        "dead", _WARNING, "attempts of deliveries are used up",
        "failures", "runs-are-dead", checks.find_dead, IssueKind.DEAD, "BillhookDeliveriesDead",
    ),
    Condition(
        "quarantined", _WARNING, "deliveries cannot be read, or contradict another",
        "deliveries list --state quarantined", "deliveries-are-quarantined", checks.find_quarantined,
        IssueKind.QUARANTINE, "BillhookDeliveriesQuarantined",
    ),
    Condition(
        "paused", _WARNING, "a handler is paused",
        "handlers resume {subject}", "a-handler-is-paused", checks.find_paused, None, "BillhookHandlerPaused",
    ),
    Condition(
        "waiting", _WARNING, "a delivery is unfinished for more than 10 minutes",
        "deliveries list --state unfinished", "deliveries-wait", checks.find_waiting, None,
        "BillhookDeliveriesWait",
    ),
    Condition(
        "backlog", _WARNING,
        "under 80 % of the deliveries of 10 minutes were handled, and they wait as long; until 5 minutes",
        "workers", "deliveries-wait", None, IssueKind.BACKLOG,
        "BillhookBacklogGrows",
    ),
    Condition(
        "slow", _WARNING, "half of a handler's calls of 10 minutes take three times what 95 % took in 3 days",
        "handlers", "deliveries-wait", None, IssueKind.SLOW,
        "BillhookHandlerSlow",
    ),
    Condition(
        "silence", _WARNING, "a type has not come for twice its longest gap in 30 days, of five or more",
        "reconcile", "the-service-is-silent", None, IssueKind.SILENCE,
        "BillhookTypeSilent",
    ),
    Condition(
        "refused", _WARNING, "over 50 signed deliveries were refused, and none was accepted for 15 minutes",
        "doctor", "signed-deliveries-are-refused", None, IssueKind.REFUSED,
        "BillhookDeliveriesRefused",
    ),
    Condition(
        "disk", _WARNING, "less than 1 GiB, or than the size of a SQLite inbox, is free beside it",
        "deliveries prune", "deliveries-were-answered-503",
        lambda facts: checks.find_disk(facts, critical=False),
    ),
    Condition(
        "clock", _WARNING, "this machine's clock is more than 5 s off the database server's",
        "doctor", "signed-deliveries-are-refused", checks.find_clock,
    ),
    Condition(
        "notify-file", _WARNING, "other users may read or write BILLHOOK_NOTIFY_FILE",
        "doctor", "the-inbox-cannot-be-read", checks.find_notify_file,
    ),
    Condition(
        "failing", _WARNING, "an issue is open that no other condition shows",
        "failures", "runs-are-dead", checks.find_open_issues, IssueKind.FAILURE, "BillhookHandlerFails",
    ),
    Condition(
        "unknown-type", _NOTE, "deliveries came in 24 hours of a type that has no class",
        "events", "deliveries-are-quarantined", checks.find_unknown_types,
    ),
    Condition(
        "clock-refusals", _NOTE, "genuine deliveries were refused in 24 hours for their signed time",
        "doctor", "signed-deliveries-are-refused", checks.find_refused_times,
    ),
    Condition(
        "refused-all", _NOTE, "signatures matched no secret, and no delivery was accepted in 24 hours",
        "doctor", "signed-deliveries-are-refused", checks.find_all_refused,
    ),
    Condition(
        "refused-since", _NOTE, "five signatures matched no secret since the last accepted delivery",
        "doctor", "signed-deliveries-are-refused", checks.find_refused_since,
    ),
    Condition(
        "max-age", _WARNING, "the oldest unfinished delivery is older than --max-age",
        "deliveries list --state unfinished", "deliveries-wait", checks.find_too_old,
    ),
    Condition(
        "max-dead", _WARNING, "more deliveries are dead than --max-dead",
        "failures", "runs-are-dead", checks.find_too_many_dead,
    ),
    Condition(
        "max-silence", _WARNING, "a type's last delivery is older than --max-silence",
        "reconcile", "the-service-is-silent", checks.find_too_silent, None, "BillhookSilent",
    ),
    Condition(
        "max-refused", _WARNING, "more deliveries were refused than --max-refused",
        "doctor", "signed-deliveries-are-refused", checks.find_too_many_refused,
    ),
)  # fmt: skip
"""The gravest first. A new one is shown, counted and documented everywhere by its line here."""
LIMITS = tuple(one for one in CONDITIONS if one.name.startswith("max-"))
"""The conditions that hold only by a limit that an operator sets."""


_OF_KIND = {one.kind: one for one in CONDITIONS if one.kind is not None}


def condition_of(kind: IssueKind) -> Condition:
    """Return the condition that issues of a kind are about."""
    return _OF_KIND[kind]
