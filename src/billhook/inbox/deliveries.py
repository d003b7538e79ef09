"""Deliveries: find stored deliveries, follow new ones, and read their bodies in bulk."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from datetime import datetime
from typing import NamedTuple, Self

from sqlalchemy import func, or_, select

from billhook.errors import ConfigError
from billhook.inbox.admin import DeliveryDetails, count, details, page
from billhook.inbox.database import Listener
from billhook.inbox.filters import DeliveryFilter
from billhook.inbox.inbox import Inbox
from billhook.inbox.schema import delivery
from billhook.inbox.sql import in_values

POLL_SECONDS = 2.0
"""How long a delivery may lie unseen by a follower if its notification was lost."""
NO_LISTENER_SECONDS = 0.5
"""The same for a follower that cannot be notified."""
_EVERYTHING = DeliveryFilter()
_BATCH = 500
_PAGE = 50
_LATE_SECONDS = 10.0
"""How long after a higher id a lower one may be committed: longer than a request may take."""
_MOST_PASSED = 1_000


class ReadBody(NamedTuple):
    """The body of a delivery, with its type and its stored state."""

    delivery_id: int
    event_type: str
    state: str
    body: bytes


def read_bodies(inbox: Inbox, event_types: Collection[str], since: datetime) -> Iterator[ReadBody]:
    """Yield the bodies of deliveries of these types received since then, oldest first.

    A batch is in memory at a time, and no transaction is open while the caller works.
    """
    columns = (delivery.c.id, delivery.c.event_type, delivery.c.state, delivery.c.body)
    chosen = select(*columns).where(
        in_values(delivery.c.event_type, sorted(event_types)), delivery.c.received_at >= since
    )
    after = 0
    while True:
        with inbox.database.read() as connection:
            rows = connection.execute(
                chosen.where(delivery.c.id > after).order_by(delivery.c.id).limit(_BATCH)
            ).all()
        yield from (ReadBody(*row) for row in rows)
        if len(rows) < _BATCH:
            return
        after = rows[-1].id


class Deliveries:
    """The deliveries of an inbox, to read: find, count and follow them. Changes nothing.

    >>> with Deliveries.open("sqlite:////var/lib/shop/billhook.db") as deliveries:  # doctest: +SKIP
    ...     for found in deliveries.find(DeliveryFilter(event_type="PaymentFailed"), limit=20):
    ...         print(found.summary.id, found.status, found.body)

    Any number of threads may share one. Methods raise InboxUnavailable when the storage fails.
    """

    def __init__(self, inbox: Inbox) -> None:
        """Read an inbox that is open already; `open` is for one that is not."""
        self._inbox = inbox

    @classmethod
    def open(cls, url: str, *, schema: str = "billhook") -> Self:
        """Open the inbox at the URL, as BILLHOOK_INBOX_URL has it. Raises ConfigError if there is none."""
        inbox = Inbox(url, schema=schema)
        path = getattr(inbox.database, "path", None)
        if path is not None and not path.is_file():  # SQLite would create an empty one
            raise ConfigError(f"there is no inbox at {inbox.database.display_url}")
        return cls(inbox)

    def close(self) -> None:
        """Close the inbox's connections."""
        self._inbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, delivery_id: int) -> DeliveryDetails | None:
        """Return a delivery with its body, headers and runs; None if there is none of this id."""
        return next(iter(details(self._inbox, [delivery_id])), None)

    def count(self, selection: DeliveryFilter = _EVERYTHING) -> int:
        """Count the selected deliveries."""
        return count(self._inbox, selection)

    def find(
        self, selection: DeliveryFilter = _EVERYTHING, *, limit: int | None = None
    ) -> Iterator[DeliveryDetails]:
        """Yield the selected, newest first, at most `limit`; a page of them is in memory at a time."""
        below = None
        left = sys.maxsize if limit is None else limit
        while left > 0:
            found = page(self._inbox, selection, min(left, _PAGE), below)
            yield from reversed(details(self._inbox, [summary.id for summary in found]))
            if len(found) < _PAGE:
                return
            left -= len(found)
            below = found[-1].id

    def follow(
        self,
        selection: DeliveryFilter = _EVERYTHING,
        *,
        after: int | None = None,
        idle_seconds: float | None = None,
    ) -> Iterator[DeliveryDetails]:
        """Yield the selected as they are stored, in the order in which they were, and wait for others.

        Begins after the delivery `after`, or with the next that is stored. Ends after `idle_seconds` in
        which nothing selected was stored, by default never. A delivery is there some milliseconds after its
        commit; a notification that was lost costs up to 2 s.
        """
        with closing(_listener(self._inbox)) as listener:
            news = _NewIds(self._inbox, after)
            last_at = time.monotonic()
            while True:
                found = news.poll()
                chosen = _selected(self._inbox, found, selection)
                yield from details(self._inbox, chosen)
                if chosen:
                    last_at = time.monotonic()
                if found:
                    continue
                pause = POLL_SECONDS
                if idle_seconds is not None:
                    pause = min(pause, last_at + idle_seconds - time.monotonic())
                    if pause <= 0:
                        return
                try:
                    listener.wait(pause)
                except OSError:  # the server is away, or was: the next poll tells
                    time.sleep(pause)


class _NewIds:
    """The ids of deliveries that were stored since the last poll.

    On PostgreSQL a transaction may commit a lower id after another one has committed a higher one, so ids
    that were passed over are looked for again for a while. Most of them belong to no delivery at all.
    """

    def __init__(self, inbox: Inbox, after: int | None) -> None:
        self._inbox = inbox
        self._passed: dict[int, float] = {}
        with inbox.database.read() as connection:
            newest = connection.execute(select(func.max(delivery.c.id))).scalar_one() or 0
        self._last = newest if after is None else after

    def poll(self) -> list[int]:
        """Return new ids, at most a batch, in their order."""
        now = time.monotonic()
        self._passed = {one: until for one, until in self._passed.items() if until > now}
        late = in_values(delivery.c.id, list(self._passed))
        query = select(delivery.c.id).where(
            or_(delivery.c.id > self._last, late) if self._passed else delivery.c.id > self._last
        )
        with self._inbox.database.read() as connection:
            found = list(connection.execute(query.order_by(delivery.c.id).limit(_BATCH)).scalars())
        for delivery_id in found:
            self._passed.pop(delivery_id, None)
            if delivery_id > self._last:
                gap = range(max(self._last + 1, delivery_id - _MOST_PASSED), delivery_id)
                self._passed.update(dict.fromkeys(gap, now + _LATE_SECONDS))
                self._last = delivery_id
        return found


def _listener(inbox: Inbox) -> Listener:
    try:
        return inbox.waker.listener()
    except OSError:  # a folder that this user may not write to
        return _NoListener()


class _NoListener:
    """Stands for a listener where there can be none: a follower then polls."""

    def wait(self, timeout_seconds: float) -> bool:
        """Sleep."""
        time.sleep(min(timeout_seconds, NO_LISTENER_SECONDS))
        return False

    def close(self) -> None:
        """Do nothing."""


def _selected(inbox: Inbox, ids: Sequence[int], selection: DeliveryFilter) -> list[int]:
    if not ids:
        return []
    query = select(delivery.c.id).where(in_values(delivery.c.id, ids), *selection.conditions())
    with inbox.database.read() as connection:
        return list(connection.execute(query.order_by(delivery.c.id)).scalars())
