"""What goes into the inbox and comes out of it: plain values, no rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from billhook.inbox.states import RunState

__all__ = [
    "Claim",
    "Incoming",
    "Likeness",
    "Outcome",
    "Plan",
    "Receipt",
    "Stored",
    "Terms",
    "Twin",
    "Verdict",
]


class Verdict(StrEnum):
    """What became of a delivery that was put."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"  # the key is stored already, under another event type


@dataclass(frozen=True, slots=True)
class Incoming:
    """An authentic delivery, about to be stored. `headers` is JSON text, `body` the exact bytes."""

    source: str
    key: str
    event_type: str
    body: bytes
    headers: str
    signed_at: datetime | None
    received_at: datetime


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the inbox committed for an Incoming; `stored_event_type` differs only in a conflict."""

    verdict: Verdict
    delivery_id: int
    stored_event_type: str


@dataclass(frozen=True, slots=True)
class Stored:
    """A delivery as the inbox holds it."""

    delivery_id: int
    source: str
    key: str
    event_type: str
    body: bytes
    headers: str
    signed_at: datetime | None
    received_at: datetime

    @property
    def identity(self) -> tuple[int, str]:
        """Id and key: in a file put in this one's place, the id alone is another delivery's."""
        return self.delivery_id, self.key


@dataclass(frozen=True, slots=True)
class Likeness:
    """By what a handler knows that it had a delivery already, under another key.

    `digest` is of the values of `fields`, their source and event type; only a delivery received within
    `window_seconds` of `received_at` is the same one come again.
    """

    digest: str
    fields: tuple[str, ...]
    received_at: datetime
    window_seconds: float


@dataclass(frozen=True, slots=True)
class Terms:
    """What one handler asks for beside being called: a turn among its runs of `order_key`, and no twins."""

    order_key: str | None = None
    likeness: Likeness | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done with a received delivery: run these handlers, or set it aside for `error`.

    `terms` are by the handler's name; most have none.
    """

    delivery_id: int
    handlers: tuple[str, ...] = ()
    error: str | None = None
    terms: Mapping[str, Terms] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Twin:
    """A run that was discarded as it was planned: its handler had the delivery `twin_of`, which is alike."""

    delivery_id: int
    handler: str
    twin_of: int


@dataclass(frozen=True, slots=True)
class Claim:
    """One run, ours until `leased_until` unless it is renewed; `token` fences its settling."""

    run_id: int
    token: int
    handler: str
    attempt: int
    leased_until: datetime
    delivery: Stored


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a claimed run ended. `due_at` is set for DUE only; `error` for all but SUCCEEDED."""

    run_id: int
    token: int
    delivery_id: int
    attempt: int
    state: RunState
    at: datetime
    due_at: datetime | None = None
    error: str | None = None
    traceback: str | None = None
