"""Missing: an event that the API's data prove and no delivery tells of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from billhook.events import Event

__all__ = ["Missing"]


@dataclass(frozen=True, slots=True)
class Missing:
    """An event without a delivery that a handler could have had.

    `kind` is contract, invoice, customer or credit, and `resource_id` the id of that object. `at` is when the
    object was created or last changed, or the contract ended; `detail` tells what proves the event.
    `quarantined_as` is the id of a quarantined delivery that tells of it. `event` is the synthetic event to
    inject; without one, `obstacle` says why.
    """

    event_type: str
    kind: str
    resource_id: str
    customer_id: str | None
    at: datetime
    detail: str
    event: Event | None = None
    obstacle: str | None = None
    quarantined_as: int | None = None
