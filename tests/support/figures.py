"""What an inbox has counted, and the watermark moved as far as it may."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from billhook.inbox import Inbox
from billhook.inbox.watching.overview import read_totals


def totals(inbox: Inbox) -> Counter[tuple[str, str, str]]:
    """What happened since the inbox was made, by event type, handler and what, as metrics have it."""
    numbers: Counter[tuple[str, str, str]] = Counter()
    for key, sums in read_totals(inbox).items():
        numbers[key.event_type, key.handler, key.what] += sums.number
    return numbers


def advance(inbox: Inbox, now: datetime) -> None:
    """Move the watermark behind all rows: on PostgreSQL the first call notes it."""
    inbox.advance_watermark(now)
    while inbox.advance_watermark(now):
        pass
