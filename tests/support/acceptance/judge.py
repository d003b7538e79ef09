"""What a history of real processes must be: the rules of the pages, asked of what was written down.

A history is what clients sent and were answered, what handlers were called with, what happened to processes,
and what operators did, each with its times: seconds of the machine's monotonic clock, which all processes
share. Each rule is a function that gives a sentence for each thing that the rules do not explain.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

FOREVER = float("inf")


@dataclass(frozen=True)
class Sent:
    """A request: a delivery by its key, and the value that its handler's runs are ordered by."""

    key: str
    event_type: str
    value: str
    began: float
    ended: float
    answer: str
    """`accepted`, `duplicate`, or what came instead."""


@dataclass
class Attempt:
    """A call of a handler; `ended` is None if it wrote nothing more."""

    handler: str
    key: str
    value: str
    number: int
    process: int
    began: float
    ended: float | None = None
    failed: bool = False


@dataclass(frozen=True)
class Disturbance:
    """What happened to processes: one that is killed is so FOREVER, one that stands still for a time."""

    processes: frozenset[int]
    began: float
    ended: float = FOREVER


@dataclass(frozen=True)
class Pause:
    """The time in which a handler was paused for certain: between the ends of two commands."""

    handler: str
    began: float
    ended: float = FOREVER


@dataclass(frozen=True)
class Replay:
    """An operator's command to replay a key: it replays at a moment between its beginning and its end."""

    key: str
    began: float
    ended: float


@dataclass
class History:
    """All of it, and what was declared of handlers: by event type, with an order, with a limit."""

    handlers: Mapping[str, str]
    """The handler of each event type."""
    ordered: frozenset[str] = frozenset()
    at_most: Mapping[str, int] = field(default_factory=dict)
    lease_seconds: float = 10.0
    sent: list[Sent] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    disturbances: list[Disturbance] = field(default_factory=list)
    database_away: list[tuple[float, float]] = field(default_factory=list)
    """From when until when no transaction could be written, in order."""
    pauses: list[Pause] = field(default_factory=list)
    replayed: list[Replay] = field(default_factory=list)
    """In order."""

    def accepted(self) -> dict[str, Sent]:
        """Return the first request of each key that was answered 200."""
        first: dict[str, Sent] = {}
        for sent in sorted(self.sent, key=lambda each: each.ended):
            if sent.answer in ("accepted", "duplicate"):
                first.setdefault(sent.key, sent)
        return first

    def runs(self) -> dict[tuple[str, str], list[Attempt]]:
        """Return the attempts of each handler and key, in the order in which they began."""
        found: dict[tuple[str, str], list[Attempt]] = defaultdict(list)
        for attempt in sorted(self.attempts, key=lambda each: each.began):
            found[attempt.handler, attempt.key].append(attempt)
        return found

    def killed_at(self, attempt: Attempt) -> float:
        """Return when its process was killed while or after it ran; FOREVER if it was not."""
        return min(
            (
                each.began
                for each in self.disturbances
                if each.ended == FOREVER and attempt.process in each.processes and each.began >= attempt.began
            ),
            default=FOREVER,
        )

    def end(self, attempt: Attempt) -> float:
        """Return when it was over: it returned, or its process was killed."""
        return min(FOREVER if attempt.ended is None else attempt.ended, self.killed_at(attempt))

    def lost_its_lease(self, attempt: Attempt, until: float) -> bool:
        """Return whether others may have taken its run: its process was killed, or stood still for long."""
        settled_by = FOREVER if attempt.ended is None else attempt.ended + self.lease_seconds
        for began, ended in self.database_away:
            if began <= settled_by:
                settled_by = max(settled_by, ended + self.lease_seconds)
        for each in self.disturbances:
            if attempt.process not in each.processes or each.began >= until or each.ended <= attempt.began:
                continue
            if each.began > settled_by:
                continue
            if each.ended - each.began >= self.lease_seconds / 2:
                return True
        return False


def lost(history: History) -> Iterator[str]:
    """Whatever was answered 200 is handled."""
    runs = history.runs()
    for key, sent in history.accepted().items():
        handler = history.handlers[sent.event_type]
        attempts = runs.get((handler, key), [])
        if not any(attempt.ended is not None and not attempt.failed for attempt in attempts):
            yield f"{key} was answered {sent.answer} at {sent.ended:.3f}, and {handler} never succeeded"


def called_too_often(history: History) -> Iterator[str]:
    """An attempt follows another only if that failed, was lost with its process, or was replayed."""
    for (handler, key), attempts in history.runs().items():
        replays = [each for each in history.replayed if each.key == key]
        for earlier, later in itertools.pairwise(attempts):
            explained = (
                earlier.failed and earlier.ended is not None and earlier.ended <= later.began
            ) or history.lost_its_lease(earlier, later.began)
            if explained:
                continue
            # What was called while the command ran may have ended before it replayed. It explains one call.
            possible = (each for each in replays if each.began < later.began and earlier.began < each.ended)
            by = next(possible, None)
            if by is not None:
                replays.remove(by)
            else:
                yield f"{handler} was called with {key} at {earlier.began:.3f} and {later.began:.3f}"


def vanished(history: History) -> Iterator[str]:
    """A call that never returned ended with its process."""
    for attempt in history.attempts:
        if history.end(attempt) == FOREVER:
            yield f"{attempt.handler} with {attempt.key} in {attempt.process} began and wrote no end"


def twice_at_once(history: History) -> Iterator[str]:
    """No two attempts of a run overlap, unless the process of the first stood still for long."""
    for (handler, key), attempts in history.runs().items():
        for earlier, later in itertools.pairwise(attempts):
            if later.began < history.end(earlier) and not history.lost_its_lease(earlier, later.began):
                yield f"{handler} was called with {key} twice at once, at {later.began:.3f}"


def out_of_order(history: History) -> Iterator[str]:
    """What was answered before another was sent is handled before it, if they are of one order."""
    runs, accepted = history.runs(), history.accepted()
    first_sent: dict[str, float] = {}
    orders: dict[tuple[str, str], list[str]] = defaultdict(list)
    for sent in history.sent:
        first_sent[sent.key] = min(sent.began, first_sent.get(sent.key, FOREVER))
    for key, sent in accepted.items():
        handler = history.handlers[sent.event_type]
        if handler in history.ordered:
            orders[handler, sent.value].append(key)
    replayed = {each.key for each in history.replayed}
    for (handler, value), keys in orders.items():
        for one, other in itertools.permutations(keys, 2):
            if accepted[one].ended >= first_sent[other] or one in replayed:
                continue
            calls, others = runs.get((handler, one), []), runs.get((handler, other), [])
            if others and any(call.began >= others[0].began for call in calls):
                yield f"{handler} got {other} of {value} before {one}, which was answered before"


def over_limits(history: History) -> Iterator[str]:
    """At no moment more runs of a handler are under way than it may have."""
    for handler, most in history.at_most.items():
        events: list[tuple[float, int, Attempt]] = []
        for attempt in history.attempts:
            if attempt.handler == handler:
                # One whose process stands still is not counted by others once its lease has ended.
                still = [
                    each.began
                    for each in history.disturbances
                    if attempt.process in each.processes
                    and each.ended - each.began >= history.lease_seconds / 2
                    and attempt.began <= each.began < history.end(attempt)
                ]
                events += [(attempt.began, 1, attempt), (min([history.end(attempt), *still]), -1, attempt)]
        under_way = 0
        for at, change, attempt in sorted(events, key=lambda event: event[:2]):
            under_way += change
            if under_way > most:
                yield f"{under_way} runs of {handler} were under way at {at:.3f}, by {attempt.key}"


def called_while_paused(history: History) -> Iterator[str]:
    """No call begins while its handler is paused."""
    for pause in history.pauses:
        for attempt in history.attempts:
            if attempt.handler == pause.handler and pause.began < attempt.began < pause.ended:
                yield f"{pause.handler} was called with {attempt.key} at {attempt.began:.3f}, paused"


RULES = (lost, called_too_often, vanished, twice_at_once, out_of_order, over_limits, called_while_paused)


def judge(history: History) -> dict[str, list[str]]:
    """Return what no rule explains, by the names of the rules; empty if all is explained."""
    found: Iterable[tuple[str, list[str]]] = ((rule.__name__, list(rule(history))) for rule in RULES)
    return {name: sentences for name, sentences in found if sentences}
