"""The rules of the inbox and its engines as a program, without SQL, threads or a clock.

Times are given, and so is what an engine chooses: which of the due runs a worker claims, whether it renews a
lease. A choice that the rules do not allow raises Forbidden; all else that follows is computed here. The
driver lets the real inbox choose, and compares what is stored with what these rules say. How an attempt ends
is in model.attempts, which process plans what in model.releases, which runs of an order are needed in
model.newest, what operators do in model.operator_rules, what issues there are in model.issue_rules, and what
lists and conditions show in model.shown; model.records has what all of these are about.

The pages state the same rules for users: src/billhook/handlers/README.md, inbox/README.md and
engines/README.md.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from model.attempts import UNREADABLE
from model.newest import BY_EVENT, superseded
from model.records import READING, Claim, Delivery, Handler, Limits, Process, Result, Run
from model.releases import Releases

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


class Rules(Releases):
    """All deliveries and runs of one inbox, and the rules by which engines change them."""

    # Store

    def put(self, new: Delivery) -> str:
        """Store a delivery: the first of its key is handled, a copy is not stored, a contradiction waits.

        A type that differs, or other bytes, is a conflict with the first. All types without a model share
        one row, which names them; so do copies without a type. Where one has its type in the body, only the
        bytes decide.
        """
        key = (new.source, new.key)
        of_key = {each.variant: each for each in self.deliveries.values() if (each.source, each.key) == key}
        first = of_key.get("")
        by_bytes = any(each and each.type_in_body is not None for each in (new, first))
        is_like_first = by_bytes or (new.type and (first is None or first.sent_type == new.type))
        variant = "" if is_like_first else new.type if new.known else "*" if new.type else "-"
        contradicted, like = first, of_key.get(variant)
        if like is not None and like.body not in (None, new.body):
            contradicted = first or like
            variant += f"#{(new.body or b'').hex()}"  # which one that is erased keeps
            like = of_key.get(variant)
        if like is None:
            status = "accepted" if variant == "" else "conflict" if contradicted else "untyped"
            self.deliveries[new.id] = new
            new.variant, new.conflict_of = variant, contradicted.id if contradicted else None
            if status != "accepted":
                new.state, new.needs_action = "quarantined", True
            if not (status == "accepted" and new.is_unread):
                self.counted[new.counted_as, status] += 1
            return status
        if by_bytes or like.sent_type == new.type or new.type in like.also:
            return "duplicate"
        if not like.needs_action:
            return "surplus"
        like.also.append(new.type)
        self.counted[new.counted_as, "conflict"] += 1
        return "conflict"

    # Plan

    def plan(self, process: Process, deliveries: Sequence[Delivery], now: datetime) -> None:
        """Make a run for each handler of each delivery, and quarantine what cannot be read.

        One of a user's own type gets a run that reads it first.
        """
        for delivery in deliveries:
            require(delivery.state == "received", "planned twice", delivery.id)
            require(not process.held, "planned by one that is held", process.name, delivery.id)
            self._require_newest(process, delivery, now)
        made = []
        for delivery in deliveries:
            if delivery.is_unread and delivery.type_in_body and delivery.fields is not None:
                delivery.be_of(*delivery.type_in_body)
                self.counted[delivery.counted_as, "accepted"] += delivery.conflict_of is None
            if delivery.fields is None:
                self._quarantine(delivery)
            elif delivery.type in process.knows:
                delivery.state = "planned"
                run = Run(delivery, READING + delivery.type, "due", now)
                self.runs[run.id] = run
            else:
                made += self._new_runs(process, delivery, now)
        if deliveries:
            self._go_on(now, made)
            self.note_planned(process, now)

    def read(self, process: Process, results: Sequence[Result], now: datetime) -> None:
        """Replace readings by the runs of handlers, or quarantine what its class refuses."""
        made, has_planned = [], False
        for run, state in [(each.claim.run, each.state) for each in results if self.is_last(each.claim)]:
            self._require_newest(process, run.delivery, now)
            del self.runs[run.id]
            run.state = "succeeded"
            if state == UNREADABLE:
                self._quarantine(run.delivery)
            else:
                made += self._new_runs(process, run.delivery, now)
                has_planned = True
        if has_planned:
            self._go_on(now, made)
            self.note_planned(process, now)

    def _require_newest(self, process: Process, delivery: Delivery, now: datetime) -> None:
        otherwise = self.decides_otherwise(process, delivery, now)
        require(not otherwise, "planned though a newer list decides", process.name, delivery.id)

    def _quarantine(self, delivery: Delivery) -> None:
        delivery.state, delivery.needs_action = "quarantined", True
        # Of the accepted ones: a conflict, or one without a type, was counted when it was stored.
        if delivery.conflict_of is None and (delivery.sent_type or delivery.type_in_body is not None):
            self.counted[delivery.counted_as, "quarantined" if delivery.sent_type else "untyped"] += 1

    def _new_runs(self, process: Process, delivery: Delivery, now: datetime) -> list[Run]:
        delivery.state = "planned"
        return [self._new_run(delivery, each, now) for each in process.handlers if each.handles(delivery)]

    def _new_run(self, delivery: Delivery, handler: Handler, now: datetime) -> Run:
        """Make a run: due, waiting in its order, or discarded as the twin of an earlier one.

        A twin has the same values as an earlier delivery that is none itself, within the window, whichever
        of its names the handler had then.
        """
        run = Run(delivery, handler.name, "due", now, newest=int(handler.newest_only))
        fields = delivery.fields or {}
        if handler.ordered_by and fields.get(handler.ordered_by) is not None:
            run.state, run.order = "waiting", (delivery.source, fields[handler.ordered_by])
            if handler.newest_by:
                run.newest, run.newest_value = BY_EVENT, fields.get(handler.newest_by)
        if handler.identity:
            run.content = (delivery.source, delivery.type, *(fields.get(name) for name in handler.identity))
            window = timedelta(seconds=handler.window_seconds)
            names = self.every_name(handler.name)
            for other in self.runs.values():
                is_like = other.name in names and other.content == run.content and other.twin_of is None
                apart = abs(other.delivery.received - delivery.received)
                if is_like and other.delivery is not delivery and apart <= window:
                    run.twin_of, same = other.delivery.id, ", ".join(handler.identity)
                    self._discard(run, f"content duplicate of delivery {run.twin_of}: same {same}")
                    break
        self.runs[run.id] = run
        return run

    def _discard(self, run: Run, why: str) -> None:
        run.state, run.error = "discarded", why
        self.counted[run.name, "discarded"] += 1

    # Order

    def _go_on(self, now: datetime, changed: Iterable[Run] = ()) -> None:
        """Do what follows from a change, after each: what runs supersede, what is next, what is finished.

        Of those that wait, also for another attempt, only the newest is needed with `newest_only`. One that
        is claimed goes on; so does one whose interrupted attempt may not have ended yet. This is asked in the
        orders of runs that are new or have ended.

        The first of each order begins if none is under way: it is due at once, or when the time comes to
        which it was put off. A renamed handler goes on in its order, whichever process settles what: the
        newest list decides. A planned delivery without an unfinished run is done, or dead if any run is dead.
        """
        orders: defaultdict[tuple[object, ...], list[Run]] = defaultdict(list)
        for run in sorted(self.runs.values(), key=lambda run: run.delivery.id):
            if run.order:
                orders[self.present_name(run.name), run.order].append(run)
        for one in changed:
            for run, why in superseded(orders[self.present_name(one.name), one.order], one.newest):
                was_interrupted = run.uncounted > run.postponements
                if run.newest == one.newest and not was_interrupted:
                    self._discard(run, why)
        for runs in orders.values():
            left = [each for each in runs if each.unfinished]
            if left and all(each.state == "waiting" for each in left):
                left[0].state, left[0].due = "due", max(now, left[0].not_before or now)
        unfinished = {run.delivery.id for run in self.runs.values() if run.unfinished}
        dead = {run.delivery.id for run in self.runs.values() if run.state == "dead"}
        for delivery in self.deliveries.values():
            if delivery.state == "planned" and delivery.id not in unfinished:
                delivery.state = "dead" if delivery.id in dead else "done"

    def register(self, process: Process, now: datetime) -> None:
        """Record that a process is alive with its handlers.

        The names of the newest list are those of the handlers; orders that become one, or two, go on.
        """
        self.give_number(process)
        process.seen, process.forgotten = now, False
        for other in self.processes:  # what is known of one that stood still for a day is gone
            if other.seen is not None and now - other.seen > FORGOTTEN:
                other.held, other.forgotten = False, True
        if all(process.number >= each.number for each in self.processes if each.may_plan(now)):
            self.record_names(process.handlers)
            for handler in process.handlers:
                if self._is_paused(handler.names):
                    self.pause(handler.name)
        self._go_on(now)

    # Claim

    def reason_against_claim(self, process: Process, run: Run, now: datetime) -> str | None:
        """Say why a process may not claim a run now; None if it may."""
        if run.state != "due" or run.due > now:
            return "it is not due"
        own = process.owner_of(run.name)
        names = self.every_name(run.name).union(own.names)
        others = [each for each in self.processes if each is not process and each.is_alive(now)]
        running = sum(each.state == "running" and each.name in names for each in self.runs.values())
        next_start = self._limits_of(own.name).next_start if own.rate else None
        reasons = {
            "the process is held": process.held,
            "the process has it under way": process.has_under_way(run),
            "another process has the handler": not process.find(run)
            and any(each.find(run) for each in others),
            "its handler is paused": self._is_paused(names),
            "as many run as may": own.at_most is not None and running >= own.at_most,
            "its rate allows no start yet": next_start is not None and next_start > now,
        }
        found = next((reason for reason, holds in reasons.items() if holds), None)
        if found is None and run.reads and self.decides_otherwise(process, run.delivery, now):
            return "a newer list decides"
        return found

    def _is_paused(self, names: Iterable[str]) -> bool:
        return any(self.limits[name].paused for name in names if name in self.limits)

    def _limits_of(self, name: str) -> Limits:
        """Return the limits of a handler, by the name that it has now, also for a process of older code."""
        return self.limits.setdefault(self.present_name(name), Limits())

    def claim(
        self, process: Process, run: Run, now: datetime, lease: timedelta, since: float, *, queued: bool
    ) -> Claim:
        """Claim a due run: the attempt counts from now, and the token rises.

        A suspect runs alone in its worker, but for what takes longer than a lease. With a rate of up to
        20 starts a second, the handler's next run starts an even share of the time later.
        """
        reason = self.reason_against_claim(process, run, now)
        require(reason is None, f"claimed though {reason}", run.id, run.due, now)
        for other in process.holds.values():
            if run.alone or other.then.alone:
                is_late = since - other.since >= lease.total_seconds()
                require(is_late, "not alone", run.id, other.run.id)
            other.run.beside |= other.run.alone and other.is_held
        own = process.owner_of(run.name)
        if own.rate:
            (number, seconds), limits = own.rate, self._limits_of(own.name)
            interval = timedelta(microseconds=math.ceil(seconds * 1e6 / number))
            limits.next_start = max(limits.next_start or now, now) + interval
        run.state, run.due, run.owner = "running", now + lease, process.name
        run.queued, run.beside, run.not_before = queued, False, None
        run.attempts += 1
        run.token += 1
        claim = Claim(run, replace(run), since)
        process.holds[claim.id] = claim
        return claim

    def renew(self, process: Process, run: Run, until: datetime) -> None:
        """A lease that has ended is renewed too, while no other worker has claimed the run."""
        require(run.state == "running" and run.owner == process.name, "renewed, not held", run.id)
        run.due = until

    def release(self, process: Process, run: Run, now: datetime) -> None:
        """Give back a run that was never called: it is due, and its attempt does not count."""
        require(run.state == "running" and run.owner == process.name, "released, not held", run.id)
        run.state, run.due, run.queued, run.beside = "due", now, False, False
        run.attempts -= 1

    def lose(self, process: Process, run: Run, now: datetime, due: datetime, spread: timedelta) -> None:
        """End the lease of a worker that died, hangs or is late; until the next claim its result counts.

        A run that was only queued is due again. One that was started becomes a suspect, which runs alone:
        lost beside others the attempt does not count; lost alone it does, and so does the one before it.
        """
        require(run.state == "running" and run.due <= now, "a lease ended early", run.id, run.due, now)
        require(not process.has_under_way(run), "it is of this very process", run.id)
        run.state, run.due = "due", now if run.queued else due
        if run.queued:
            run.attempts -= 1
            return
        require(now <= due <= now + spread, "a suspect is due at another time", run.id, due, now)
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

    # Settle

    def is_last(self, claim: Claim) -> bool:
        """Return whether a result of this claim counts: nobody has claimed or ended the run since.

        It still runs, or was made due when its lease had ended: as a suspect, or as it was only queued.
        """
        run = claim.run
        is_lost = run.state == "due" and (run.alone or run.queued)
        is_unsettled = run.state == "running" or is_lost
        return self.runs.get(run.id) is run and run.token == claim.then.token and is_unsettled

    def settle(
        self, process: Process, results: Sequence[Result], now: datetime, *, limited: bool = True
    ) -> None:
        """Write results; one is refused if its run was claimed, replayed or discarded since."""
        self.settled += 1
        written = [each for each in results if self.is_last(each.claim)]
        for result in written:
            run, own = result.claim.run, process.owner_of(result.claim.run.name)
            run.state, run.error, run.alone = result.state, result.error, result.alone
            run.queued = run.beside = False
            # An operator may have put it off since its lease had ended.
            run.not_before = max(filter(None, (run.not_before, result.not_before)), default=None)
            run.due = max(filter(None, (result.due or run.due, run.not_before)))
            run.postponements += result.not_before is not None
            run.attempts = result.claim.then.attempts
            # An attempt that others took for lost, and that ends uncounted, is one.
            run.uncounted = min(run.uncounted + result.uncounted, run.attempts)
            if not (result.uncounted or run.reads):
                self.counted[run.name, "failed" if result.state == "due" else result.state] += 1
            if result.state in ("due", "dead"):
                run.failures.append(result.error or "")
            if result.bug is not None:
                at = result.at if now - result.at < RECENT else now
                run.bugs.append(((own.name, result.bug), at, self.settled))
            if limited and not result.uncounted and result.state != "discarded":
                self._count_failure(own, failed=result.state != "succeeded")
        if results:
            self._go_on(max(each.at for each in results), [each.claim.run for each in written])

    def _count_failure(self, handler: Handler, *, failed: bool) -> None:
        """Pause a handler after so many failed attempts in a row; a success resets the count."""
        if handler.pause_after is not None:
            limits = self._limits_of(handler.name)
            limits.failures = limits.failures + 1 if failed else 0
            if limits.failures >= handler.pause_after:
                self.pause(handler.name)

    def pause(self, name: str) -> None:
        """Pause a handler, under each of its names: its runs wait, and lose no attempt."""
        for each in self.every_name(name):
            self.limits.setdefault(each, Limits()).paused = True
