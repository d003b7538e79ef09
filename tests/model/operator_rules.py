"""The rules of what operators do: pause, resume, replay, discard and erase; and of retention."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from model.records import Delivery, Handler, Run
from model.rules import Rules

DAY = timedelta(days=1)
KEYS_KEPT = 7 * DAY
Ids = Collection[int]
"""Of deliveries."""
HANDLED = ("planned", "done", "dead")
EMPTIED = ("pruned", "erased")


class InboxRules(Rules):
    """All rules of an inbox: those of engines, and these."""

    def resume(self, name: str) -> None:
        """Resume a paused handler, with no failures counted."""
        for each in self.every_name(name) & self.limits.keys():
            if self.limits[each].paused:
                self.limits[each].paused, self.limits[each].failures = False, 0

    def replay(self, ids: Ids, now: datetime, names: Collection[str] = (), *, finished: bool) -> None:
        """Make failed runs due again, of all handlers or of one, or all that are `finished` too.

        All attempts are before them again. What is quarantined, or had no handler, is planned anew. A run
        that is ordered and had ended goes back to its place.
        """
        ended, names = [], self.every_name(*names)
        for delivery in self._in_states(ids, *HANDLED, "quarantined"):
            if not delivery.type and delivery.type_in_body is None:
                continue
            runs = self.runs_of(delivery)
            if not runs and not names:
                self._put_in(delivery, "received")
            for run in runs:
                is_retried = run.state == "due" and run.attempts > 0
                is_over = run.state == "dead" or (finished and not run.unfinished)
                if (names and run.name not in names) or not (is_retried or is_over):
                    continue
                delivery.state = "planned"
                if is_over:
                    run.replays += 1
                    run.state = "waiting" if run.order else "due"
                    ended.append(run)
                run.attempts = run.uncounted = run.postponements = 0
                run.alone = run.queued = run.beside = False
                run.due, run.not_before = now, None
                run.token += 1
        self._go_on(now, ended)

    def replay_as(self, ids: Ids, event_type: str, fields: Mapping[int, dict[str, object] | None]) -> None:
        """Have what no handler has had read as another event type; how it was sent stays known."""
        for delivery in self._in_states(ids, "done", "quarantined"):
            if not self.runs_of(delivery):
                delivery.type, delivery.known, delivery.fields = event_type, True, fields[delivery.id]
                self._put_in(delivery, "received")

    def resend(self, edited: Delivery, handler: Handler, now: datetime) -> None:
        """Store an edited copy of a delivery for one handler, which is no twin of another."""
        self.deliveries[edited.id] = edited
        self.counted[edited.counted_as, "accepted"] += 1
        edited.state = "planned"
        self._go_on(now, [self._new_run(edited, replace(handler, identity=()), now)])

    def postpone(self, ids: Ids, now: datetime, until: datetime, names: Collection[str] = ()) -> None:
        """Put runs off that wait or are due, also for a retry, which stays so if it is later.

        A time that has passed ends what was put off before.
        """
        names, moment = self.every_name(*names), max(until, now)
        for run in self.runs.values():
            is_meant = run.delivery.id in ids and not run.reads and (not names or run.name in names)
            if is_meant and run.state in ("waiting", "due"):
                is_retried_later = run.due > max(moment, run.not_before or moment)
                run.due = run.due if is_retried_later else moment
                run.not_before = moment if until > now else None

    def give_first_runs(self, ids: Ids, handler: Handler, now: datetime) -> None:
        """Give a handler those of the deliveries that it handles, can read and has, under no name, had."""
        names, made = self.every_name(handler.name).union(handler.names), []
        for delivery in self._in_states(ids, *HANDLED):
            is_fit = handler.handles(delivery) and delivery.fields is not None and not delivery.is_unread
            # One that is being read gets its runs when that is done.
            if is_fit and not any(each.reads or each.name in names for each in self.runs_of(delivery)):
                self._put_in(delivery, "planned")
                made.append(self._new_run(delivery, handler, now))
        self._go_on(now, made)

    def take_over(self, ids: Ids, name: str, to: Handler, now: datetime) -> None:
        """Make runs of one handler first runs of another, but for those that are running.

        A delivery that the other has had, or does not handle, keeps its run. A late result changes nothing.
        """
        names = self.every_name(name)
        names = {name} if to.name in names else names
        others = self.every_name(to.name).union(to.names) - names
        made = []
        for delivery in self._in_states(ids, *HANDLED):
            runs = self.runs_of(delivery)
            found = [each for each in runs if each.name in names and each.state != "running"]
            if not found or any(each.name in others for each in runs) or not to.handles(delivery):
                continue
            self._put_in(delivery, "planned")
            old, new = found[0], self._new_run(delivery, to, now)
            new.failures, new.bugs, new.replays = old.failures, old.bugs, old.replays + (not old.unfinished)
            del self.runs[new.id]
            # In the place of the other: which of two with the same content is the first goes by that.
            self.runs = {run.id: run for run in (new if each is old else each for each in self.runs.values())}
            made.append(new)
        self._go_on(now, made)

    def discard(self, ids: Ids, reason: str, now: datetime) -> None:
        """End what is unfinished or dead of deliveries; the result of a running handler is ignored."""
        for delivery in self._in_states(ids, "received", "planned", "dead", "quarantined"):
            runs = [each for each in self.runs_of(delivery) if each.unfinished or each.state == "dead"]
            for run in runs:
                if run.reads:
                    del self.runs[run.id]
                    run.state = "discarded"
                else:
                    self._discard(run, reason)
                    run.queued = run.beside = False
                    run.token += 1
            self._put_in(delivery, "done")
            delivery.needs_action = all(each.reads for each in runs)  # it has not been read
        self._go_on(now)

    def erase(self, ids: Ids, now: datetime, *, discard: bool) -> None:
        """Remove the content of finished deliveries for ever; the key, and each result, remain."""
        if discard:
            self.discard([each.id for each in self._in_states(ids, "received", "planned")], "erased", now)
        for delivery in self._in_states(ids, "done", "dead", "quarantined"):
            self._put_in(delivery, "erased")
            delivery.fields, delivery.body = {}, None
            for run in self.runs_of(delivery):
                run.error = run.order = run.content = None
                self._forget_failures(run)

    def prune(self, now: datetime, days: float) -> None:
        """Empty old finished deliveries; their keys stay for at least 7 days, untimed ones for ever."""
        for delivery in self._in_states([*self.deliveries], "done", "dead", "quarantined", *EMPTIED):
            age = now - delivery.received
            if age > max(days * DAY, KEYS_KEPT) and delivery.signed is not None:
                del self.deliveries[delivery.id]
            elif age > days * DAY and delivery.state not in EMPTIED:
                self._put_in(delivery, "pruned")
                delivery.fields = {}
            else:
                continue
            for run in self.runs_of(delivery):
                self._forget_failures(run)
                del self.runs[run.id]

    def _forget_failures(self, run: Run) -> None:
        self.deleted.update(bug for bug, *_ in run.bugs)
        run.failures, run.bugs = [], []

    @staticmethod
    def _put_in(delivery: Delivery, state: str) -> None:
        """Put a delivery in another state: no error says any more why it was not handled."""
        delivery.state, delivery.needs_action, delivery.also = state, False, []

    def _in_states(self, ids: Ids, *states: str) -> list[Delivery]:
        found = [self.deliveries[one] for one in sorted(ids) if one in self.deliveries]
        return [each for each in found if each.state in states]
