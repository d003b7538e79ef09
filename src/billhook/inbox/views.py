"""What an onlooker selects and sees: plain values over the inbox, for billhook.inbox.admin."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import ColumnElement, and_, exists, select, union_all

from billhook.inbox.schema import delivery, run
from billhook.inbox.standing import Standing, in_standing, standing

__all__ = ["Details", "Failure", "Listed", "Run", "Selection", "Summary"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which deliveries: every fact given must hold.

    `state` is a Standing or `planned`; `error` is a part of a run's last error or of the delivery's own, in
    upper or lower case. `handler` means that it has a run of this name, `twins` that a handler had it under
    another key already, `conflicts` that it contradicts another delivery of its key. `decided` leaves out
    what waits for an operator to say what it is: conflicts that no handler has had, and what names no type.
    """

    event_type: str | None = None
    state: str | None = None
    source: str | None = None
    handler: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    twins: bool = False
    error: str | None = None
    conflicts: bool = False
    decided: bool = False

    @property
    def is_everything(self) -> bool:
        """True when nothing is given."""
        return self == Selection()

    def conditions(self) -> list[ColumnElement[bool]]:
        """As SQL, over `delivery`."""
        found: list[ColumnElement[bool]] = []
        if self.event_type is not None:
            found.append(delivery.c.event_type == self.event_type)
        if self.state is not None:
            found += in_standing(self.state)
        if self.source is not None:
            found.append(delivery.c.source == self.source)
        if self.handler is not None:
            found.append(exists().where(run.c.delivery_id == delivery.c.id, run.c.handler == self.handler))
        if self.since is not None:
            found.append(delivery.c.received_at >= self.since)
        if self.until is not None:
            found.append(delivery.c.received_at < self.until)
        if self.twins:
            found.append(exists().where(run.c.delivery_id == delivery.c.id, run.c.twin_of.is_not(None)))
        if self.error is not None:
            found.append(_says(self.error))
        if self.conflicts:
            found.append(delivery.c.conflict_of.is_not(None))
        return found + (_decided() if self.decided else [])


def _decided() -> list[ColumnElement[bool]]:
    unheard = ~exists().where(run.c.delivery_id == delivery.c.id)
    return [~and_(delivery.c.conflict_of.is_not(None), unheard), delivery.c.event_type != ""]


def _says(text: str) -> ColumnElement[bool]:
    """Looked for in each table once, and not once for each delivery."""
    other = delivery.alias("other")
    runs = select(run.c.delivery_id).where(run.c.last_error.icontains(text, autoescape=True))
    own = select(other.c.id).where(other.c.error.icontains(text, autoescape=True))
    return delivery.c.id.in_(union_all(runs, own))


@dataclass(frozen=True, slots=True)
class Summary:
    """A delivery in a list; `body_bytes` is its length, `twin_of` the first it was taken for a twin of.

    `event_type` is "" for one that names no type; `sent_as` is the type that it came as, where an operator
    named another one; `conflict_of` is the id of the delivery that it contradicts.
    """

    id: int
    source: str
    key: str
    event_type: str
    state: str
    received_at: datetime
    signed_at: datetime | None
    body_bytes: int
    twin_of: int | None = None
    conflict_of: int | None = None
    sent_as: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt that failed."""

    attempt: int
    failed_at: datetime
    error: str
    traceback: str | None


@dataclass(frozen=True, slots=True)
class Run:
    """One handler's duty to a delivery, and its failed attempts, oldest first.

    Runs of one handler and `order_key` take turns; `twin_of` is the id of a delivery that was alike.
    """

    id: int
    handler: str
    state: str
    attempts: int
    due_at: datetime
    finished_at: datetime | None
    last_error: str | None
    order_key: str | None = None
    twin_of: int | None = None
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Listed:
    """A delivery in a list with how its handlers fare; the runs' `failures` are left out."""

    summary: Summary
    error: str | None
    runs: list[Run]

    @property
    def standing(self) -> Standing:
        """The state that people are told."""
        return standing(self.summary.state, ((each.state, each.attempts) for each in self.runs))


@dataclass(frozen=True, slots=True)
class Details:
    """All that the inbox knows of a delivery; `error` says why it is quarantined or was discarded."""

    summary: Summary
    body: bytes
    headers: dict[str, str]
    error: str | None
    runs: list[Run]

    @property
    def standing(self) -> Standing:
        """The state that people are told."""
        return Listed(self.summary, self.error, self.runs).standing
