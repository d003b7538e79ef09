"""Remember what billhook has subscribed: the service can neither list nor remove subscriptions.

It is billhook's own memory: it lacks what was subscribed elsewhere, and keeps what was removed there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import and_, delete, insert, select

from billhook.inbox.inbox import Inbox
from billhook.inbox.operating.actions import shown_name
from billhook.inbox.tables.schema import subscription
from billhook.inbox.tables.sql import in_values


@dataclass(frozen=True, slots=True)
class Remembered:
    """What billhook has subscribed at the service: one type for one URL, with its thresholds in percent.

    `url` and `service` are shown without a password and without the text of a query; `digest` is of the
    whole URL. A threshold that was not given is empty.
    """

    id: int
    at: datetime
    who: str
    service: str
    url: str
    digest: str
    event_type: str
    threshold: str
    recurring_threshold: str

    @property
    def terms(self) -> dict[str, str]:
        """What was sent, as `terms_of` has it."""
        names = ("service", "url", "digest", "event_type", "threshold", "recurring_threshold")
        return {name: getattr(self, name) for name in names}


def terms_of(service: str, callback_url: str, request: Mapping[str, Any]) -> dict[str, str]:
    """Return what identifies a subscription: the service's address, the URL and the request's fields."""
    numbers = {name: request.get(name) for name in ("threshold", "recurring_threshold")}
    return {
        "service": shown_url(service).rstrip("/"),
        "url": shown_url(callback_url),
        "digest": hashlib.sha256(callback_url.encode()).hexdigest(),
        "event_type": request["event_type"],
        # 80 and 80.0 are the same threshold.
        **{name: "" if one is None else f"{Decimal(one).normalize():f}" for name, one in numbers.items()},
    }


def shown_url(url: str) -> str:
    """Return an address without a user, a password and the text of a query, which may be a token."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="…" if parts.query else "", fragment="").geturl()


def list_subscriptions(inbox: Inbox) -> list[Remembered]:
    """Return what is remembered, the first one first."""
    return [Remembered(*row) for row in inbox.fetch(select(subscription).order_by(subscription.c.id))]


def remember(inbox: Inbox, who: str, terms: Mapping[str, str], now: datetime) -> None:
    """Store that this was subscribed; the same one is there once, with its latest time."""
    same = and_(*(subscription.c[name] == value for name, value in terms.items()))
    with inbox.database.write() as connection:
        connection.execute(delete(subscription).where(same))
        connection.execute(insert(subscription).values(at=now, who=shown_name(who), **terms))


def forget(inbox: Inbox, ids: Collection[int]) -> int:
    """Delete the memory of these, not the subscriptions themselves; return how many there were."""
    return inbox.apply(delete(subscription).where(in_values(subscription.c.id, ids)))
