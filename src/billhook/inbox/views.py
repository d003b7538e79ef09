"""What an onlooker selects and sees: plain values over the inbox, for billhook.inbox.admin."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import ColumnElement, exists

from billhook.inbox.schema import delivery, run
from billhook.inbox.states import DeliveryState

__all__ = ["Details", "Failure", "Run", "Selection", "Summary"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which deliveries: every fact given must hold.

    `handler` means that it has a run of this name, `twins` that a handler had it under another key already.
    """

    event_type: str | None = None
    state: str | None = None
    source: str | None = None
    handler: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    twins: bool = False

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
            found.append(delivery.c.state == DeliveryState(self.state).value)
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
        return found


@dataclass(frozen=True, slots=True)
class Summary:
    """A delivery in a list; `body_bytes` is its length, `twin_of` the first it was taken for a twin of."""

    id: int
    source: str
    key: str
    event_type: str
    state: str
    received_at: datetime
    signed_at: datetime | None
    body_bytes: int
    twin_of: int | None = None


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
class Details:
    """All that the inbox knows of a delivery; `error` says why it is quarantined."""

    summary: Summary
    body: bytes
    headers: dict[str, str]
    error: str | None
    runs: list[Run]
