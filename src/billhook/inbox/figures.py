"""The figures of an inbox: what is read from counts and deliveries, for status, metrics and pages."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from typing import NamedTuple

from billhook.inbox.counts import DURATION_BOUNDS, Counted
from billhook.inbox.handler_backlog import HandlerBacklog
from billhook.inbox.records import PausedHandler

COUNT_LIMIT = 100_000
"""How far deliveries are counted one by one: a number that is as large means "at least"."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The unfinished and the failed deliveries, now. Numbers are exact below COUNT_LIMIT."""

    unread: int
    in_progress: int
    oldest_at: datetime | None
    """When the oldest unfinished delivery was received."""
    dead: int
    quarantined: int
    conflicts: int
    """Of the quarantined, those that contradict another delivery of their key."""

    @property
    def waiting(self) -> int:
        """All that are not finished."""
        return self.unread + self.in_progress


@dataclass(frozen=True, slots=True)
class TypeFigures:
    """Deliveries of one event type in the time asked for; "*" is all types without a model."""

    event_type: str
    accepted: int = 0
    duplicates: int = 0
    conflicts: int = 0
    quarantined: int = 0
    last_at: datetime | None = None
    """When the last one was received, however long ago."""


@dataclass(frozen=True, slots=True)
class HandlerFigures:
    """One handler in the time asked for. `failed` are attempts that are tried again.

    `p50_seconds` and `p95_seconds` are estimated from steps of duration; None without a call.
    """

    name: str
    succeeded: int = 0
    failed: int = 0
    dead: int = 0
    discarded: int = 0
    p50_seconds: float | None = None
    p95_seconds: float | None = None
    buckets: tuple[int, ...] = (0,) * (len(DURATION_BOUNDS) + 1)
    """The calls of each step of duration; see billhook.inbox.counts.DURATION_BOUNDS."""
    seconds: float = 0.0
    """How long all calls took."""


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """A process that claims runs; `alive` if it was seen within the last minute."""

    owner: str
    engine: str
    handlers: int | None
    started_at: datetime
    seen_at: datetime
    alive: bool


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of an inbox at `at`; what is counted over time is counted from `since`."""

    at: datetime
    since: datetime
    revision: str | None
    backlog: Backlog
    types: Sequence[TypeFigures]
    handlers: Sequence[HandlerFigures]
    refused: Mapping[str, int]
    """Deliveries that were not accepted, by cause."""
    refused_seconds: Mapping[str, float]
    """Of those whose signed time was outside the tolerance, by how much on average."""
    handler_backlogs: Sequence[HandlerBacklog]
    paused: Sequence[PausedHandler]
    workers: Sequence[WorkerFigures]
    last_at: datetime | None
    """When the last delivery was received."""


class Total(NamedTuple):
    """How often one thing happened; `bucket` is the step of its duration, -1 without one."""

    source: str
    event_type: str
    handler: str
    what: Counted
    cause: str
    bucket: int
    number: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PeriodFigures:
    """An hour or a day that begins `at`: what happened in it, `refused` by cause."""

    at: datetime
    counted: Counter[Counted] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    by_type: Counter[str] = field(default_factory=Counter)
    """The accepted deliveries of each type."""


def percentile(buckets: Sequence[int], part: float) -> float | None:
    """Estimate the duration in seconds that this part of the calls stayed below; None without a call.

    Within a step calls are taken to be spread evenly; those beyond the last bound count as that bound.
    """
    total = sum(buckets)
    if not total:
        return None
    up_to = list(accumulate(buckets))
    step = bisect_left(up_to, total * part)
    lower, upper = (0.0, *DURATION_BOUNDS)[step], (*DURATION_BOUNDS, DURATION_BOUNDS[-1])[step]
    in_step = (total * part - up_to[step]) / buckets[step] + 1
    return lower + (upper - lower) * in_step
