"""Limit the connections of a process: how long each may wait, and which one is closed for a new one.

No I/O and no gunicorn here: each connection has methods that end it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Protocol

HEAD_SECONDS = 10.0
"""How long a client may take to send the line and headers of a request."""
READ_SECONDS = 30.0
"""How long a client may leave a response unread that no longer fits into the buffers."""
CLOSE_SECONDS = 10.0
"""How long a connection that is being closed may wait for its client to read the rest."""
MIN_WAIT_SECONDS = 1.0
"""How long a connection may wait for its head or body before another one takes its place.

An honest client has sent both by then, and its connection is not the first to go when many are opened.
"""


class Connection(Protocol):
    """A connection, with the ways to end it."""

    def refuse_head(self) -> None:
        """Answer that the head took too long, and close."""

    def close(self) -> None:
        """Close the connection after what has been written to it."""

    def abort(self) -> None:
        """Close the connection at once."""


class WaitingQueue:
    """Connections that wait for the same thing, the longest waiting first."""

    def __init__(self, seconds: float, end: Callable[[Connection], None], clock: Callable[[], float]) -> None:
        """`end` is called for connections that have waited `seconds`, and ends them."""
        self._seconds = seconds
        self._end = end
        self._clock = clock
        self._since: dict[Connection, float] = {}  # in this order, because `add` puts each at the end

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._since

    def __len__(self) -> int:
        return len(self._since)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._since))

    def add(self, connection: Connection) -> None:
        """Add a connection, which waits from now on; again, if it was waiting already."""
        self._since.pop(connection, None)
        self._since[connection] = self._clock()

    def discard(self, connection: Connection) -> None:
        """Remove a connection, if it waits."""
        self._since.pop(connection, None)

    @property
    def longest_seconds(self) -> float:
        """The waiting time of the connection that has waited longest; 0 if none waits."""
        since = next(iter(self._since.values()), None)
        return 0.0 if since is None else self._clock() - since

    def end_longest(self, seconds: float = 0.0) -> bool:
        """End the connection that has waited longest; False if none has waited `seconds`."""
        for connection, since in self._since.items():
            if self._clock() - since < seconds:
                break
            del self._since[connection]
            self._end(connection)
            return True
        return False

    def end_overdue(self, at_most: int) -> int:
        """End the connections whose time is over; return their number."""
        count = 0
        while count < at_most and self.end_longest(self._seconds):
            count += 1
        return count


class ConnectionLimits:
    """The connections of one process, by what they wait for."""

    def __init__(
        self, max_open: int, idle_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`max_open` connections may be open, and each be idle for `idle_seconds` between requests."""
        self.max_open = max_open
        self.open = 0

        def waiting(seconds: float, end: Callable[[Connection], None]) -> WaitingQueue:
            return WaitingQueue(seconds, end, clock)

        self.without_head = waiting(HEAD_SECONDS, lambda connection: connection.refuse_head())
        """Connections that have sent no request yet, or a part of its head."""
        self.without_body = waiting(math.inf, lambda connection: connection.close())
        """Connections that have sent a part of the body; the application limits the wait for the rest."""
        self.idle = waiting(idle_seconds, lambda connection: connection.close())
        """Connections that are kept alive after a response."""
        self.idle_and_known = waiting(idle_seconds, lambda connection: connection.close())
        """Connections that are kept alive after an accepted request, which hostile clients cannot have."""
        self.unread = waiting(READ_SECONDS, lambda connection: connection.abort())
        """Connections whose client does not read the response."""
        self.closing = waiting(CLOSE_SECONDS, lambda connection: connection.abort())
        """Connections that are closed as soon as their client has read the rest."""
        self.ended = waiting(math.inf, lambda connection: connection.abort())
        """Connections that are being answered and whose client has stopped sending: most such clients have
        left."""
        self._all = (
            self.closing,
            self.unread,
            self.without_head,
            self.without_body,
            self.idle,
            self.ended,
            self.idle_and_known,
        )

    def end_overdue(self, at_most: int) -> bool:
        """End some connections whose time is over; True if there may be more of them."""
        for waiting in self._all:
            at_most -= waiting.end_overdue(at_most)
        return at_most == 0

    def admit(self) -> bool:
        """Admit one more connection, closing the most expendable one if necessary.

        False if all are busy: each has a whole request that is being answered.
        """
        if self.open < self.max_open:
            return True
        most_expendable = (self.closing, self.unread, self.without_head, self.without_body, self.idle)
        if any(waiting.end_longest(MIN_WAIT_SECONDS) for waiting in most_expendable):
            return True
        # Connections are opened so fast that all are new. A connection in use is never idle for long. Among
        # those without a complete request, end the longest waiting one: an honest client sends head and body
        # within milliseconds.
        new = sorted((self.without_head, self.without_body), key=lambda waiting: -waiting.longest_seconds)
        others = (*new, self.idle, self.ended, self.idle_and_known)
        return any(waiting.end_longest() for waiting in others)

    def discard(self, connection: Connection) -> None:
        """Remove a connection from every queue."""
        for waiting in self._all:
            waiting.discard(connection)
