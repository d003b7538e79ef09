"""The loop of the thread and worker engines: one thread speaks to the inbox, a pool calls the handlers.

A turn settles what was finished, plans what came and claims what is due in one transaction. While it
commits, more finishes and more comes: the batches make themselves.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from datetime import datetime, timedelta

from billhook.engines.alarm import Alarm
from billhook.engines.cycle import Cycle
from billhook.engines.pool import Job, Pool
from billhook.engines.reports import Planned, Report
from billhook.errors import BillhookError
from billhook.events import Event, UnknownEvent
from billhook.inbox import Claim, Inbox, Stored

__all__ = ["Loop"]

logger = logging.getLogger("billhook.engines")

SLOW_LOOK_SECONDS = 2.0  # how long a row can lie unseen when its ring was lost
PRUNE_SECONDS = 3600.0  # between two looks for deliveries past their retention
PLAN_LIMIT = 200
WINDOW_FACTOR = 32  # claims held per thread at most, while handlers return faster than the inbox commits


class Loop:
    """Handles what the inbox holds until it is stopped; run it in a thread or be a process with it."""

    def __init__(
        self,
        inbox: Inbox,
        cycle: Cycle,
        *,
        threads: int,
        lease_seconds: float,
        retention_days: float = 30.0,
    ) -> None:
        self._inbox = inbox
        self._cycle = cycle
        self._threads = threads
        self._lease_seconds = lease_seconds
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._alarm = Alarm(inbox)
        self._stopping = threading.Event()
        self._held: dict[tuple[int, int], Job] = {}
        self._unsettled: list[Report] = []
        self._events: dict[tuple[int, str], Event | UnknownEvent] = {}
        self._window = threads
        self._renew_at = 0.0
        self._retention = timedelta(days=retention_days)
        self._prune_at = time.monotonic() + PRUNE_SECONDS
        self._failures = 0
        self._pool = Pool(cycle, threads, self._alarm.ring)

    def wake(self) -> None:
        """There may be something to do; callable from any thread."""
        self._alarm.ring()

    def stop(self) -> None:
        """Claim nothing more; `run` returns when what is running has ended, or its grace has."""
        self._stopping.set()
        self.wake()

    def run(self, grace_seconds: float = 25.0) -> None:
        """Work until `stop`. Storage failures are logged, waited out, and lose nothing."""
        while not self._stopping.is_set():
            self._alarm.sleep(self._guarded_turn())
        self._finish(grace_seconds)

    def _guarded_turn(self) -> float:
        """One turn; the seconds to sleep after it. No error ends the loop: the next turn tries again."""
        try:
            pause = self._turn()
        except Exception as error:
            self._failures += 1
            pause = min(5.0, 0.1 * 2 ** min(self._failures, 6))
            if isinstance(error, BillhookError):
                logger.error("no turn, next try in %.1f s: %s", pause, error)  # noqa: TRY400 - says it all
            else:
                logger.exception("no turn, next try in %.1f s", pause)
            time.sleep(0.1) if self._stopping.is_set() else self._stopping.wait(pause)
            return 0.0
        self._failures = 0
        return pause

    def _turn(self) -> float:
        self._alarm.hush()
        if time.monotonic() >= self._prune_at:
            self._prune()
        self._unsettled += self._pool.reports()
        for job in self._pool.expired():
            self._held.pop((job.claim.run_id, job.claim.token), None)
        room = max(0, self._window - len(self._held)) if not self._stopping.is_set() else 0
        received, next_due_at = self._inbox.waiting(PLAN_LIMIT if room else 0)
        now = self._cycle.clock.now()
        renewing = bool(self._held) and time.monotonic() >= self._renew_at
        due = room > 0 and (bool(received) or (next_due_at is not None and next_due_at <= now))
        if not (self._unsettled or due or renewing):
            return self._until(next_due_at if room else None, now)
        claims, next_due_at = self._write(received, room, now, renewing)
        self._hand_out(claims)
        full = len(self._held) >= self._window
        more = bool(claims) or len(received) == PLAN_LIMIT
        return 0.0 if more and not full else self._until(None if full else next_due_at, now)

    def _prune(self) -> None:
        """A batch of old deliveries goes; the next soon if there are more, else in an hour."""
        gone = self._inbox.prune(self._cycle.clock.now() - self._retention)
        self._prune_at = time.monotonic() + (1.0 if gone else PRUNE_SECONDS)

    def _write(
        self, received: list[Stored], room: int, now: datetime, renewing: bool
    ) -> tuple[list[Claim], datetime | None]:
        """The turn's transaction; what it did is forgotten or announced only once it is committed."""
        planned = self._cycle.plan(received)
        reports = self._unsettled
        done = {(report.outcome.run_id, report.outcome.token) for report in reports}
        leased_until = now + timedelta(seconds=self._lease_seconds)
        with self._inbox.turn(self._owner) as turn:
            settled = turn.settle([report.outcome for report in reports])
            won = turn.plan([one.plan for one in planned], now)
            ours = [lease for lease in self._held if lease not in done]
            renewed = turn.renew(ours, leased_until) if renewing else set()
            idle = max(0, self._threads - len(ours))
            claims = turn.claim(room, now, leased_until, idle=idle) if room else []
            next_due_at = turn.next_due_at()
        self._unsettled = []
        self._adapt(renewing)
        for lease in done:
            self._held.pop(lease, None)
        for lease in renewed:
            self._held[lease].leased_until = leased_until
        self._remember(planned, won)
        self._cycle.announce(reports, settled)
        self._cycle.announce_quarantined(planned, won)
        return claims, next_due_at

    def _adapt(self, renewing: bool) -> None:
        """Hold few claims while handlers are slow, so that other workers get them; many while fast."""
        if renewing:
            self._window = self._threads
            self._renew_at = time.monotonic() + self._lease_seconds / 3
        elif len(self._held) >= self._window:
            self._window = min(self._window * 2, self._threads * WINDOW_FACTOR)

    def _remember(self, planned: list[Planned], won: list[int]) -> None:
        if len(self._events) > 10 * PLAN_LIMIT:  # planned here, claimed elsewhere: let them go
            self._events.clear()
        mine = set(won)
        for one in planned:
            if one.event is not None and one.plan.handlers and one.stored.delivery_id in mine:
                self._events[one.stored.identity] = one.event

    def _hand_out(self, claims: list[Claim]) -> None:
        if claims and not self._held:
            self._renew_at = time.monotonic() + self._lease_seconds / 3
        for claim in claims:
            job = Job(claim, self._events.get(claim.delivery.identity), claim.leased_until)
            self._held[claim.run_id, claim.token] = job
            self._pool.submit(job)
        for claim in claims:
            self._events.pop(claim.delivery.identity, None)

    def _until(self, next_due_at: datetime | None, now: datetime) -> float:
        """Seconds to sleep if nobody rings: to the next due run, renewal or time-out, or the slow look."""
        pause = SLOW_LOOK_SECONDS
        if next_due_at is not None:
            pause = min(pause, max(0.01, (next_due_at - now).total_seconds()))
        if self._held:
            pause = min(pause, max(0.01, self._renew_at - time.monotonic()))
        timeout = self._pool.next_timeout()
        return pause if timeout is None else min(pause, timeout + 0.001)

    def _finish(self, grace_seconds: float) -> None:
        """Give back what was not begun, and wait for the rest as long as the grace lasts."""
        end = time.monotonic() + grace_seconds
        waiting = [(job.claim.run_id, job.claim.token) for job in self._pool.drop_waiting()]
        self._pool.close()
        for lease in waiting:
            self._held.pop(lease, None)
        with suppress(BillhookError), self._inbox.turn(self._owner) as turn:
            turn.release(waiting, self._cycle.clock.now())
        while (self._held or self._unsettled) and time.monotonic() < end:
            self._guarded_turn()
            if self._held:
                self._alarm.sleep(min(0.5, max(0.01, end - time.monotonic())))
        if self._held:
            logger.warning("stopped with %d handlers still running; their leases run out", len(self._held))
