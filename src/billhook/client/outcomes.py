"""What became of an event, and of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from billhook.resources import UsageEvent

__all__ = ["EventResult", "EventState", "Given", "Progress"]

Given = UsageEvent | Mapping[str, Any]
"""An event as a user gives it: the model, or a mapping with its fields."""


class EventState(StrEnum):
    """What became of an event. `UNCONFIRMED`: it was sent, and it is not known whether it was stored."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    INVALID = "invalid"
    UNCONFIRMED = "unconfirmed"


@dataclass(frozen=True, slots=True)
class EventResult:
    """One event, as it was given, and what became of it; `error` says why it was not accepted."""

    event: Given
    state: EventState
    error: str | None = None

    @property
    def stored(self) -> bool:
        """Is it with the service, from now or from before? A repeated call finds its own events there."""
        return self.state in (EventState.ACCEPTED, EventState.DUPLICATE)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an ingestion is, after a batch: requests sent, bytes in their bodies, events by their state."""

    batches: int = 0
    sent_bytes: int = 0
    accepted: int = 0
    duplicate: int = 0
    invalid: int = 0

    def after(self, batches: int, sent_bytes: int, results: Sequence[EventResult]) -> Progress:
        """With so many more; what is unconfirmed is not counted, for it is the end."""
        states = [result.state for result in results]
        return Progress(
            self.batches + batches,
            self.sent_bytes + sent_bytes,
            self.accepted + states.count(EventState.ACCEPTED),
            self.duplicate + states.count(EventState.DUPLICATE),
            self.invalid + states.count(EventState.INVALID),
        )
