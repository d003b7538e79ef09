"""What handlers raise to say how their run ended."""

from __future__ import annotations

from billhook.errors.root import BillhookError

__all__ = ["Discard", "HandlerSignal", "Retry"]


class HandlerSignal(BillhookError):
    """Raised by a handler, to say how its run ended."""


class Retry(HandlerSignal):
    """Run this handler again: after `after_seconds`, or when the schedule says if that is None."""

    def __init__(self, reason: str = "", *, after_seconds: float | None = None) -> None:
        if after_seconds is not None and not 0 <= after_seconds <= 31 * 86_400:
            raise ValueError(f"after_seconds must be between 0 and 31 days, got {after_seconds!r}")
        self.after_seconds = after_seconds
        super().__init__(reason or "the handler asked for another attempt")


class Discard(HandlerSignal):
    """Do not run this handler again for this delivery, and do not call it a failure."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "the handler discarded the delivery")
