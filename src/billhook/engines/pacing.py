"""Decide how many deliveries a poll reads, and when the next poll is. The caller gives the times: no clock.

how many deliveries a poll reads at most
  as many as the database's driver says       usually
  50                                          the first poll, as their size is not known yet
  what fits into 16 MiB                       by the size of those that the last poll read
  a quarter                                   while more runs are due than the worker has capacity for
  half as many after each failure             memory may lack; as many as before after a success

where a poll begins in the indexes of what waits
  at their beginnings                         usually
  at the first rows that the last one found   PostgreSQL, where the last three from the beginnings took longer
                                              than 20 ms: it keeps the entries of what was handled while an
                                              older transaction is open. Those from the beginnings, which see
                                              also what was put before, take a twentieth of the time then

when the next poll is
  at once                                     something was claimed, or more may wait
  2 s later, or when the next run is due      nothing is due, and nothing wakes the worker up
  10 ms later, doubled up to 2 s              runs are due that other workers have locked
  0.1 s later                                 a reading is due that another worker has locked
  5 ms later                                  a transaction had eight runs or more, and left none to claim
  after twice its time, at most 5 s           its commit took longer than 0.1 s
  0.2 s later, doubled up to 5 s              it failed
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta

from billhook.inbox import NextTimes, PollStart, StoredDelivery, Unread

FIRST_ROWS = 50
PLAN_BYTES = 16 * 1024 * 1024
"""Parsed, a body takes several times its size, and a process that is killed for its memory would read as much
again after its start."""
BEHIND_FACTOR = 4
MAX_POLL_SECONDS = 2.0
"""The longest pause between two polls: how long a delivery can lie unseen if its notification was lost."""
MIN_POLL_SECONDS = 0.01
READING_LOCKED_SECONDS = 0.1
GATHER_SECONDS = 0.005
"""The wait in which results and new deliveries gather: each of them costs less in a larger transaction."""
LOAD_RUNS = 8
SLOW_SECONDS = 0.1
SLOW_FACTOR = 2
SLOW_LIMIT_SECONDS = 5.0
"""On a disk that syncs slowly each transaction holds up the receivers for as long as its sync takes."""
FAILED_SECONDS = 0.1
FAILED_LIMIT_SECONDS = 5.0
WHOLE_SECONDS = 0.02
WHOLE_POLLS = 3
"""The number of polls from the beginnings that all took longer when others begin later: one may connect."""
WHOLE_FACTOR = 20
"""Then none begins there for 20 times as long as the last of them took."""
OPEN_SECONDS = timedelta(seconds=1)
"""So much later than its runs are due another transaction may commit, and they are still found."""
_FIRST_START = PollStart(0, datetime.min.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC), ())
_MAX_DOUBLINGS = 8  # without a bound, a night without storage would overflow a float


class Pacing:
    """The pace of one worker, or of an engine without one: how much each poll reads, and when the next is."""

    def __init__(self, most_rows: int, *, keeps_entries: bool = False) -> None:
        """`most_rows` are how many deliveries a poll reads at most.

        `keeps_entries`: the database may keep entries of what was handled, and polls need not begin at them.
        """
        self._most_rows = most_rows
        self._keeps_entries = keeps_entries
        self._start = _FIRST_START
        self._whole_seconds = deque((0.0,), WHOLE_POLLS)
        self._whole_at: float | None = None
        """When a poll begins at the beginnings again, if not each one does."""
        self._rows_by_failures = most_rows
        self._rows_by_size = FIRST_ROWS
        self._behind = False
        self._empty_claims = 0
        self.failures = 0
        """How many polls have failed since the last that did not."""

    @property
    def rows(self) -> int:
        """How many deliveries the next poll reads at most."""
        rows = self._rows_by_failures
        # A run is claimed as it is made, in one write, only if no other is due: fewer are made until then.
        if self._behind:
            rows = max(1, rows // BEHIND_FACTOR)
        return min(rows, self._rows_by_size)

    def start(self, rows: int, at: float, names: Collection[str]) -> PollStart | None:
        """Return where a poll begins at a time; None for the beginnings.

        `rows` is how many deliveries it reads at most, `names` are those of this process's handlers.
        """
        if self._whole_at is None or (rows and at >= self._whole_at):
            return None
        return self._start._replace(names=tuple(sorted({*names, *self._start.names})))

    def record_start(
        self,
        start: PollStart | None,
        unread: Unread,
        times: NextTimes,
        now: datetime,
        began: float,
        ended: float,
    ) -> None:
        """Record what a poll found that began at this start, and from when to when it looked."""
        before = _FIRST_START if self._whole_at is None else self._start
        if start is None:
            self._whole_seconds.append(ended - began)
            is_slow = self._keeps_entries and min(self._whole_seconds) > WHOLE_SECONDS
            self._whole_at = ended + WHOLE_FACTOR * (ended - began) if is_slow else None
        if self._whole_at is None:
            return
        self._start = PollStart(
            before.delivery_id if unread.first_id is None else unread.first_id,
            min(times.first_due_at or now, now) - OPEN_SECONDS,
            times.lease_ends_at or max(now - OPEN_SECONDS, before.leased_until),
            (*times.names, *(() if start is None else before.names)),
        )

    def record_read(self, deliveries: Collection[StoredDelivery]) -> None:
        """Bound the next read by the size of the deliveries that this one has read."""
        if deliveries:
            size = sum(len(one.body) for one in deliveries)
            self._rows_by_size = max(1, len(deliveries) * PLAN_BYTES // max(1, size))

    def record_claim(self, count: int, capacity: int, next_due_at: datetime | None, now: datetime) -> None:
        """Record how many runs a claim for `capacity` runs returned, and when the next one is due after it.

        It returns none although runs are due when other workers have locked them.
        """
        self._behind = count == capacity
        left = next_due_at is not None and next_due_at <= now
        self._empty_claims = self._empty_claims + 1 if left and not count else 0

    def record_failure(self) -> float:
        """Record a poll that failed; return the seconds until it is repeated."""
        self.failures += 1
        self._rows_by_failures = max(1, self._rows_by_failures // 2)
        return min(FAILED_LIMIT_SECONDS, FAILED_SECONDS * 2.0 ** min(self.failures, _MAX_DOUBLINGS))

    def record_success(self, took: float, commit_seconds: float, to_renewal: float | None) -> float:
        """Record a poll that did not fail and `took` so long; return the seconds in which nothing is written.

        `commit_seconds` are those of its commit, `to_renewal` those until leases have to be renewed. 0.0
        unless the commit was slow.
        """
        self.failures, self._rows_by_failures = 0, self._most_rows
        if min(took, commit_seconds) <= SLOW_SECONDS:
            return 0.0
        longest = SLOW_LIMIT_SECONDS if to_renewal is None else min(to_renewal, SLOW_LIMIT_SECONDS)
        return min(longest, SLOW_FACTOR * took)

    def is_worth_claiming(self, next_due_at: datetime | None, now: datetime, *, idle: bool) -> bool:
        """Return whether a claim is likely to return rows; `idle`: a thread is free.

        After an empty claim, wait for a free thread: what is left may be runs that were lost in a worker's
        queue, and these are claimed for a free thread only.
        """
        return next_due_at is not None and next_due_at <= now and (idle or not self._empty_claims)

    def seconds(
        self, next_due_at: datetime | None, now: datetime, others: Iterable[float | None], *, idle: bool
    ) -> float:
        """Return the seconds until the next poll; `others` are those until anything else has to be done."""
        pauses = [MAX_POLL_SECONDS, *(pause for pause in others if pause is not None)]
        if next_due_at is not None and next_due_at > now:
            pauses.append((next_due_at - now).total_seconds())
        elif next_due_at is not None and idle:
            # Another worker has it locked. Without a free thread, a finished attempt wakes us up anyway.
            pauses.append(MIN_POLL_SECONDS * 2.0 ** min(self._empty_claims, _MAX_DOUBLINGS))
        return max(MIN_POLL_SECONDS, min(pauses))
