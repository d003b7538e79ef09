"""The real inbox, dispatcher and workers, driven one step at a time beside the rules.

A step is a name and some numbers, chosen at random with regard to what there is; so a history is a list of
steps, which can be shortened and repeated. What an engine may choose is read from the rows after its poll,
and the rules say whether it was allowed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from billhook import Discard, Retry, Source
from billhook.clock import FrozenClock
from billhook.engines.handler_pool import ClaimedRun
from billhook.events import EVENT_TYPES
from billhook.extension import get_state
from billhook.inbox import Inbox, Lease, NewDelivery
from billhook.inbox.storing.ingest import ingest
from model import comparison, duties
from model.catalogue import PROCESS_WAITS, catalogue, registered
from model.comparison import Stored, StoredRun
from model.meetings import Meetings
from model.operator_rules import InboxRules
from model.records import Claim, Delivery, Handler, Process, Result, Run, Shared
from model.rules import INTERRUPTED
from model.sender import Sender, fields_of
from model.stepped import Monotonic, SteppedWorker, Storage
from support.apps import make_app
from support.inbox_view import NOON, place_of
from support.signing import SECRET

LEASE = 30.0
SEEN_EVERY = timedelta(seconds=25)
THREADS = 2
SPREAD = timedelta(seconds=LEASE / 6)
FIGURES_EVERY = 20
SETTLING_ROUNDS = 200
PACED_LEFT = 4


class Difference(AssertionError):
    """The inbox does not do what the rules say."""


@dataclass(eq=False)
class Running:
    """A worker that runs, of an app on the inbox: mostly the only one of its process."""

    app: Any
    handlers: Sequence[Handler]
    worker: SteppedWorker
    storage: Storage
    process: Process
    release: int
    claims: dict[Lease, Claim] = field(default_factory=dict)
    results: dict[Lease, Result] = field(default_factory=dict)

    @property
    def inbox(self) -> Any:
        return get_state(self.app).inbox


class Driver(Meetings):
    """One history on one inbox."""

    def __init__(self, folder: Path, url: str | None, seed: int, monotonic: Monotonic) -> None:
        self.folder, self.monotonic, self.seed = folder, monotonic, seed
        self.config: dict[str, Any] = {} if url is None else {"BILLHOOK_INBOX_URL": url}
        where = place_of(url or f"sqlite:///{folder / 'billhook.db'}")
        self.clock, self.lease_seconds = FrozenClock(NOON), LEASE
        self.rules = InboxRules()
        self.sets = catalogue(random.Random(seed))
        self.offsets: dict[tuple[int, str], int] = {}
        self.outcome: tuple[str, float | None] = ("ok", None)
        self.calls: list[tuple[Any, ...]] = []
        self.expected_calls: list[tuple[Any, ...]] = []
        self.running: list[Running] = []
        self.closing: list[Any] = []
        self.sender, self.checks = Sender(self.clock), 0
        self.was_set = False
        self.scene: list[Any] = []
        """The next steps, where some in a row were chosen."""
        self.release = 0
        self.stored = Stored({}, {}, {})
        self.after: Stored | None = None
        """What a poll left, read already."""
        self.start(0)
        self.start(0)
        # Of receivers and operators.
        self.front = Inbox(url or f"sqlite:///{where}", deadline_seconds=60, known_types=EVENT_TYPES)
        self.reading = ExitStack()
        self.rows = self.reading.enter_context(comparison.reader(where))

    # Processes

    def _app(self, which: int) -> Any:
        handlers = registered(self.sets[which % len(self.sets)], self.handle)
        return make_app(
            self.folder,
            handlers=[handlers],
            sources=[Source("eu", secrets=[SECRET])],
            clock=self.clock,
            BILLHOOK_ENGINE="worker",
            BILLHOOK_LEASE_SECONDS=LEASE,
            BILLHOOK_RETRY_SCHEDULE_SECONDS=list(PROCESS_WAITS),
            **self.config,
        )

    def start(self, which: int, beside: Running | None = None) -> None:
        """Start a process with a worker of a release; or one more worker, `beside` that of a process."""
        app = self._app(which) if beside is None else beside.app
        state = get_state(app)
        worker = SteppedWorker(
            state.inbox, state.dispatcher, self.monotonic, threads=THREADS, lease_seconds=LEASE
        )
        handlers = self.sets[which % len(self.sets)]
        shared = Shared() if beside is None else beside.process.shared
        process = Process(worker._owner, handlers, PROCESS_WAITS, shared=shared)
        shared.workers.append(process)
        self.rules.processes.append(process)
        storage = Storage(state.inbox) if beside is None else beside.storage
        self.running.append(Running(app, handlers, worker, storage, process, which))

    def start_beside(self, number: int) -> None:
        """Start a second worker in a process."""
        alone = [each for each in self.running if len(each.process.shared.workers) == 1]
        if alone:
            one = alone[number % len(alone)]
            self.start(one.release, one)

    def kill(self, one: Running) -> None:
        """End a process at once: what its workers held is held until the leases end."""
        for each in [each for each in self.running if each.app is one.app]:
            self._end_worker(each)

    def _end_worker(self, one: Running) -> None:
        self.running.remove(one)
        self.after = None
        one.process.holds.clear()
        one.process.shared.workers.remove(one.process)
        if not one.process.shared.workers:
            self.closing.append(one.app)
        one.worker.close()

    def close(self) -> None:
        while self.running:
            self.kill(self.running[0])
        for app in self.closing:
            app.extensions["billhook"].close()
        self.front.close()
        self.reading.close()

    def handle(self, event: object, delivery: Any) -> None:
        """Handle a delivery, in place of every handler: note the call, and end as the step says."""
        self.calls.append((delivery.id, delivery.handler, delivery.attempt, delivery.replays))
        kind, after = self.outcome
        if kind == "discard":
            raise Discard("pointless")
        if kind == "retry":
            raise Retry(after_seconds=after)
        if kind == "put_off":
            raise Retry(at=self.clock.now() + timedelta(seconds=after or 0))
        if kind == "fail":
            raise ValueError("not today")

    # Steps of senders

    def put(self, number: int, kind: int, more: int) -> None:
        """Store a delivery: mostly a new one, and sometimes a copy or a contradiction of a stored one."""
        new = self.sender.deliver(number, kind, more)
        self._stored(new, self.front.put(new))

    def put_batch(self, number: int, kind: int, more: int) -> None:
        """Store several in one transaction, in the order of their arrival."""
        batch = [
            self.sender.deliver(number + 7 * each, kind + each, more + each) for each in range(2 + more % 3)
        ]
        receipts = ingest(self.front.database, batch)
        for new, receipt in zip(batch, receipts, strict=True):
            self._stored(new, receipt)

    def _stored(self, new: NewDelivery, receipt: Any) -> None:
        fields = fields_of(new)
        delivery = Delivery(
            *(receipt.delivery_id, new.source, new.key, new.event_type, new.known, new.body, fields),
            *(new.received_at, new.signed_at),
        )
        status = self.rules.put(delivery)
        if status != receipt.status:
            raise Difference(f"put of {new.key}: the rules: {status}, the inbox: {receipt.status}")

    # Steps of time

    def tick(self, seconds: float) -> None:
        self.clock.advance(seconds=seconds)
        self.monotonic.seconds += seconds

    def set_clock(self, seconds: float) -> None:
        """Set the clock; the time that passes stays the same."""
        self.was_set = True
        self.clock.advance(seconds=seconds)

    # Steps of workers

    def poll(self, number: int, fault: str | None = None, *, dies: bool = False, again: int = 2) -> None:
        """Let a worker poll; its transaction may fail, or the process die just before or after its commit."""
        if not self.running:
            return
        one = self.running[number % len(self.running)]
        self._register(one)
        settling = self._collected(one)
        one.storage.fault, one.storage.committed = fault, False
        error = one.worker.poll()
        one.storage.fault = None
        if (error is None) and fault is not None and one.storage.committed and not dies:
            raise Difference("a fault of the storage was not noticed")
        number_of_claims = self._follow(one, settling, known=error is None)
        if error is None and not dies:
            if self._left_by_poll(one, number_of_claims) and again:
                self.poll(number, again=again - 1)  # it may have ended the turn of suspects, or of others
            elif left := self._left_by_poll(one, number_of_claims):
                raise Difference(f"a poll of {one.process.name} left: {'; '.join(left)}")
        if dies:
            self.kill(one)

    def stop(self, number: int) -> None:
        """Stop a worker in order, while handlers run that outlast its grace."""
        if len(self.running) < 2:
            return
        self._stop(self.running[number % len(self.running)])

    def _stop(self, one: Running) -> None:
        settling = self._collected(one)
        one.worker.stop_in_order()
        if one.process.seen is None:
            self.rules.register(one.process, self.clock.now())  # it is polled once, to stop
        one.process.stopped = True
        self._follow(one, settling, known=True, stopped=True)
        self._end_worker(one)

    def _collected(self, one: Running) -> list[Any]:
        """Return what the poll will settle. Of a run whose lease ended in the queue it holds nothing."""
        for run in one.worker.pool._expired:
            one.process.holds.pop(one.claims[run.lease].id, None)
        return [*one.worker._unsettled, *one.worker.pool._finished]

    def _register(self, one: Running) -> None:
        """Write that a process is alive, as it does twice and more before it counts as dead."""
        now, seen = self.clock.now(), one.process.seen
        if seen is None or not timedelta(0) <= now - seen < SEEN_EVERY:
            one.worker._registration.write(now)
            self.rules.register(one.process, now)

    def end(self, number: int, outcome: str, after: float | None) -> None:
        """End an attempt: call its handler, which returns or raises."""
        one, attempts = self._executing(number)
        if one is not None:
            self._end(one, attempts[number % len(attempts)], outcome, after)

    def end_late(self, number: int, outcome: str, after: float | None) -> None:
        """End an attempt whose lease has ended, if there is one."""
        now = self.clock.now()
        for one in self.running:
            late = [each for each in one.worker.pool.executing if each.leased_until <= now]
            if late:
                self._end(one, late[number % len(late)], outcome, after)
                return

    def finish(self, number: int) -> None:
        """Let all that a worker has begun succeed."""
        if self.running:
            self._finish_all(number)
            self.poll(number)

    def _executing(self, number: int) -> tuple[Running | None, list[ClaimedRun]]:
        busy = [one for one in self.running if one.worker.pool.executing]
        if not busy:
            return None, []
        one = busy[number % len(busy)]
        return one, one.worker.pool.executing

    def _end(self, one: Running, attempt: ClaimedRun, outcome: str, after: float | None) -> None:
        self.outcome = (outcome, after)
        claim = one.claims[attempt.lease]
        errors = {"fail": "ValueError: not today"}
        if self.rules.calls(one.process, claim):
            self.expected_calls.append((*claim.run.id, claim.attempt, claim.replays))
        result = self.rules.end(one.process, claim, errors.get(outcome, outcome), self.clock.now(), after)
        texts = {"discard": "Discard: pointless", **dict.fromkeys(("retry", "put_off"), f"Retry: {Retry()}")}
        result = replace(result, error=texts.get(result.error or "", result.error))
        one.results[attempt.lease] = result
        one.worker.pool.end(attempt)
        if self.calls != self.expected_calls:
            raise Difference(f"calls: the rules: {self.expected_calls[-2:]}, called: {self.calls[-2:]}")

    # What a poll has chosen

    def _follow(self, one: Running, settling: Sequence[Any], *, known: bool, stopped: bool = False) -> int:
        """Give the rules what the poll chose, in the order in which a transaction does these things.

        Returns how many runs it claimed.
        """
        now, number = self.clock.now(), 0
        self.after = after = comparison.read(self.rows)
        if after != self.stored:
            results = [one.results[each.run_result.lease] for each in settling]
            self.rules.settle(one.process, results)
            planned = [
                delivery
                for delivery in self.rules.deliveries.values()
                if delivery.state == "received" and after.deliveries[delivery.id][5] != "received"
            ]
            self.rules.plan(one.process, planned, now)
            self._note_offsets(after)
            if stopped:
                self._interrupt(one, after, now)
            number = self._follow_runs(one, after, now, known=known)
        held = one.worker._leases.runs
        one.process.holds = {each.id: each for lease, each in one.claims.items() if lease in held}
        return number

    def _left_by_poll(self, one: Running, number_of_claims: int) -> list[str]:
        """Return what a poll has left though it must do that."""
        process, now = one.process, self.clock.now()
        left = duties.left_by(self.rules, process, now, timedelta(seconds=LEASE), was_set=self.was_set)
        started = len(one.worker.pool.executing)
        left += [f"{each.lease} in its queue" for each in one.worker.pool.waiting if process.held]
        if not number_of_claims and started < THREADS:
            left += duties.unclaimed(self.rules, process, now)
        return left

    def _interrupt(self, one: Running, after: Stored, now: datetime) -> None:
        """Note what the stop released before it interrupted the rest."""
        interrupted = []
        for claim in one.process.holds.values():
            run = claim.run
            row = after.runs.get(run.id)
            if (
                row is not None
                and run.token == claim.token
                and row.failures[len(run.failures) :] == (INTERRUPTED,)
            ):
                interrupted.append(self.rules.interrupt(claim, now, timedelta(seconds=LEASE)))
        self.rules.settle(one.process, interrupted, limited=False)

    def _note_offsets(self, after: Stored) -> None:
        """The first token of a run is random; the rules count from 0, and from 1 if it is claimed at once."""
        for key, row in after.runs.items():
            if key not in self.offsets and key in self.rules.runs:
                self.offsets[key] = row.token - int(row.state == "running")
        for key in self.offsets.keys() - after.runs.keys():
            del self.offsets[key]

    def _follow_runs(self, one: Running, after: Stored, now: datetime, *, known: bool) -> int:
        until = now + timedelta(seconds=LEASE)
        claimed: list[tuple[StoredRun, Run]] = []
        for run in list(self.rules.runs.values()):
            row = after.runs.get(run.id)
            if row is None:
                continue
            risen = row.token - self.offsets[run.id] > run.token
            if run.state == "running":
                # It may claim again what it releases: its queue was too long, or a commit's answer lost.
                its_own = risen and run.owner == one.process.name
                uncalled = row.attempts == run.attempts - 1 and not row.queued
                if its_own or (row.state == "due" and uncalled):
                    self._release(one, run, row.id, now)
                elif row.state == "due" or risen:
                    due = now if risen else _moment(row.due)
                    self.rules.lose(one.process, run, now, due, SPREAD)
                elif run.owner == one.process.name and row.due == comparison.text(until):
                    self.rules.renew(one.process, run, until)
            if risen and row.state == "running":
                claimed.append((row, run))
        for row, run in claimed:
            lease = timedelta(seconds=LEASE)
            since = self.monotonic.seconds
            claim = self.rules.claim(one.process, run, now, lease, since, queued=row.queued, known=known)
            one.claims[Lease(row.id, row.token)] = claim
        if sum(not row.queued for row, _ in claimed) > THREADS:
            raise Difference(f"more runs start than there are threads: {len(claimed)}")
        return len(claimed)

    def _release(self, one: Running, run: Run, run_id: int, now: datetime) -> None:
        lease = Lease(run_id, run.token + self.offsets[run.id])
        if any(each.lease == lease for each in one.worker.pool.executing):
            raise Difference(f"released though its handler runs: {run.id}")
        self.rules.release(one.process, run, now)

    # Steps of deployments

    def restart(self, number: int) -> None:
        """Kill a process, and start one with the same handlers."""
        release = self.release
        if len(self.running) >= 2:
            one = self.running[number % len(self.running)]
            release = one.release
            self.kill(one)
        self.start(release)

    def roll(self, number: int, which: int) -> None:
        """Replace a process by one of another release, while the others go on; some do not stop in order."""
        if len(self.running) >= 2:
            one = self.running[number % len(self.running)]
            (self.kill if which % 5 == 0 else self._stop)(one)
        self.release = which
        self.start(which)

    def deploy(self, which: int) -> None:
        """Stop all processes, and start some of another release: with other handlers, names and options."""
        while self.running:
            self._stop(self.running[0])
        while any(each.is_alive(self.clock.now()) for each in self.rules.processes):
            self.tick(61.0)  # the list of one that was killed may be the newest
        self.release = which
        self.start(which)
        self.start(which)

    def settle_down(self) -> None:
        """End the history: with all handlers resumed and succeeding, everything is handled."""
        if not self.running:
            self.start(self.release)
        # One of these starts each time: what many waited for would be seen with a few.
        paced = {name for each in self.sets for handler in each if handler.rate for name in handler.names}
        waiting = [
            run.delivery.id for run in self.rules.runs.values() if run.unfinished and run.name in paced
        ]
        self.discard_these(sorted({*waiting})[:-PACED_LEFT])
        for _ in range(SETTLING_ROUNDS):
            if not any(each.state in ("received", "planned") for each in self.rules.deliveries.values()):
                break
            self.resume_all()
            for number in range(len(self.running)):
                self.unhold(number)
            while sum(self._finish_all(number) for number in range(len(self.running))):
                pass
            self.check()
            self.tick(duties.seconds_to_last(self.rules, self.clock.now()))
        self.checks = FIGURES_EVERY * (self.checks + 1) - 1
        self.check()
        for delivery in self.rules.deliveries.values():
            if delivery.state in ("received", "planned"):
                raise Difference(f"delivery {delivery.id} is never handled")

    def _finish_all(self, number: int) -> bool:
        """Poll, and let all that is begun succeed; return whether there was anything."""
        self.poll(number)
        one = self.running[number % len(self.running)]
        begun = [*one.worker.pool.executing]
        while one.worker.pool.executing:
            self._end(one, one.worker.pool.executing[0], "ok", None)
        return bool(begun)

    # The comparison

    def check(self) -> None:
        """Compare all rows. Raises Difference."""
        self.stored, self.after = self.after or comparison.read(self.rows), None
        self._note_offsets(self.stored)
        lines = comparison.differences(self.rules, self.stored, self.offsets)
        self.checks += 1
        if self.checks % FIGURES_EVERY == 0:
            lines += comparison.figures(
                self.rules, self.front, self.clock.now(), self.seed + self.checks // FIGURES_EVERY
            )
        if lines:
            raise Difference("\n".join(lines))


def _moment(stored: str) -> datetime:
    return datetime.strptime(f"{stored}+0000", "%Y-%m-%d %H:%M:%S.%f%z")
