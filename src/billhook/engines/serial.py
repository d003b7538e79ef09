"""The serial worker: executes due runs one at a time for the thread that calls it, until none is due."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Set
from datetime import datetime

from billhook.basics.type_names import is_reading
from billhook.engines.cycle import Cycle, PollPlan
from billhook.engines.dispatcher import Dispatcher
from billhook.engines.handler_pool import HandlerPool
from billhook.errors import BillhookError
from billhook.inbox import Claim, Inbox, Lease, NextTimes, RunPlan
from billhook.logs import fields

logger = logging.getLogger("billhook.engines")

RETRY_SECONDS = 0.5
MAX_WAIT_SECONDS = 1.0
"""How long it waits for a handler before it looks whether the handler has a thread."""


class SerialWorker(Cycle):
    """For the inline engine and for Celery's task. Used by one thread at a time.

    After an error it may be used again only if it holds nothing (`held`): other runs become due when their
    leases end.
    """

    def __init__(
        self,
        inbox: Inbox,
        dispatcher: Dispatcher,
        *,
        lease_seconds: float,
        announce: Callable[[Iterable[int]], None],
        settle_seconds: float,
        pool: type[HandlerPool] = HandlerPool,
        of_worker: bool = True,
    ) -> None:
        """`announce` is called with a delivery's id once for each run of it that another worker may take.

        For `settle_seconds` a result is kept and tried again while the inbox cannot be written: the handler
        has had its effect. `of_worker`: a process beside this one registers it as a worker.
        """
        self._woken = threading.Event()
        super().__init__(
            inbox, dispatcher, threads=1, lease_seconds=lease_seconds, wake=self._woken.set, pool=pool
        )
        self._announce_due = announce
        self._settle_seconds = settle_seconds
        self._of_worker = of_worker
        self._only: int | None = None
        self._is_only_run = self._is_suspect = False
        self._is_full = False
        """Whether more deliveries may wait than the last poll that read them has read."""
        self._error: BillhookError | None = None
        self._give_up_at = math.inf
        self.attempts = 0
        self.suspect_due = False
        """Whether a suspect was due that `handle` has left."""

    def held(self) -> list[Lease]:
        """Return the leases that it holds now; callable from any thread."""
        return list(self._leases.runs)

    def handle(
        self,
        only: int | None = None,
        *,
        suspect: bool = False,
        with_suspects: bool = False,
        beside: Callable[[], Set[Lease]] = frozenset,
    ) -> None:
        """Execute due runs, of one delivery if `only` names it, until none is due. Raises InboxUnavailable.

        With `suspect` it executes a suspect alone, and ordinary runs without. `beside` returns the suspects
        that are still running in this process.
        """
        self._only, self._is_suspect = only, suspect
        now = self._dispatcher.clock.now()
        if self._lists.require(now, is_worker=self._of_worker):
            self._lists.look(now)
        while True:
            self._woken.clear()
            renewing = self._collect()
            self._retry_unstorable()
            if self._leases.runs and not (self._unsettled or renewing):
                self._wait()
                continue
            try:
                poll = self._plan_poll(only)
                if poll is None:
                    return
                poll.renewing, poll.suspect, poll.with_suspects = renewing, suspect, with_suspects
                poll.not_alone = beside()
                claims, next_times = self._write(poll)
            except BillhookError as error:
                self._recover(error)
                continue
            if not self._unstorable:
                self._give_up_at = math.inf
            self.attempts += sum(not is_reading(claim.handler) for claim in claims)
            self._note_suspect(next_times, poll.now)
            more = claims or self._leases.runs or self._woken.is_set() or self._lists.wants_look
            if not more and (not poll.full or self._skipping):
                return

    def _write_list(self) -> None:
        self._lists.require(self._dispatcher.clock.now(), is_worker=self._of_worker)

    def _plan_poll(self, only: int | None) -> PollPlan | None:
        """Decide what to write; read the inbox if no run is under way. None if there is nothing to do."""
        now = self._dispatcher.clock.now()
        poll = PollPlan(now, now + self._lease_time, None, [], capacity=0, renewing=False, only=only)
        if self._leases.runs:
            # Of a new delivery with one run nothing more is due, unless it is to be tried again at once, or
            # was read: that makes the runs of its handlers.
            due_again = any(
                end.planned is not None or (end.run_result.due_at or poll.leased_until) <= now
                for end in self._unsettled
            )
            poll.full, poll.reads_next = self._is_full, due_again or not self._is_only_run
            poll.capacity = int(poll.reads_next and len(self._leases.runs) == len(self._unsettled))
            return poll
        poll.capacity = 1
        limit = self._pacing.rows
        poll.new_deliveries, times, poll.full = self._read(limit, only)
        poll.next_times = times
        self._is_only_run = only is not None and bool(poll.new_deliveries)
        if only is not None and any(map(self._dispatcher.has_options, poll.new_deliveries)):
            # Order keys go by the order of receipt, and messages come in any order.
            received = self._inbox.received(limit, self._turns, self._lists.types)
            poll.new_deliveries = [stored for stored in received if stored.delivery_id <= only]
            # Until it is planned itself: those before it in its order are planned then too.
            ids = {stored.delivery_id for stored in poll.new_deliveries}
            poll.full = bool(ids) and only not in ids
        self._is_full = poll.full
        self._pacing.record_read(poll.new_deliveries)
        self._note_suspect(times, now)
        moments = times.due_at, times.suspect_at
        due = any(at is not None and at <= now for at in moments)
        writing = poll.new_deliveries or self._leases.to_release
        return poll if writing or due or time.monotonic() >= self._leases.orphan_check_at else None

    def _note_suspect(self, next_times: NextTimes, now: datetime) -> None:
        self.suspect_due = next_times.suspect_at is not None and next_times.suspect_at <= now

    def _announce(self, released: list[int], planned: list[RunPlan], claims: list[Claim]) -> None:
        if released:  # a claim that released runs may have left others
            self._woken.set()
        due = Counter(released)
        for plan in planned:
            due[plan.delivery_id] += len(plan.handlers)
        if self._only is not None and not self._is_suspect:
            due[self._only] -= 1  # this worker's own
        others = list(due.elements())
        if others:
            self._is_only_run = False
        self._announce_due(others)

    def _wait(self) -> None:
        """Wait until the handler has returned, or something else has to be done."""
        pauses = [self._leases.seconds_to_renewal(), self._handlers.seconds_to_timeout(), MAX_WAIT_SECONDS]
        self._woken.wait(min(pause for pause in pauses if pause is not None))
        if self._unstorable and self._error is not None and time.monotonic() > self._give_up_at:
            raise self._error

    def _recover(self, error: BillhookError) -> None:
        """Keep what must not be lost after a failed transaction; raise the error if there is nothing."""
        self._failed()
        self._error, now = error, time.monotonic()
        self._give_up_at = min(self._give_up_at, now + self._settle_seconds)
        if not self._leases.runs or (self._unsettled and now > self._give_up_at):
            raise error
        text = "could not store the results of %d runs, or that they still run; retrying: %s"
        count = len(self._leases.runs)
        logger.error(text, count, error, extra=fields(cause=error, count=count))
        self._settle_one_by_one()
        time.sleep(RETRY_SECONDS)
