"""The real inbox, dispatcher and workers, driven one step at a time beside the rules.

A step is a name and some numbers, chosen at random with regard to what there is; so a history is a list of
steps, which can be shortened and repeated. What an engine may choose is read from the rows after its poll,
and the rules say whether it was allowed.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from billhook import Discard, Retry, effects
from billhook.clock import FrozenClock
from billhook.engines.handler_pool import ClaimedRun
from billhook.events import EVENT_TYPES
from billhook.inbox import Inbox, Lease, NewDelivery
from billhook.inbox.storing.ingest import ingest
from model import comparison, duties, status_shown
from model.attempts import (
    INTERRUPTED,
    KILLED,
    MISSING,
    READ,
    UNREADABLE,
    effect_of,
    end_attempt,
    end_reading,
    interrupt,
)
from model.catalogue import catalogue
from model.comparison import Stored, StoredRun
from model.issue_rules import Issues
from model.operator_rules import InboxRules
from model.own_types import classes_that
from model.processes import LEASE, THREADS, Processes, Running
from model.records import Delivery, Result, Run
from model.sender import KNOWN, Sender, fields_of
from model.stepped import Monotonic
from support.inbox_view import NOON, place_of

SEEN_EVERY = timedelta(seconds=25)
SPREAD = timedelta(seconds=LEASE / 6)
FIGURES_EVERY = 20
SETTLING_ROUNDS = 200
PACED_LEFT = 4


class Difference(AssertionError):
    """The inbox does not do what the rules say."""


class Driver(Processes):
    """One history on one inbox."""

    def __init__(self, folder: Path, url: str | None, seed: int, monotonic: Monotonic) -> None:
        self.folder, self.monotonic, self.seed = folder, monotonic, seed
        self.config: dict[str, Any] = {} if url is None else {"BILLHOOK_INBOX_URL": url}
        where = place_of(url or f"sqlite:///{folder / 'billhook.db'}")
        self.clock, self.lease_seconds = FrozenClock(NOON), LEASE
        self.rules = InboxRules()
        self.issues: Issues = {}
        self.sets = catalogue(random.Random(seed))
        self.offsets: dict[tuple[int, str], int] = {}
        self.outcome: tuple[str, float | None] = ("ok", None)
        self.calls: list[tuple[Any, ...]] = []
        self.expected_calls: list[tuple[Any, ...]] = []
        self.effects: set[tuple[object, ...]] = set()
        """Which handlers have had their effect: of which delivery and replay."""
        self.orphans: set[tuple[int, str, int]] = set()
        """The claims of which no process knows, as the answer of their commit was lost."""
        self.users = sqlite3.connect(":memory:")
        effects.create_all(self.users)
        self.running: list[Running] = []
        self.closing: list[Any] = []
        self.sender, self.checks = Sender(self.clock), 0
        self.was_set = False
        self.alone: tuple[Running, float] | None = None
        """The worker that alone has polled lately, and since when, by the clock that is never set."""
        self.has_looked = False
        self.more = random.Random(f"more of {seed}")
        """What chooses the steps that were added later, so that a seed has the others as it had them."""
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

    def close(self) -> None:
        while self.running:
            self.kill(self.running[0])
        for app in self.closing:
            app.extensions["billhook"].close()
        self.front.close()
        self.users.close()
        self.reading.close()

    def handle(self, event: object, delivery: Any) -> None:
        """Handle a delivery, in place of every handler: note the call, and end as the step says.

        Its effect is committed if it returns, and rolled back if it raises.
        """
        call = (delivery.id, delivery.handler, delivery.attempt, delivery.replays)
        with self.users:
            self.calls.append((*call, delivery.once(self.users)))
            self._raise(*self.outcome)

    def _raise(self, kind: str, after: float | None) -> None:
        if kind == "discard":
            raise Discard("pointless")
        if kind == "retry":
            raise Retry(after_seconds=after)
        if kind == "put_off":
            raise Retry(at=self.clock.now() + timedelta(seconds=after or 0))
        if kind == "fail":
            raise ValueError("not today")

    def _raise_as_class(self) -> None:
        """Raise what a class of an own type raises: for good, or what may pass."""
        errors = {"fail": ValueError("wrong"), "discard": RuntimeError("broken"), "retry": MemoryError()}
        if self.outcome[0] in errors:
            raise errors[self.outcome[0]]

    # Steps of senders

    def put(self, number: int, kind: int, more: int) -> None:
        """Store a delivery: mostly a new one, and sometimes a copy or a contradiction of a stored one."""
        new = self.sender.deliver(number, kind, more)
        self._stored(new, self.front.put(new))

    def put_own(self, number: int, kind: int, more: int) -> None:
        """Store a delivery of a type of the user's own, or of one that has no class yet."""
        new = self.sender.deliver_own(number, kind, more)
        self._stored(new, self.front.put(new))

    def put_again(self, number: int, kind: int, more: int) -> None:
        """Store a delivery with the key of the last one with its type in the body, which it contradicts."""
        with_it = [each for each in self.rules.deliveries.values() if each.type_in_body is not None]
        if with_it:
            new = self.sender.deliver(number, kind, more)
            new = replace(new, key=with_it[-1].key, source=with_it[-1].source)
            self._stored(new, self.front.put(new))

    def put_in_body(self, number: int, kind: int, more: int) -> None:
        """Store a delivery with its type in the body."""
        new, named = self.sender.deliver_in_body(number, kind, more)
        self._stored(new, self.front.put(new), named)

    def put_batch(self, number: int, kind: int, more: int) -> None:
        """Store several in one transaction, in the order of their arrival."""
        batch = [
            self.sender.deliver(number + 7 * each, kind + each, more + each) for each in range(2 + more % 3)
        ]
        receipts = ingest(self.front.database, batch)
        for new, receipt in zip(batch, receipts, strict=True):
            self._stored(new, receipt)

    def _stored(self, new: NewDelivery, receipt: Any, named: str | None = None) -> None:
        """Give the rules what was stored; its type is `named` in its body, "" if it cannot be read there."""
        fields = None if named == "" else fields_of(named or new.event_type, new.body)
        delivery = Delivery(
            *(receipt.delivery_id, new.source, new.key, new.event_type, new.known, new.body, fields),
            *(new.received_at, new.signed_at),
        )
        if named is not None:
            delivery.type_in_body = (named, named in KNOWN)
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
        self.rules.set_back(self.clock.now())

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
        if self.alone is None or self.alone[0] is not one or error is not None:
            # One without a free thread may not have looked what there is.
            looked = error is None and len(one.worker.pool.executing) < THREADS
            self.alone = (one, self.monotonic.seconds) if looked else None
        if error is None and not dies:
            if self._left_by_poll(one, number_of_claims) and again:
                self.poll(number, again=again - 1)  # it may have ended the turn of suspects, or of others
            elif left := self._left_by_poll(one, number_of_claims):
                raise Difference(f"a poll of {one.process.name} left: {'; '.join(left)}")
        if dies:
            self.kill(one)

    def _collected(self, one: Running) -> list[Any]:
        """Return what the poll will settle; it holds that no more, nor what its queue has held too long."""
        results, expired = one.worker.ended
        for lease in (*(each.run_result.lease for each in results), *(each.lease for each in expired)):
            one.process.holds.pop(one.claims[lease].id, None)
        return results

    def _register(self, one: Running) -> None:
        """Write that a process is alive, as it does twice and more before it counts as dead."""
        now, seen = self.clock.now(), one.process.seen
        if seen is None or not timedelta(0) <= now - seen < SEEN_EVERY:
            one.worker.register(now)
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
            late = [each for each in one.worker.executing if each.leased_until <= now]
            if late:
                self._end(one, late[number % len(late)], outcome, after)
                return

    def finish(self, number: int) -> None:
        """Let all that a worker has begun succeed."""
        if self.running:
            self._finish_all(number)
            self.poll(number)

    def _executing(self, number: int) -> tuple[Running | None, list[ClaimedRun]]:
        busy = [one for one in self.running if one.worker.executing]
        if not busy:
            return None, []
        one = busy[number % len(busy)]
        return one, one.worker.executing

    def _end(self, one: Running, attempt: ClaimedRun, outcome: str, after: float | None) -> None:
        self.outcome = (outcome, after)
        claim = one.claims[attempt.lease]
        if claim.run.reads:
            with classes_that(self._raise_as_class):
                one.worker.end(attempt)
            outcome = outcome if claim.run.delivery.type in one.process.knows else "ok"
            one.results[attempt.lease] = end_reading(claim, outcome, self.clock.now())
            return
        errors = {"fail": "ValueError: not today"}
        result = end_attempt(one.process, claim, errors.get(outcome, outcome), self.clock.now(), after)
        if result.error not in (KILLED, MISSING):
            effect = effect_of(claim)
            self.expected_calls.append(
                (*claim.run.id, claim.then.attempts, claim.then.replays, effect not in self.effects)
            )
            if result.state == "succeeded":
                self.effects.add(effect)
        texts = {"discard": "Discard: pointless", **dict.fromkeys(("retry", "put_off"), f"Retry: {Retry()}")}
        result = replace(result, error=texts.get(result.error or "", result.error))
        one.results[attempt.lease] = result
        one.worker.end(attempt)
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
            read = [each for each in results if each.state in (READ, UNREADABLE)]
            self.rules.settle(one.process, [each for each in results if each not in read], now)
            self.rules.read(one.process, [each for each in read if not self._is_left(one, each, after)], now)
            for key in self.offsets.keys() - self.rules.runs.keys():
                del self.offsets[key]  # one with the same name may be made
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

    def _is_left(self, one: Running, result: Result, after: Stored) -> bool:
        """Return whether what was read is left to a process with a newer list, which reads it again."""
        run = result.claim.run
        is_left = self.rules.runs.get(run.id) is run and run.id in after.runs
        is_own = is_left and self.rules.is_last(result.claim)
        if is_own and self.rules.has_to_plan(one.process, run.delivery, self.clock.now()):
            raise Difference(f"{run.id} was read, and is left")
        return is_left

    def _left_by_poll(self, one: Running, number_of_claims: int) -> list[str]:
        """Return what a poll has left though it must do that."""
        process, now = one.process, self.clock.now()
        lease = timedelta(seconds=LEASE)
        left = duties.left_by(self.rules, process, now, lease, self.orphans, was_set=self.was_set)
        started = len(one.worker.pool.executing)
        left += [f"{each.lease} in its queue" for each in one.worker.pool.waiting if process.held]
        if not number_of_claims and started < THREADS:
            seconds = 0.0 if self.alone is None else self.monotonic.seconds - self.alone[1]
            left += duties.unclaimed(self.rules, process, now, timedelta(seconds=seconds))
        return left

    def _interrupt(self, one: Running, after: Stored, now: datetime) -> None:
        """Note what the stop released before it interrupted the rest."""
        interrupted = []
        for claim in one.process.holds.values():
            run = claim.run
            row = after.runs.get(run.id)
            if (
                row is not None
                and run.token == claim.then.token
                and row.failures[len(run.failures) :] == (INTERRUPTED,)
            ):
                interrupted.append(interrupt(claim, now, timedelta(seconds=LEASE)))
        self.rules.settle(one.process, interrupted, now, limited=False)

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
            self._claim(one, run, row, now, known=known)
        if sum(not (row.queued or run.reads) for row, run in claimed) > THREADS:
            raise Difference(f"more runs start than there are threads: {len(claimed)}")
        return len(claimed)

    def _claim(self, one: Running, run: Run, row: StoredRun, now: datetime, *, known: bool) -> None:
        """Give the rules a claim; if it is not `known`, as the commit's answer was lost, nobody holds it."""
        lease, since = timedelta(seconds=LEASE), self.monotonic.seconds
        claim = self.rules.claim(one.process, run, now, lease, since, queued=row.queued)
        one.claims[Lease(row.id, row.token)] = claim
        self.orphans.discard(claim.id)  # of a run with its tokens that is deleted
        if not known:
            self.orphans.add(claim.id)
            del one.process.holds[claim.id]

    def _release(self, one: Running, run: Run, run_id: int, now: datetime) -> None:
        lease = Lease(run_id, run.token + self.offsets[run.id])
        if any(each.lease == lease for each in one.worker.executing):
            raise Difference(f"released though its handler runs: {run.id}")
        one.process.holds.pop((*run.id, run.token), None)
        self.rules.release(one.process, run, now)

    def settle_down(self) -> None:
        """End the history: with all handlers resumed and succeeding, everything is handled."""
        self.alone = None
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
        begun = one.worker.executing
        while one.worker.executing:
            self._end(one, one.worker.executing[0], "ok", None)
        return bool(begun)

    # The comparison

    def look(self) -> None:
        super().look()
        self.has_looked = True

    def check(self) -> None:
        """Compare all rows. Raises Difference."""
        self.stored, self.after = self.after or comparison.read(self.rows), None
        self._note_offsets(self.stored)
        lines = comparison.differences(self.rules, self.stored, self.offsets)
        self.checks += 1
        if self.checks % FIGURES_EVERY == 0:
            number, now = self.seed + self.checks // FIGURES_EVERY, self.clock.now()
            self.look()
            lines += comparison.figures(self.rules, self.issues, self.front, now, number)
            seen = [each for each in self.running if each.process.seen is not None]
            if seen:
                newest = max(seen, key=lambda each: each.process.number)
                lines += status_shown.differences(self.rules, self.issues, newest.app, now)
        if self.has_looked:
            lines += comparison.of_issues(self.rules, self.issues, self.front)
            self.has_looked = False
        if lines:
            raise Difference("\n".join(lines))


def _moment(stored: str) -> datetime:
    return datetime.strptime(f"{stored}+0000", "%Y-%m-%d %H:%M:%S.%f%z")
