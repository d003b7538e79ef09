"""A claimed run on its way to a handler, and the thread that has it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime

from billhook.events import Event, UnknownEvent
from billhook.inbox import Claim

__all__ = ["Job", "Slot"]


@dataclass(slots=True)
class Job:
    """A claimed run, with its event if that was parsed already, and how long it is ours."""

    claim: Claim
    event: Event | UnknownEvent | None
    leased_until: datetime

    @property
    def lease(self) -> tuple[int, int]:
        """The run's id and the claim's token."""
        return self.claim.run_id, self.claim.token


class Slot:
    """What one thread is doing."""

    __slots__ = ("job", "lost", "thread", "timeout_seconds", "until")

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None
        self.job: Job | None = None
        self.until: float | None = None
        self.timeout_seconds = 0.0
        self.lost = False
