"""The loop of the thread and worker engines: one thread speaks to the inbox, a pool calls the handlers.

A turn settles what was finished, plans what came and claims what is due in one transaction. While it
commits, more finishes and more comes: the batches make themselves.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import socket
import time
from collections.abc import Set
from datetime import datetime, timedelta

from billhook.engines.alarm import Alarm
from billhook.engines.cycle import Cycle
from billhook.engines.descriptors import Descriptors
from billhook.engines.holding import Events, Holding, Lease
from billhook.engines.outlook import Outlook
from billhook.engines.pool import Pool
from billhook.engines.registration import Registration
from billhook.engines.reports import Report
from billhook.engines.suspects import Suspects, Way
from billhook.engines.upkeep import Upkeep
from billhook.errors import BillhookError
from billhook.inbox import Claim, Inbox, NextTimes, Stored, Turn

__all__ = ["LEFT_BEHIND_LIMIT", "Loop"]

logger = logging.getLogger("billhook.engines")

PLAN_LIMIT = 200
LEFT_BEHIND_LIMIT = 100
"""Threads with handlers that are past their time and never return; then another process had better go on."""


class Loop:
    """Handles what the inbox holds until it is stopped; run it in a thread or be a process with it."""

    def __init__(
        self,
        inbox: Inbox,
        cycle: Cycle,
        *,
        threads: int,
        lease_seconds: float,
        engine: str = "worker",
        retention_days: float = 30.0,
        key_days: float | None = None,
    ) -> None:
        self._inbox = inbox
        self._cycle = cycle
        self._lease_seconds = lease_seconds
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._alarm = Alarm(inbox)
        self._stopping = False  # no Event: `stop` may be called by a signal that interrupts a wait for it
        self._holding = Holding(threads, lease_seconds)
        self._unsettled: list[Report] = []
        self._events = Events()
        registration = Registration(inbox, self._owner, engine, cycle.count_handlers)
        self._upkeep = Upkeep(
            inbox, retention_days=retention_days, key_days=key_days, registration=registration
        )
        self._failures = 0
        self._outlook = Outlook()
        self._suspects = Suspects(lease_seconds, threads)
        self._joined: Set[Lease] = frozenset()
        self._descriptors = Descriptors()
        self._abandoned = False
        self._exhausted = False
        self._pool = Pool(cycle, threads, self._alarm.ring, hurry=self._alarm.ring)

    def wake(self) -> None:
        """There may be something to do; callable from any thread."""
        self._alarm.ring()

    def stop(self) -> None:
        """Claim nothing more; `run` returns when what is running has ended, or its grace has.

        Callable from any thread and from a signal handler.
        """
        self._stopping = True
        self.wake()

    def run(self, grace_seconds: float = 25.0, *, left_behind_limit: float = math.inf) -> None:
        """Work until `stop`. Storage failures are logged, waited out, and lose nothing.

        Ends by itself when so many threads were left behind, each with a handler that does not come back,
        or when the system has no thread for it: a new process begins without them.
        """
        while not (self._stopping or self.broken or self._pool.exhausted(left_behind_limit)):
            self._sleep(self._guarded_turn())
        if self.broken:
            logger.error("this process has no descriptors left, or a handler closed them: it cannot go on")
        elif not self._stopping:
            self._exhausted = True
            logger.error("too many handlers never returned: this process has no more threads for others")
        self._finish(grace_seconds)

    @property
    def broken(self) -> bool:
        """No handler can do its work in this process any more: it had better be replaced."""
        return self._descriptors.gone or self._exhausted

    def abandon(self) -> None:
        """Touch the inbox no more, whatever is left to be done: it is being closed."""
        self._abandoned = True
        self.stop()

    def _sleep(self, seconds: float) -> None:
        try:
            if not self._abandoned:
                self._alarm.sleep(seconds)
        except OSError as error:  # a handler has closed what it sleeps on
            self._descriptors.note(error)
            self._wait_out(0.1)

    def _guarded_turn(self) -> float:
        """One turn; the seconds to sleep after it. No error ends the loop: the next turn tries again."""
        if self._abandoned:
            return 0.0
        try:
            pause = self._turn()
            if not self._stopping:
                pause = min(pause, self._upkeep.step(self._cycle.clock.now()))
        except Exception as error:
            self._failures += 1
            self._descriptors.note(error)
            self._holding.doubt()
            self._joined = frozenset()
            pause = min(5.0, 0.1 * 2 ** min(self._failures, 6))
            if isinstance(error, BillhookError):
                logger.error("no turn, next try in %.1f s: %s", pause, error)  # noqa: TRY400 - says it all
            else:
                logger.exception("no turn, next try in %.1f s", pause)
            self._wait_out(pause)
            return 0.0
        self._failures = 0
        return pause

    def _wait_out(self, seconds: float) -> None:
        """Only `stop` ends it sooner: a bell that rings and rings must not hurry what fails."""
        end = time.monotonic() + seconds
        time.sleep(0.1)
        while not self._stopping and (left := end - time.monotonic()) > 0:
            time.sleep(min(0.1, left))

    def _turn(self) -> float:
        self._alarm.hush()
        holding = self._holding
        self._take_reports()
        holding.drop(job.lease for job in self._pool.expired())
        if renewing := holding.must_renew():
            holding.begin_renewal()
            # At this pace they would not be begun before the next renewal, or never.
            holding.give_back(self._pool.drop_waiting(keep=holding.pace))
        room = 0 if self._stopping else holding.room
        jobs = holding.jobs.keys() - {
            (report.outcome.run_id, report.outcome.token) for report in self._unsettled
        }
        was_shut = self._suspects.shut(jobs)
        received, times = self._inbox.waiting(PLAN_LIMIT if room and not was_shut else 0)
        now = self._cycle.clock.now()
        idle = holding.idle() > 0
        due = bool(received) or self._outlook.worth_claiming(times.due_at, now, idle=idle)
        way = self._way(jobs, times.suspect_at, now, others_due=due)
        if way is not Way.OTHERS:
            room = int(way is Way.A_SUSPECT and room > 0)
            received = []
            if not self._suspects.running:
                holding.give_back(self._pool.drop_waiting())
        due = room > 0 and (due or way is Way.A_SUSPECT)
        if was_shut and way is Way.OTHERS:
            self.wake()  # what came meanwhile was not looked for
        if not (self._unsettled or due or renewing or holding.unwanted or holding.doubtful):
            return self._until(times if room else NextTimes(None, None), now)
        claimed, times = self._write(received, room, now, renewing, way)
        if room:
            self._outlook.claimed(claimed, times.due_at, now)
        more = claimed > 0 or len(received) == PLAN_LIMIT
        return 0.0 if more and not holding.full else self._until(times, now)

    def _take_reports(self) -> None:
        for report in self._pool.reports():
            self._descriptors.note(report.failed.exception if report.failed else None)
            self._unsettled.append(report)

    def _way(self, jobs: set[Lease], suspect_at: datetime | None, now: datetime, *, others_due: bool) -> Way:
        """What may be claimed: others, a suspect alone, or nothing for now."""
        if self._stopping:
            return Way.OTHERS
        suspect_due = suspect_at is not None and suspect_at <= now
        return self._suspects.way(jobs, suspect_due=suspect_due, others_due=others_due)

    def _write(
        self, received: list[Stored], room: int, now: datetime, renewing: bool, way: Way
    ) -> tuple[int, NextTimes]:
        """The turn's transaction; what it did is forgotten or announced only once it is committed.

        Returns how many runs it claimed, and when the next ones are due.
        """
        planned = self._cycle.plan(received)
        plans = [one.plan for one in planned]
        reports = self._unsettled
        outcomes = [report.outcome for report in reports]
        done = {outcome.lease for outcome in outcomes}
        holding, unwanted, looking = self._holding, self._holding.unwanted, self._holding.doubtful
        ours = [lease for lease in holding.jobs if lease not in done]
        leased_until = now + timedelta(seconds=self._lease_seconds)
        with self._inbox.turn(self._owner) as turn:
            turn.lock(outcomes, plans)
            settled = turn.settle(outcomes)
            won = turn.plan(plans, now)
            turn.release(unwanted, now)
            if looking:
                turn.release_unknown(list(holding.jobs), now)
            renewed = turn.renew(ours, leased_until) if renewing else set()
            claims = self._claim(turn, room, now, leased_until, way, done) if room else []
            times = turn.next_times()
        self._unsettled, holding.unwanted = [], []
        if looking:
            holding.looked()
        if renewing:
            holding.renewed(renewed, leased_until)
        else:
            holding.grow()
        holding.drop(done)
        if way is Way.A_SUSPECT and room:
            self._suspects.began((claims[0].run_id, claims[0].token) if claims else None)
        self._events.remember(planned, won)
        for job in self._events.jobs(claims):
            holding.take(job)
            self._pool.submit(job)
        if unwanted or len(turn.released) > len(claims):
            self._inbox.bell.ring()  # more than we take ourselves is due now, and others may be asleep
        self._cycle.announce(reports, settled)
        self._cycle.announce_quarantined(planned, won)
        self._cycle.announce_twins(planned, turn.twins)
        return len(claims), times

    def _claim(
        self,
        turn: Turn,
        room: int,
        now: datetime,
        leased_until: datetime,
        way: Way,
        done: set[Lease],
    ) -> list[Claim]:
        if way is Way.A_SUSPECT:
            suspect = turn.claim_suspect(now, leased_until)
            claims = [] if suspect is None else [suspect]
        else:
            spread = timedelta(seconds=self._lease_seconds / 6)
            idle = self._holding.idle(done)
            claims = turn.claim(room, now, leased_until, idle=idle, suspects=False, spread=spread)
        hanging = self._suspects.hanging - done
        if claims and not hanging <= self._joined:
            turn.join(sorted(hanging))
            self._joined = hanging
        return claims

    def _until(self, times: NextTimes, now: datetime) -> float:
        """Seconds to sleep if nobody rings: to the next due run, renewal or time-out, or the slow look."""
        others = [self._holding.renewal_in(), self._pool.next_timeout(), self._suspects.pause()]
        if times.suspect_at is not None and times.suspect_at > now:
            others.append((times.suspect_at - now).total_seconds())
        due_at = (
            None if self._holding.full or self._suspects.shut(self._holding.jobs.keys()) else times.due_at
        )
        return self._outlook.pause(due_at, now, others, idle=self._holding.idle() > 0)

    def _finish(self, grace_seconds: float) -> None:
        """Give back what was not begun, and wait for the rest as long as the grace lasts."""
        end = time.monotonic() + grace_seconds
        self._stopping = True
        self._holding.give_back(self._pool.drop_waiting())
        self._pool.close()
        pause = self._guarded_turn()
        while self._holding.jobs or self._holding.unwanted or self._unsettled:
            left = end - time.monotonic()
            if left <= 0:
                break
            self._sleep(min(0.5, pause, left))
            pause = self._guarded_turn()
        if self._holding.jobs and not self._abandoned:
            logger.warning(
                "stopped with %d handlers still running; they are called again", len(self._holding.jobs)
            )
            self._cut_off()
        if not (self._abandoned or self._failures):  # an inbox that is away holds up no end
            self._upkeep.end()

    def _cut_off(self) -> None:
        """Handlers that outlast the grace: no suspects, for we end them; due when this process is gone."""
        now = self._cycle.clock.now()
        due_at = now + timedelta(seconds=self._lease_seconds)
        outcomes = [self._cycle.cut_off(job.claim, due_at) for job in self._holding.jobs.values()]
        try:
            with self._inbox.turn(self._owner) as turn:
                turn.settle(outcomes)
        except BillhookError as error:
            logger.error("their leases run out: %s", error)  # noqa: TRY400 - says it all
