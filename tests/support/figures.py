"""What an inbox has counted, and the closing of all that may be closed."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from billhook.inbox import Inbox
from billhook.inbox.overview import read_totals


def totals(inbox: Inbox) -> Counter[tuple[str, str, str]]:
    """What happened since the inbox was made, by event type, handler and what, as metrics have it."""
    numbers: Counter[tuple[str, str, str]] = Counter()
    for key, sums in read_totals(inbox).items():
        numbers[key.event_type, key.handler, key.what] += sums.number
    return numbers


def close(inbox: Inbox, now: datetime) -> None:
    """Close all that can be closed: on PostgreSQL the first call notes it."""
    inbox.close_counts(now)
    while inbox.close_counts(now):
        pass
