"""The rules of the inbox and its engines as a program, without SQL, threads or a clock.

Times are given, and so is what an engine chooses: which of the due runs a worker claims, whether it renews a
lease. A choice that the rules do not allow raises Forbidden; all else that follows is computed here. The
driver lets the real inbox choose, and compares what is stored with what these rules say. How an attempt ends
is in model.attempts, what operators do in model.operator_rules, what issues there are in model.issue_rules.

The pages state the same rules for users: src/billhook/handlers/README.md, inbox/README.md and
engines/README.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

from model.attempts import UNREADABLE, Attempts
from model.newest import BY_EVENT, superseded
from model.records import (
    READING,
    Bug,
    Claim,
    Delivery,
    FormerNames,
    Handler,
    Limits,
    Process,
    Result,
    Run,
    interval_of,
)
from model.releases import Lists

LOST = "the worker died, or was silent for longer than BILLHOOK_LEASE_SECONDS"
FORGOTTEN = timedelta(days=1)
"""After this a process that was not seen is known no more, nor that an operator holds it."""
MOST_UNCOUNTED = 8
RECENT = timedelta(seconds=1)
"""A result that is older is stored with the time when it is written."""


class Forbidden(Exception):
    """The rules do not allow what an engine chose."""


def require(allowed: object, text: str, *about: object) -> None:
    if not allowed:
        raise Forbidden(f"{text}: {', '.join(map(str, about))}")


class Rules(Attempts):
    """All deliveries and runs of one inbox, and the rules by which engines change them."""

    def __init__(self) -> None:
        super().__init__()
        self.deliveries: dict[int, Delivery] = {}
        self.runs: dict[tuple[int, str], Run] = {}  # in the order in which they were made
        self.limits: dict[str, Limits] = {}
        self.processes: list[Process] = []
        self.former = FormerNames()
        self.lists = Lists()
        self.orphans: set[tuple[int, str, int]] = set()
        self.settled = 0
        """How many transactions have written results."""
        self.deleted: Counter[Bug] = Counter()
        """The failures of issues that were deleted with what was erased or pruned."""
        self.counted: Counter[tuple[str, str]] = Counter()
        """How often what happened, by event type or handler: each event counts, and stays counted."""

    # Store

    def put(self, new: Delivery) -> str:
        """Store a delivery: the first of its key is handled, a copy is not stored, a contradiction waits.

        A type that differs, or other bytes, is a conflict with the first. All types without a model share
        one row, which names them; so do copies without a type. Where one has its type in the body, only the
        bytes decide.
        """
        of_key = {
            each.variant: each
            for each in self.deliveries.values()
            if (each.source, each.key) == (new.source, new.key)
        }
        first = of_key.get("")
        by_bytes = new.in_body or (first is not None and first.in_body)
        if by_bytes:
            variant = ""
        elif not new.type:
            variant = "-"
        elif first is None or first.sent_type == new.type:
            variant = ""
        else:
            variant = new.type if new.known else "*"
        like = of_key.get(variant)
        if like is None and variant == "":
            return self._store(new, "", "accepted", None)
        if like is None:
            status = "untyped" if first is None else "conflict"
            return self._store(new, variant, status, first)
        if like.body is not None and like.body != new.body:
            variant += f"#{(new.body or b'').hex()}"  # which one that is erased keeps
            if variant not in of_key:
                return self._store(new, variant, "conflict", first or like)
            like = of_key[variant]
        if by_bytes or like.sent_type == new.type or new.type in like.also:
            return "duplicate"
        if not like.needs_action:
            return "surplus"
        like.also.append(new.type)
        self.counted[new.counted_as, "conflict"] += 1
        return "conflict"

    def _store(self, new: Delivery, variant: str, status: str, first: Delivery | None) -> str:
        new.variant, new.conflict_of = variant, first.id if first else None
        self.counted[new.counted_as, status] += not (status == "accepted" and new.is_unread)
        if status != "accepted":
            new.state, new.needs_action = "quarantined", True
        self.deliveries[new.id] = new
        return status

    # Plan

    def plan(self, process: Process, deliveries: Sequence[Delivery], now: datetime) -> None:
        """Make a run for each handler of each delivery, and quarantine what cannot be read.

        One of a user's own type gets a run that reads it first.
        """
        for delivery in deliveries:
            require(delivery.state == "received", "planned twice", delivery.id)
            require(not process.held, "planned by one that is held", process.name, delivery.id)
            otherwise = self._decides_otherwise(process, delivery, now)
            require(not otherwise, "planned though a newer list decides", process.name, delivery.id)
        to_handle = []
        for delivery in deliveries:
            if delivery.is_unread and delivery.fields is not None:
                delivery.type, delivery.known = delivery.body_type, delivery.body_known
                self.counted[delivery.counted_as, "accepted"] += delivery.conflict_of is None
            if delivery.fields is None:
                self._quarantine(delivery)
            elif delivery.type in process.knows:
                delivery.state = "planned"
                run = Run(delivery, READING + delivery.type, "due", now)
                self.runs[run.id] = run
            else:
                to_handle.append(delivery)
        self._make_runs(process, to_handle, now)
        if deliveries:
            self.lists.note_planned(process, now)

    def _decides_otherwise(self, process: Process, delivery: Delivery, now: datetime) -> bool:
        unread = [(each, each.received) for each in self.deliveries.values() if each.state == "received"]
        unread += [
            (run.delivery, run.due)
            for run in self.runs.values()
            if run.reads and run.state == "due" and run.due <= now
        ]
        return self.lists.decides_otherwise(process, self.processes, delivery, unread, now)

    def _quarantine(self, delivery: Delivery) -> None:
        delivery.state, delivery.needs_action = "quarantined", True
        # Of the accepted ones: a conflict, or one without a type, was counted when it was stored.
        what = "quarantined" if delivery.sent_type else "untyped"
        was_accepted = delivery.conflict_of is None and (delivery.sent_type != "" or delivery.in_body)
        self.counted[delivery.counted_as, what] += was_accepted

    def read(self, process: Process, results: Sequence[Result], now: datetime) -> None:
        """Replace readings by the runs of handlers, or quarantine what its class refuses."""
        found = []
        for result in results:
            run, delivery = result.claim.run, result.claim.run.delivery
            process.holds.pop(result.claim.id, None)
            if not self.is_last(result.claim):
                continue
            otherwise = self._decides_otherwise(process, delivery, now)
            require(not otherwise, "read though a newer list decides", process.name, delivery.id)
            del self.runs[run.id]
            run.state = "succeeded"
            if result.state == UNREADABLE:
                self._quarantine(delivery)
            else:
                found.append(delivery)
        self._make_runs(process, found, now)
        if found:
            self.lists.note_planned(process, now)

    def _make_runs(self, process: Process, deliveries: Sequence[Delivery], now: datetime) -> None:
        made = []
        for delivery in deliveries:
            handlers = [each for each in process.handlers if each.handles(delivery)]
            delivery.state = "planned" if handlers else "done"
            made += [self._new_run(delivery, handler, now) for handler in handlers]
        self._begin(made, now)

    def _begin(self, made: Collection[Run], now: datetime) -> None:
        """Put new runs in their orders; a delivery of which all are twins or superseded is finished."""
        self._put_in_order(made, now)
        self._finish(each.delivery for each in made)

    def _new_run(self, delivery: Delivery, handler: Handler, now: datetime) -> Run:
        """Make a run: due, waiting in its order, or discarded as the twin of an earlier one.

        A twin has the same values as an earlier delivery that is none itself, within the window, whichever
        of its names the handler had then.
        """
        run = Run(delivery, handler.name, "due", now, newest=int(handler.newest_only))
        fields = delivery.fields or {}
        if handler.ordered_by and fields.get(handler.ordered_by) is not None:
            run.state = "waiting"
            run.order = (handler.name, delivery.source, fields[handler.ordered_by])
            if handler.newest_by:
                run.newest, run.newest_value = BY_EVENT, fields.get(handler.newest_by)
        if handler.identity:
            run.content = (delivery.source, delivery.type, *(fields.get(name) for name in handler.identity))
            window = timedelta(seconds=handler.window_seconds)
            names = self.former.every(handler.name)
            for other in self.runs.values():
                if (
                    other.name in names
                    and other.delivery is not delivery
                    and other.content == run.content
                    and other.twin_of is None
                    and abs(other.delivery.received - delivery.received) <= window
                ):
                    run.state, run.twin_of = "discarded", other.delivery.id
                    self.counted[run.name, "discarded"] += 1
                    run.error = (
                        f"content duplicate of delivery {run.twin_of}: same {', '.join(handler.identity)}"
                    )
                    break
        self.runs[run.id] = run
        return run

    # Order

    def _order_of(self, run: Run) -> tuple[object, ...] | None:
        """A renamed handler goes on in its order, whichever process settles what: the newest list decides."""
        return run.order and (self.former.present(run.name), *run.order[1:])

    def register(self, process: Process, now: datetime) -> None:
        """Record that a process is alive with its handlers.

        The names of the newest list are those of the handlers; orders that become one, or two, go on.
        """
        process.number, process.seen = self.lists.number(process.handlers), now
        process.forgotten = False
        for other in self.processes:  # what is known of one that stood still for a day is gone
            if other.seen is not None and now - other.seen > FORGOTTEN:
                other.held, other.forgotten = False, True
        if not self.former.concern(process):
            return
        if all(process.number >= each.number for each in self.processes if each.may_plan(now)):
            self.former.record(process)
            for handler in process.handlers:
                if self._is_paused(handler.names):
                    self.pause(handler.name)
        self._put_in_order([each for each in self.runs.values() if each.unfinished], now, supersede=False)

    def _put_in_order(self, runs: Iterable[Run], now: datetime, *, supersede: bool = True) -> None:
        """Discard what is superseded, and let the first of each order begin if none is under way.

        Of those that wait, also for another attempt, only the newest is needed with `newest_only`. One that
        is claimed goes on; so does one whose interrupted attempt may not have ended yet. What becomes due is
        due at once, or when the time comes to which it was put off.
        """
        of_order: dict[tuple[object, ...] | None, list[Run]] = {}
        for run in sorted(self.runs.values(), key=lambda run: run.delivery.id):
            of_order.setdefault(self._order_of(run), []).append(run)
        orders = dict.fromkeys((self._order_of(each), each.newest) for each in runs if each.order)
        for order, newest in orders if supersede else ():
            for run, why in [*superseded(of_order.get(order, ()), newest)]:
                if run.newest == newest and not run.was_interrupted:
                    run.state, run.error = "discarded", why
                    self.counted[run.name, "discarded"] += 1
                    self._finish([run.delivery])
        for order, _ in orders:
            left = [each for each in of_order.get(order, ()) if each.unfinished]
            if left and all(each.state == "waiting" for each in left):
                left[0].state, left[0].due = "due", max(now, left[0].not_before or now)

    def _finish(self, deliveries: Iterable[Delivery]) -> None:
        """A planned delivery without an unfinished run is done, or dead if any run is dead."""
        for delivery in deliveries:
            runs = self.runs_of(delivery)
            if delivery.state == "planned" and not any(each.unfinished for each in runs):
                delivery.state = "dead" if any(each.state == "dead" for each in runs) else "done"

    def runs_of(self, delivery: Delivery) -> list[Run]:
        return [each for each in self.runs.values() if each.delivery is delivery]

    # Claim

    def may_claim(self, process: Process, run: Run, now: datetime) -> str | None:
        """Say why a process may not claim a run now; None if it may."""
        if process.held:
            return "the process is held"
        if run.state != "due" or run.due > now:
            return "it is not due"
        if process.has_under_way(run):
            return "the process has it under way"
        if run.reads:
            otherwise = self._decides_otherwise(process, run.delivery, now)
            return "a newer list decides" if otherwise else None
        handler = process.find(run)
        others = [each for each in self.processes if each is not process and each.is_alive(now)]
        if handler is None and any(each.find(run) for each in others):
            return "another process has the handler"
        own = process.owner_of(run.name)
        names = self.former.every(run.name) | ({*own.names} if own else set())
        if self._is_paused(names):
            return "its handler is paused"
        if own is None:
            return None
        running = sum(each.state == "running" and each.name in names for each in self.runs.values())
        if own.at_most is not None and running >= own.at_most:
            return "as many run as may"
        next_start = self._limits_of(own.name).next_start
        if own.rate and next_start and next_start > now:
            return "its rate allows no start yet"
        return None

    def _is_paused(self, names: Iterable[str]) -> bool:
        return any(self.limits[name].paused for name in names if name in self.limits)

    def _limits_of(self, name: str) -> Limits:
        """Return the limits of a handler, by the name that it has now, also for a process of older code."""
        return self.limits.setdefault(self.former.present(name), Limits())

    def claim(
        self,
        process: Process,
        run: Run,
        now: datetime,
        lease: timedelta,
        since: float,
        *,
        queued: bool,
        known: bool = True,
    ) -> Claim:
        """Claim a due run: the attempt counts from now, and the token rises.

        Not `known`: the answer of the commit is lost, so that the process does not hold it.
        """
        reason = self.may_claim(process, run, now)
        require(reason is None, "claimed though " + (reason or ""), run.id, run.due, now)
        self._run_beside(process, run, lease.total_seconds(), since)
        handler = process.owner_of(run.name)
        if handler and handler.rate:
            limits, interval = self._limits_of(handler.name), interval_of(handler.rate)
            limits.next_start = max(limits.next_start or now, now) + interval
        run.state, run.due, run.owner = "running", now + lease, process.name
        run.queued, run.beside, run.not_before = queued, False, None
        run.attempts += 1
        run.token += 1
        numbers = (run.token, run.attempts, run.uncounted, run.replays)
        claim = Claim(run, *numbers, since, alone=run.alone, postponements=run.postponements)
        if known:
            process.holds[claim.id] = claim
            self.orphans.discard(claim.id)  # of a run with its tokens that is deleted
        else:
            self.orphans.add(claim.id)
        return claim

    def _run_beside(self, process: Process, run: Run, lease_seconds: float, since: float) -> None:
        """A suspect runs alone in its worker, but for what takes longer than a lease."""
        for claim in process.holds.values():
            if run.alone or claim.alone:
                require(since - claim.since >= lease_seconds, "not alone", run.id, claim.run.id)
            is_held = claim.run.state == "running" and claim.run.token == claim.token
            claim.run.beside |= claim.run.alone and is_held

    def renew(self, process: Process, run: Run, until: datetime) -> None:
        """A lease that has ended is renewed too, while no other worker has claimed the run."""
        require(run.state == "running" and run.owner == process.name, "renewed, not held", run.id)
        run.due = until

    def release(self, process: Process, run: Run, now: datetime) -> None:
        """Give back a run that was never called: it is due, and its attempt does not count."""
        require(run.state == "running" and run.owner == process.name, "released, not held", run.id)
        process.holds.pop((*run.id, run.token), None)
        run.state, run.due, run.queued, run.beside = "due", now, False, False
        run.attempts -= 1

    def lose(self, process: Process, run: Run, now: datetime, due: datetime, spread: timedelta) -> None:
        """End the lease of a worker that died, hangs or is late; until the next claim its result counts.

        A run that was only queued is due again. One that was started becomes a suspect, which runs alone:
        lost beside others the attempt does not count; lost alone it does, and so does the one before it.
        """
        require(run.state == "running" and run.due <= now, "a lease ended early", run.id, run.due, now)
        require(not process.has_under_way(run), "it is of this very process", run.id)
        if run.queued:
            run.attempts -= 1
        else:
            lost = run.uncounted - run.postponements
            if not run.alone:
                lost += 1
            elif run.beside:
                lost = max(lost, min(lost + 1, MOST_UNCOUNTED))
            else:
                lost = max(0, lost - 1)
            run.uncounted = run.postponements + lost
            run.alone, run.error = True, LOST
            run.failures.append(LOST)
            require(now <= due <= now + spread, "a suspect is due at another time", run.id, due, now)
        run.state, run.due = "due", now if run.queued else due

    # Settle

    def is_last(self, claim: Claim) -> bool:
        """Return whether a result of this claim counts: nobody has claimed or ended the run since."""
        run = claim.run
        return self.runs.get(run.id) is run and run.token == claim.token and run.unsettled

    def settle(
        self, process: Process, results: Sequence[Result], now: datetime, *, limited: bool = True
    ) -> list[bool]:
        """Write results; one is refused if its run was claimed, replayed or discarded since."""
        self.settled += 1
        written, again = [], []
        for result in results:
            claim, run = result.claim, result.claim.run
            holds = self.is_last(claim)
            written.append(holds)
            process.holds.pop(claim.id, None)
            if holds:
                run.state, run.due, run.error = result.state, result.due or run.due, result.error
                # An operator may have put it off since its lease had ended.
                run.not_before = max(filter(None, (run.not_before, result.not_before)), default=None)
                run.due = max(run.due, run.not_before or run.due)
                run.postponements += result.not_before is not None
                run.attempts = claim.attempt
                # An attempt that others took for lost, and that ends uncounted, is one.
                run.uncounted = min(run.uncounted + result.uncounted, claim.attempt)
                what = "failed" if result.state == "due" else result.state
                self.counted[run.name, what] += not (result.uncounted or run.reads)
                run.queued = run.beside = False
                run.alone = result.alone
                if result.state in ("due", "dead"):
                    run.failures.append(result.error or "")
                if result.bug is not None:
                    handler = process.owner_of(run.name)
                    bug = (handler.name if handler else run.name, result.bug)
                    at = result.at if now - result.at < RECENT else now
                    run.bugs.append((bug, at, self.settled))
                if result.state != "due" or run.newest:
                    again.append(run)
        settled = [result for result, holds in zip(results, written, strict=True) if holds]
        if results:
            self._finish(result.claim.run.delivery for result in settled if result.state != "due")
            self._put_in_order(again, max(result.at for result in results))
        if limited:
            self._count_failures(process, settled)
        return written

    def _count_failures(self, process: Process, settled: Sequence[Result]) -> None:
        """Pause a handler after so many failed attempts in a row; a success resets the count."""
        for result in settled:
            handler = process.owner_of(result.claim.run.name)
            if (
                handler is None
                or handler.pause_after is None
                or result.uncounted
                or result.state == "discarded"
            ):
                continue
            limits = self._limits_of(handler.name)
            limits.failures = 0 if result.state == "succeeded" else limits.failures + 1
            if limits.failures >= handler.pause_after:
                self.pause(handler.name)

    def pause(self, name: str) -> None:
        """Pause a handler, under each of its names: its runs wait, and lose no attempt."""
        for each in self.former.every(name):
            self.limits.setdefault(each, Limits()).paused = True
