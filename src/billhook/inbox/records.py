"""What goes into the inbox and comes out of it: plain values, no rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from hashlib import sha256

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
    CONFLICT = "conflict"  # quarantined: its key is stored already, under another type or with other bytes
    UNTYPED = "untyped"  # quarantined: it names no event type
    SURPLUS = "surplus"  # not stored: its key has as many conflicts as are kept


@dataclass(frozen=True, slots=True)
class Incoming:
    """An authentic delivery, about to be stored. `headers` is JSON text, `body` the exact bytes.

    `event_type` is "" for one that names no usable type; `known` says whether the type has a model, for
    conflicts of a key are kept once per known type. `digest` is the SHA-256 of the body.
    """

    source: str
    key: str
    event_type: str
    body: bytes
    headers: str
    signed_at: datetime | None
    received_at: datetime
    known: bool = False
    digest: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", sha256(self.body).digest())


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the inbox committed for an Incoming.

    `delivery_id` is the row's that holds it, for a SURPLUS one that of the last conflict kept in its stead;
    `stored_event_type` is the type under which the first delivery of its key came. A CONFLICT has the id of
    that one in `conflict_of`. `error` says why it was quarantined.
    """

    verdict: Verdict
    delivery_id: int
    stored_event_type: str
    conflict_of: int | None = None
    error: str | None = None


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
    slot: str = ""
    sent_as: str | None = None

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
    """One run, ours until `leased_until` unless it is renewed; `token` fences its settling.

    Of its attempts, this one included, so many are `excused`: they count for nothing. A `suspect` was claimed
    because its last attempt was lost with its worker, to be begun beside nothing else.
    """

    run_id: int
    token: int
    handler: str
    attempt: int
    leased_until: datetime
    delivery: Stored
    excused: int = 0
    suspect: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a claimed run ended. `due_at` is set for DUE only; `error` for all but SUCCEEDED.

    An `excused` attempt was cut off by us, and does not count against the run.
    """

    run_id: int
    token: int
    delivery_id: int
    attempt: int
    state: RunState
    at: datetime
    due_at: datetime | None = None
    error: str | None = None
    traceback: str | None = None
    excused: bool = False

    @property
    def lease(self) -> tuple[int, int]:
        """The run's id and the claim's token."""
        return self.run_id, self.token
