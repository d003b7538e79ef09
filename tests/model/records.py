"""What the rules are about: handlers, processes, deliveries, runs, and all that is stored of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

ALIVE = timedelta(seconds=60)
ANY, UNKNOWN = "any type", "types without a model"
READING = "reading "
"""How the name of a run begins that reads a delivery of a user's own type."""


@dataclass(frozen=True)
class Handler:
    """A handler with its options; `types` may have ANY or UNKNOWN."""

    name: str
    types: tuple[str, ...]
    waits: tuple[float, ...] | None = None
    aliases: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    at_most: int | None = None
    rate: tuple[int, float] | None = None
    pause_after: int | None = None
    ordered_by: str | None = None
    newest_only: bool = False
    newest_by: str | None = None
    identity: tuple[str, ...] = ()
    window_seconds: float = 86_400
    knows: frozenset[str] = frozenset()
    """The types of the user's own that its release has a class of, with or without handlers."""

    @property
    def names(self) -> tuple[str, ...]:
        """Its name and its former ones: the runs stored under any of them are its own."""
        return (self.name, *self.aliases)

    def handles(self, delivery: Delivery) -> bool:
        """It handles the types and sources that it is registered for."""
        return self.has_type(delivery) and (not self.sources or delivery.source in self.sources)

    def has_type(self, delivery: Delivery) -> bool:
        has_class = delivery.known or delivery.type in self.knows
        return ANY in self.types or (delivery.type if has_class else UNKNOWN) in self.types


@dataclass(eq=False)
class Shared:
    """What the workers of one process share: these, and what it knows of the lists of handlers."""

    workers: list[Process] = field(default_factory=list)
    noted: datetime | None = None
    """When it noted last that it has planned."""
    passed: set[int] = field(default_factory=set)
    """The numbers of the newer lists that it waits for no more."""


@dataclass(eq=False)
class Process:
    """A worker of a process with its handlers; mostly it is the only one.

    `holds` are the claims whose commit it knows of, by run and token.
    """

    name: str
    handlers: Sequence[Handler]
    waits: tuple[float, ...]
    seen: datetime | None = None
    """When it was recorded as alive last; None before that."""
    number: int = 0
    """The number of its list of handlers: a list that was first seen later has a higher one."""
    shared: Shared = field(default_factory=Shared)
    stopped: bool = False
    held: bool = False
    """Whether an operator has it start nothing."""
    forgotten: bool = False
    """Whether it was not seen for so long that the inbox knows it no more, until it says again that it is."""
    holds: dict[tuple[int, str, int], Claim] = field(default_factory=dict)

    @property
    def knows(self) -> frozenset[str]:
        return self.handlers[0].knows

    def has_under_way(self, run: Run) -> bool:
        """Return whether a worker of the process holds the last claim of a run, however late it is."""
        return any((*run.id, run.token) in each.holds for each in (self, *self.shared.workers))

    def find(self, run: Run) -> Handler | None:
        """Return the handler that is called for a run: it must be one of the delivery's type."""
        return _named(run.name, [each for each in self.handlers if each.has_type(run.delivery)])

    def owner_of(self, name: str) -> Handler:
        """Return the handler that the runs stored under a name belong to; one of no type if there is none."""
        return _named(name, self.handlers) or Handler(name, ())

    def is_alive(self, now: datetime) -> bool:
        """A process counts until it is asked to stop, or a minute after it was killed."""
        return self.seen is not None and not self.stopped and now - self.seen < ALIVE

    def may_plan(self, now: datetime) -> bool:
        """One that is held has its handlers, but no other waits for what it would plan."""
        return self.is_alive(now) and not self.held


@dataclass(eq=False)
class Delivery:
    """A delivery as stored; `fields` are None if its body cannot be read, and empty once it is gone."""

    id: int
    source: str
    key: str
    type: str
    known: bool
    """Whether the service's own types have it; of a user's own only some releases know."""
    body: bytes | None
    fields: dict[str, object] | None
    received: datetime
    signed: datetime | None
    state: str = "received"
    variant: str = ""
    conflict_of: int | None = None
    also: list[str] = field(default_factory=list)
    needs_action: bool = False
    """Whether an error says why it is not handled."""
    type_in_body: tuple[str, bool] | None = None
    """The type that its body names ("" if it cannot be read), and whether it is known; or a header has it."""
    waits_since: datetime | None = None
    """The earliest time that a clock was set back to while it was unread."""
    sent_type: str = field(init=False)
    counted_as: str = field(init=False)
    """As these it was sent, also where an operator has it read as another type."""

    def __post_init__(self) -> None:
        self.be_of(self.type, self.known)

    def be_of(self, event_type: str, known: bool) -> None:
        """Note what it was sent as: all types without a model are counted together."""
        self.type, self.known, self.sent_type = event_type, known, event_type
        self.counted_as = event_type if known or not event_type else "*"

    @property
    def is_unread(self) -> bool:
        """Its type is in the body, and not read yet."""
        return self.type_in_body is not None and not self.type


Bug = tuple[str, str]
"""What failures of an issue have in common: the handler, by its name in that process, and the error."""


@dataclass(eq=False)
class Run:
    """The execution of one handler for one delivery, stored under the name that the handler had."""

    delivery: Delivery
    name: str
    state: str
    due: datetime
    order: tuple[object, ...] | None = None
    newest: int = 0
    newest_value: Any = None
    content: tuple[object, ...] | None = None
    twin_of: int | None = None
    error: str | None = None
    token: int = 0
    attempts: int = 0
    uncounted: int = 0
    not_before: datetime | None = None
    """The time that an operator or its handler has put it off to."""
    postponements: int = 0
    """How many of the uncounted attempts put it off."""
    replays: int = 0
    queued: bool = False
    alone: bool = False
    beside: bool = False
    owner: str | None = None
    failures: list[str] = field(default_factory=list)
    bugs: list[tuple[Bug, datetime, int]] = field(default_factory=list)
    """Those of the failures that are of an issue, with their times, and the numbers of their transactions."""

    @property
    def id(self) -> tuple[int, str]:
        return self.delivery.id, self.name

    @property
    def reads(self) -> bool:
        """It calls no handler, but the class of a user's own type, before there are runs of handlers."""
        return self.name.startswith(READING)

    @property
    def unfinished(self) -> bool:
        return self.state in ("waiting", "due", "running")


@dataclass(frozen=True)
class Claim:
    """The right to one attempt: the result counts while the run still has this token."""

    run: Run
    then: Run
    """The run as it was claimed."""
    since: float
    """When the process claimed it, in seconds of a clock that is never set."""

    @property
    def id(self) -> tuple[int, str, int]:
        return (*self.run.id, self.then.token)

    @property
    def is_held(self) -> bool:
        return self.run.state == "running" and self.run.token == self.then.token

    @property
    def number(self) -> int:
        """Which attempt it is of those that count."""
        return self.then.attempts - self.then.uncounted


@dataclass(frozen=True)
class Result:
    """How an attempt ended: the run's next state, and when it is due again."""

    claim: Claim
    state: str
    at: datetime
    due: datetime | None = None
    error: str | None = None
    uncounted: bool = False
    not_before: datetime | None = None
    bug: str | None = None
    """What groups the failure with others; None for what is no failure, and for one that may pass."""
    alone: bool = False
    """Whether a reading is tried again while nothing else runs."""


@dataclass
class Limits:
    """What is known of a handler that is paused or limited, under its own name."""

    paused: bool = False
    failures: int = 0
    next_start: datetime | None = None


@dataclass(eq=False)
class State:
    """All that an inbox stores, and what its processes know."""

    deliveries: dict[int, Delivery] = field(default_factory=dict)
    runs: dict[tuple[int, str], Run] = field(default_factory=dict)
    """In the order in which they were made."""
    limits: dict[str, Limits] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    lists: list[Sequence[Handler]] = field(default_factory=list)
    """The lists of handlers, as they were first seen."""
    former: dict[str, str] = field(default_factory=dict)
    """The name that a renamed handler has now, by each of its former ones, as the newest release says."""
    settled: int = 0
    """How many transactions have written results."""
    deleted: Counter[Bug] = field(default_factory=Counter)
    """The failures of issues that were deleted with what was erased or pruned."""
    counted: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often what happened, by event type or handler: each event counts, and stays counted."""

    def runs_of(self, delivery: Delivery) -> list[Run]:
        return [each for each in self.runs.values() if each.delivery is delivery]


def _named(name: str, handlers: Sequence[Handler]) -> Handler | None:
    """Return the handler of a name; a name comes before an alias."""
    by_name = sorted(handlers, key=lambda each: each.name != name)
    return next((each for each in by_name if name in each.names), None)
