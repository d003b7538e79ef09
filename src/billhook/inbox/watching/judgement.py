"""Judge which conditions of an inbox hold: each of billhook.inbox.watching.conditions, the gravest first.

`billhook status`, the banner, Health, `billhook doctor`, the metric `billhook_condition`, issues and messages
show what `judge` finds, and nothing else judges. A condition without an issue is shown while it holds; of one
with an issue a message is sent once, unless a stranger could cause it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from billhook.basics.printable import printable
from billhook.clock import format_ago, short_time
from billhook.errors import BillhookError
from billhook.inbox.watching.backlog_pace import OLD
from billhook.inbox.watching.conditions import CONDITIONS as CONDITIONS
from billhook.inbox.watching.conditions import LIMITS as LIMITS
from billhook.inbox.watching.conditions import Condition as Condition
from billhook.inbox.watching.conditions import Facts
from billhook.inbox.watching.conditions import Severity as Severity
from billhook.inbox.watching.handler_backlogs import HandlerBacklog
from billhook.inbox.watching.occurrences import IssueKind

_NOTHING_YET = "No delivery has been received yet."
_OF_CLOCKS, _OF_SECRETS = "clock-refusals", "refused-all"
"""The notes of refused requests. No one can sign genuine ones but the sender, whereas any stranger can send
what matches no secret: that is said of an inbox that has never received a delivery, and is being set up."""


class HeldCondition(NamedTuple):
    """A condition that holds: of what, and in words that are a part of a sentence.

    `detail` is an exception's message, which may quote an event: only who reads the inbox itself sees it.
    """

    condition: Condition
    subject: str
    text: str
    detail: str = ""

    @property
    def detailed(self) -> str:
        """The text with its detail."""
        return ": ".join(filter(None, (self.text, self.detail)))


@dataclass(frozen=True, slots=True)
class Judgement:
    """Which conditions hold, the gravest first, and which could not be judged, with the cause."""

    holding: Sequence[HeldCondition]
    unjudged: Mapping[str, str]
    last_at: datetime | None
    at: datetime
    due_last: HandlerBacklog | None = None
    """What waits for the handler that has the run which is due last, of those that wait for a time."""

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
    def refusals(self) -> list[HeldCondition]:
        """What holds of refused requests, and is said where nothing else is wrong."""
        said = (_OF_CLOCKS, _OF_SECRETS) if self.last_at is None else (_OF_CLOCKS,)
        return [one for one in self.holding if one.condition.name in said]

    @property
    def waits(self) -> str:
        """What waits for long where no condition holds: nothing, or runs whose time is later."""
        at = None if self.due_last is None else self.due_last.last_due_at
        if self.due_last is None or at is None or at - self.at <= OLD:
            return "nothing waits for long"
        for_what = "a time that was named" if self.due_last.last_put_off else "its time"
        return f"what waits for long waits for {for_what}, the last for {short_time(at, self.at)} UTC"

    @property
    def all_well(self) -> str:
        """What is said where nothing is wrong: only where each condition could be judged that all is well."""
        if self.unjudged:
            return f"Not known: {', '.join(sorted(self.unjudged))} could not be judged."
        refused = "; ".join(one.text for one in self.refusals)
        if self.last_at is None:
            return f"No delivery has been stored yet: {refused}." if refused else _NOTHING_YET
        last = f"The last delivery came {format_ago(self.last_at, self.at)}."
        if refused:
            return f"{self.waits[0].upper()}{self.waits[1:]}, but {refused}. {last}"
        for one in self.holding:
            if one.condition.name == "known-issues":
                return f"Nothing needs attention ({one.text}), and {self.waits}. {last}"
        return f"All is well: nothing fails and {self.waits}. {last}"

    @property
    def sentence(self) -> str:
        """The state in one sentence, for programs too, which may send it on. A note needs no attention."""
        return self._sentence([one.text for one in self.problems])

    @property
    def detailed_sentence(self) -> str:
        """The sentence with all details."""
        return self._sentence([one.detailed for one in self.problems])

    def _sentence(self, problems: Sequence[str]) -> str:
        texts = ", ".join(problems)
        unknown = f" {self.all_well}" if self.unjudged else ""
        return f"Needs attention: {texts}.{unknown}" if texts else self.all_well


def judge(facts: Facts) -> Judgement:
    """Judge each condition. One that cannot be judged is named, and the others are judged all the same."""
    holding: list[HeldCondition] = []
    unjudged: dict[str, str] = {}
    last_at = due_last = None
    try:
        last_at = facts.overview.last_at
        with_time = (one for one in facts.overview.handler_backlogs if one.last_due_at is not None)
        due_last = max(with_time, key=lambda one: one.last_due_at or facts.now, default=None)
    except BillhookError as error:
        unjudged["inbox"] = printable(str(error))
    for condition in CONDITIONS:
        try:
            # What is critical is shown although it is snoozed.
            snoozed = condition.severity is Severity.CRITICAL
            find = condition.find
            found = find(facts) if find else facts.of_kind(condition.kind, snoozed=snoozed)
            holding += [HeldCondition(condition, *each) for each in found]
        except (BillhookError, OSError) as error:
            unjudged[condition.name] = printable(str(error))
    return Judgement(holding, unjudged, last_at, facts.now, due_last)


_OF_KIND = {one.kind: one for one in CONDITIONS if one.kind is not None}


def condition_of(kind: IssueKind) -> Condition:
    """Return the condition that issues of a kind are about."""
    return _OF_KIND[kind]
