"""Find the ids of deliveries that were stored since the last look, also those that are committed late."""

from __future__ import annotations

import time
from collections.abc import Collection

from sqlalchemy import or_, select, true

from billhook.inbox.inbox import Inbox
from billhook.inbox.schema import delivery
from billhook.inbox.sql import in_values

_MOST_FOUND = 500
_LATE_SECONDS = 70.0
"""How long after a higher id a lower one may be committed: longer than BILLHOOK_DEADLINE_SECONDS may be."""
_MOST_PASSED = 1_000


class NewIds:
    """The ids of deliveries that were stored since the last poll.

    On PostgreSQL a transaction may commit a lower id after another one has committed a higher one, so ids
    that were passed over are looked for again for a while. Most of them belong to no delivery at all.
    """

    def __init__(self, inbox: Inbox, after: int | None) -> None:
        self._inbox = inbox
        self._passed: dict[int, float] = {}
        last = delivery.c.id <= after if after is not None else true()
        query = select(delivery.c.id).where(last).order_by(delivery.c.id.desc()).limit(_MOST_PASSED)
        with inbox.database.read() as connection:
            there = set(connection.execute(query).scalars())
        self._last = max(there, default=0) if after is None else after
        self._pass(range(max(min(there, default=1), self._last - _MOST_PASSED), self._last), there)

    def poll(self) -> list[int]:
        """Return new ids, at most a batch, in their order."""
        now = time.monotonic()
        late = in_values(delivery.c.id, list(self._passed))
        query = select(delivery.c.id).where(
            or_(delivery.c.id > self._last, late) if self._passed else delivery.c.id > self._last
        )
        with self._inbox.database.read() as connection:
            found = list(connection.execute(query.order_by(delivery.c.id).limit(_MOST_FOUND)).scalars())
        # Only now: after a long pause of the reader, each has been looked for once more.
        self._passed = {one: until for one, until in self._passed.items() if until > now}
        for delivery_id in found:
            self._passed.pop(delivery_id, None)
            if delivery_id > self._last:
                self._pass(range(max(self._last + 1, delivery_id - _MOST_PASSED), delivery_id))
                self._last = delivery_id
        return found

    def _pass(self, ids: range, there: Collection[int] = ()) -> None:
        until = time.monotonic() + _LATE_SECONDS
        self._passed.update({one: until for one in ids if one not in there})
