"""How much is waiting to be handled: what BILLHOOK_BACKLOG_LIMIT is held against."""

from __future__ import annotations

import time
from collections.abc import Callable

from sqlalchemy import Connection, func, select

from billhook.inbox.clauses import in_state
from billhook.inbox.schema import delivery
from billhook.inbox.states import DeliveryState

__all__ = ["Gauge", "depth"]

LEAST_AGE_SECONDS = 0.25
COST_FACTOR = 20
"""A count is good for so many times what it took: counting is at most a twentieth of all there is to do."""


def depth(connection: Connection, limit: int) -> int:
    """Deliveries not finished, counted up to `limit` on their partial index, never on the whole table."""
    unfinished = in_state(delivery.c.state, DeliveryState.RECEIVED, DeliveryState.PLANNED)
    some = select(delivery.c.id).where(unfinished).limit(limit).subquery()
    counted: int = connection.execute(select(func.count()).select_from(some)).scalar_one()
    return counted


class Gauge:
    """Whether the backlog is full, for the one thread that commits.

    The last count, and what this process has committed since. What others accepted and what was handled
    meanwhile is not in it before the next: a limit is passed by what other processes take in that time.
    """

    def __init__(
        self, count: Callable[[int], int], limit: int, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """`count` gives the depth, up to the number that it is called with."""
        self._count = count
        self._limit = limit
        self._monotonic = monotonic
        self._depth = 0
        self._again_at = 0.0

    def full(self) -> bool:
        """True when `limit` deliveries wait. Raises what `count` raises."""
        started = self._monotonic()
        if started >= self._again_at:
            self._depth = self._count(self._limit)
            ended = self._monotonic()
            self._again_at = ended + max(LEAST_AGE_SECONDS, COST_FACTOR * (ended - started))
        return self._depth >= self._limit

    def add(self, accepted: int) -> None:
        """So many more were committed."""
        self._depth += accepted
