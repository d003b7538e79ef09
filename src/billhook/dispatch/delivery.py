"""What a handler learns about the delivery beside its event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

__all__ = ["Delivery"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery, as handed to one handler for one attempt.

    `key` is the same at every attempt and every replay: use it to make effects idempotent, for a handler
    runs at least once. `attempt` counts from 1. Times are aware UTC; `signed_at` is None for a scheme that
    signs no time. `body` is the exact bytes that were signed, `headers` those of the request.
    """

    id: int
    key: str
    source: str
    event_type: str
    attempt: int
    received_at: datetime
    signed_at: datetime | None
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
