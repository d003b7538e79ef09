"""One delivery from its message to its end: what the task of the celery engine does.

Two transactions a handler: the first plans and claims, the second settles and claims what is next. The
claim decides who calls, so a message may come twice, late or never.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from billhook.engines.cycle import Cycle
from billhook.engines.gate import Gate
from billhook.engines.heartbeat import Heartbeat
from billhook.engines.jobs import Job
from billhook.engines.pool import Pool
from billhook.engines.reports import Planned, Report
from billhook.errors import InboxUnavailable
from billhook.events import Event, UnknownEvent
from billhook.inbox import Claim, Inbox, Outcome, RunState, Turn
from billhook.inbox.express import is_plain

__all__ = ["Errands"]

logger = logging.getLogger("billhook.engines")

PLAN_LIMIT = 100
SETTLE_SECONDS = 300.0
"""How long the end of an attempt is held on to while the inbox cannot be written."""


class Errands:
    """Handles deliveries by their ids, in whatever thread or process it is called."""

    def __init__(
        self, inbox: Inbox, cycle: Cycle, *, lease_seconds: float, ring: Callable[[int], object]
    ) -> None:
        """`ring` is called with the delivery's id for each of its runs that another worker may take."""
        self._inbox = inbox
        self._cycle = cycle
        self._lease = timedelta(seconds=lease_seconds)
        self._ring = ring
        self._gate = Gate(lease_seconds)
        self._alone: set[tuple[int, int]] = set()
        self._heartbeat = Heartbeat(inbox, cycle.clock, lease_seconds=lease_seconds)

    def run(self, delivery_id: int) -> None:
        """Call handlers of one delivery until none is due. Raises InboxUnavailable.

        One is claimed at a time: a handler that hangs does not hold its siblings. One whose last attempt was
        lost with its worker is called last, beside nothing else in this process.
        """
        with self._gate.beside():
            claim, event, sole = self._begin(delivery_id)
            if claim is not None:
                self._join()
            while claim is not None:
                with self._heartbeat.holding(claim):
                    report = self._call(claim, event)
                    claim = None if report is None else self._settle(report, sole)
        while not sole and self._inbox.suspect_due(delivery_id, self._cycle.clock.now()):
            with self._gate.alone():
                self._run_suspect(delivery_id)

    def _run_suspect(self, delivery_id: int) -> None:
        now = self._cycle.clock.now()
        with self._inbox.turn(_owner()) as turn:
            claim = turn.claim_suspect(now, now + self._lease, only=delivery_id)
        if claim is None:
            return
        self._join()
        lease = (claim.run_id, claim.token)
        self._alone.add(lease)
        try:
            with self._heartbeat.holding(claim):
                report = self._call(claim, None)
                if report is not None:
                    self._settle(report, sole=False, more=False)
        finally:
            self._alone.discard(lease)

    def _join(self) -> None:
        """Note of suspects that run here for longer than others wait that they are alone no more."""
        if alone := self._alone.copy():
            with self._inbox.turn(_owner()) as turn:
                turn.join(sorted(alone))

    def _begin(self, delivery_id: int) -> tuple[Claim | None, Event | UnknownEvent | None, bool]:
        """A claim, its event if that was read just now, and whether it is a plain delivery's only run."""
        now = self._cycle.clock.now()
        claim: Claim | None = None
        planned: list[Planned] = []
        with self._inbox.express.look(delivery_id, now) as look:
            if look.stored is not None:
                planned = self._cycle.plan([look.stored])
                if is_plain(planned[0].plan):
                    claim = look.begin(planned[0].plan, _owner(), now, now + self._lease)
        runs = len(planned[0].plan.handlers) if planned else 0
        if claim is not None:
            for _ in range(runs - 1):
                self._ring(delivery_id)
        elif planned or look.due:
            if planned and planned[0].plan.terms:
                self._plan_earlier(delivery_id)
            claim = self._begin_the_general_way(delivery_id, planned)
            runs = 0
        return claim, planned[0].event if planned else None, runs == 1

    def _plan_earlier(self, delivery_id: int) -> None:
        """Where runs take turns, who came first is first, whenever its message comes."""
        while True:
            received = self._inbox.received(PLAN_LIMIT)
            planned = self._cycle.plan(one for one in received if one.delivery_id < delivery_id)
            with self._inbox.turn(_owner()) as turn:
                won = turn.plan([one.plan for one in planned], self._cycle.clock.now())
            self._announce(planned, won, turn)
            for one in planned:
                for _ in one.plan.handlers:
                    self._ring(one.plan.delivery_id)
            if len(planned) < PLAN_LIMIT:
                return

    def _begin_the_general_way(self, delivery_id: int, planned: list[Planned]) -> Claim | None:
        """A claim of a delivery that is not plain, or was read before."""
        now = self._cycle.clock.now()
        with self._inbox.turn(_owner()) as turn:
            won = turn.plan([one.plan for one in planned], now)
            claims = turn.claim(1, now, now + self._lease, only=delivery_id, suspects=False)
        self._announce(planned, won, turn)
        for one in planned:
            for _ in one.plan.handlers[1:]:
                self._ring(delivery_id)
        return claims[0] if claims else None

    def _announce(self, planned: list[Planned], won: list[int], turn: Turn) -> None:
        self._cycle.announce_quarantined(planned, won)
        self._cycle.announce_twins(planned, turn.twins)

    def _call(self, claim: Claim, event: Event | UnknownEvent | None) -> Report | None:
        """The report of an attempt; None when the lease had ended before it began."""
        if self._cycle.timeout_seconds(claim) is None:
            return self._cycle.attempt(claim, event)
        # In a thread of its own, whatever Celery's pool: one that is past its time is left to itself.
        done = threading.Event()
        pool = Pool(self._cycle, 1, done.set)
        pool.submit(Job(claim, event, claim.leased_until))
        try:
            while not (reports := pool.reports()) and not pool.expired():
                pause = pool.next_timeout()
                done.wait(0.05 if pause is None else pause + 0.001)
            return reports[0] if reports else None
        finally:
            pool.close()

    def _settle(self, report: Report, sole: bool, more: bool = True) -> Claim | None:
        """Write how the attempt ended, and claim the delivery's next run, if there may be one."""
        end = time.monotonic() + SETTLE_SECONDS
        while True:
            try:
                settled, claim = self._write(report.outcome, sole, more)
            except InboxUnavailable as error:
                if time.monotonic() > end:
                    raise
                logger.error("run %d is not settled yet: %s", report.outcome.run_id, error)  # noqa: TRY400
                time.sleep(0.5)
            else:
                self._cycle.announce([report], settled)
                return claim

    def _write(self, outcome: Outcome, sole: bool, more: bool) -> tuple[set[tuple[int, int]], Claim | None]:
        if sole and outcome.state is RunState.SUCCEEDED:
            finished = self._inbox.express.finish(outcome)
            return {(outcome.run_id, outcome.token)} if finished else set(), None
        now = self._cycle.clock.now()
        more = more and (not sole or (outcome.due_at is not None and outcome.due_at <= now))
        with self._inbox.turn(_owner()) as turn:
            settled = turn.settle([outcome])
            claims = []
            if more:
                claims = turn.claim(1, now, now + self._lease, outcome.delivery_id, suspects=False)
        for delivery_id in turn.released:
            self._ring(delivery_id)
        return settled, claims[0] if claims else None


def _owner() -> str:
    return f"celery:{socket.gethostname()}:{os.getpid()}"
