"""The rules of what operators do: pause, resume, replay, discard and erase; and of retention."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from model.records import Delivery, Handler, Run
from model.rules import Rules

DAY = timedelta(days=1)
KEYS_KEPT = 7 * DAY


class InboxRules(Rules):
    """All rules of an inbox: those of engines, and these."""

    def resume(self, name: str) -> None:
        """Resume a paused handler, with no failures counted."""
        for each in self.former.every(name) & self.limits.keys():
            if self.limits[each].paused:
                self.limits[each].paused, self.limits[each].failures = False, 0

    def replay(
        self,
        ids: Collection[int],
        now: datetime,
        *,
        names: Collection[str] = (),
        only_failed: bool = False,
        every: bool = False,
    ) -> None:
        """Make failed runs due again, or those of a handler, with all attempts before them.

        What is quarantined, or had no handler, is planned anew. A finished run that is ordered goes back to
        its place.
        """
        again, names = [], {each for name in names for each in self.former.every(name)}
        for delivery in self._in_states(ids, "planned", "done", "dead", "quarantined"):
            runs = self.runs_of(delivery)
            if not delivery.type and not delivery.in_body:
                continue
            if not runs and not names and delivery.state in ("quarantined", "done"):
                self._put_in(delivery, "received")
            found = [
                each for each in runs if self._is_replayed(each, names, only_failed=only_failed, every=every)
            ]
            if found:
                delivery.state = "planned"
            again += found
        waiting = []
        for run in again:
            if run.state != "due":
                run.replays += 1
                run.state = "due" if run.order is None else "waiting"
                waiting.append(run)
            run.attempts = run.uncounted = run.postponements = 0
            run.not_before = None
            run.alone = run.queued = run.beside = False
            run.due = now
            run.token += 1
        self._put_in_order(waiting, now)

    def replay_as(
        self, ids: Collection[int], event_type: str, fields: Mapping[int, dict[str, object] | None]
    ) -> None:
        """Have what no handler has had read as another event type; how it was sent stays known."""
        for delivery in self._in_states(ids, "done", "quarantined"):
            if not self.runs_of(delivery):
                delivery.sent_counted_as = delivery.counted_as
                delivery.sent_as, delivery.type, delivery.known = delivery.sent_type, event_type, True
                delivery.fields = fields[delivery.id]
                self._put_in(delivery, "received")

    def resend(self, edited: Delivery, handler: Handler, now: datetime) -> None:
        """Store an edited copy of a delivery for one handler, which is no twin of another."""
        self.deliveries[edited.id] = edited
        self.counted[edited.counted_as, "accepted"] += 1
        edited.state = "planned"
        self._begin([self._new_run(edited, replace(handler, identity=()), now)], now)

    def postpone(
        self, ids: Collection[int], now: datetime, until: datetime, names: Collection[str] = ()
    ) -> None:
        """Put runs off that wait or are due, also for a retry, which stays so if it is later.

        A time that has passed ends what was put off before.
        """
        names = {each for name in names for each in self.former.every(name)}
        moment = max(until, now)
        for run in self.runs.values():
            if run.delivery.id not in ids or run.state not in ("waiting", "due"):
                continue
            if run.reads or (names and run.name not in names):
                continue
            is_retried_later = run.due > moment and run.due > (run.not_before or moment)
            run.due = run.due if is_retried_later else moment
            run.not_before = moment if until > now else None

    def give_first_runs(self, ids: Collection[int], handler: Handler, now: datetime) -> None:
        """Give a handler those of the deliveries that it handles, can read and has, under no name, had."""
        names, made = self.former.every(handler.name) | {*handler.names}, []
        for delivery in self._in_states(ids, "planned", "done", "dead"):
            runs = self.runs_of(delivery)
            is_fit = handler.handles(delivery) and delivery.fields is not None and not delivery.is_unread
            # One that is being read gets its runs when that is done.
            if is_fit and not any(each.reads or each.name in names for each in runs):
                self._put_in(delivery, "planned")
                made.append(self._new_run(delivery, handler, now))
        self._begin(made, now)

    def take_over(self, ids: Collection[int], name: str, to: Handler, now: datetime) -> None:
        """Make runs of one handler first runs of another, but for those that are running.

        A delivery that the other has had, or does not handle, keeps its run. A late result changes nothing.
        """
        names = self.former.every(name)
        names = {name} if to.name in names else names
        others = ({*to.names} | self.former.every(to.name)) - names
        before, after = [], []
        for delivery in self._in_states(ids, "planned", "done", "dead"):
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
            before.append(old)
            after.append(new)
        self._begin(after, now)
        self._put_in_order(before, now, supersede=False)

    @staticmethod
    def _put_in(delivery: Delivery, state: str) -> None:
        """Put a delivery in another state: no error says any more why it was not handled."""
        delivery.state, delivery.needs_action, delivery.also = state, False, []

    @staticmethod
    def _is_replayed(run: Run, names: Collection[str], *, only_failed: bool, every: bool) -> bool:
        retrying = run.state == "due" and run.attempts > 0
        if names and run.name not in names:
            return False
        if only_failed or not (names or every):
            return run.state == "dead" or retrying
        return retrying or not run.unfinished

    def discard(self, ids: Collection[int], reason: str, now: datetime) -> None:
        """End what is unfinished or dead of deliveries; the result of a running handler is ignored."""
        ended = []
        for delivery in self._in_states(ids, "received", "planned", "dead", "quarantined"):
            is_read = delivery.state not in ("received", "quarantined")
            for run in self.runs_of(delivery) if delivery.state in ("planned", "dead") else ():
                if run.reads:
                    del self.runs[run.id]
                    run.state, is_read = "discarded", False
                elif run.unfinished or run.state == "dead":
                    run.state, run.error, run.queued, run.beside = "discarded", reason, False, False
                    run.token += 1
                    self.counted[run.name, "discarded"] += 1
                    ended.append(run)
            self._put_in(delivery, "done")
            delivery.needs_action = not is_read
        self._put_in_order(ended, now, supersede=False)

    def erase(self, ids: Collection[int], now: datetime, *, discard: bool) -> None:
        """Remove the content of finished deliveries for ever; the key, and each result, remain."""
        if discard:
            self.discard([each.id for each in self._in_states(ids, "received", "planned")], "erased", now)
        for delivery in self._in_states(ids, "done", "dead", "quarantined"):
            self._empty(delivery, "erased")
            delivery.body = None
            for run in self.runs_of(delivery):
                run.error = run.order = run.content = None
                self._forget_failures(run)

    def prune(self, now: datetime, days: float) -> None:
        """Empty old finished deliveries; their keys stay for at least 7 days, untimed ones for ever."""
        for delivery in list(self.deliveries.values()):
            if delivery.state in ("received", "planned"):
                continue
            age = now - delivery.received
            if delivery.signed is not None and age > max(days * DAY, KEYS_KEPT):
                self._forget_runs(delivery)
                del self.deliveries[delivery.id]
            elif age > days * DAY and delivery.state not in ("pruned", "erased"):
                self._empty(delivery, "pruned")
                self._forget_runs(delivery)

    def _empty(self, delivery: Delivery, state: str) -> None:
        self._put_in(delivery, state)
        delivery.fields = {}

    def _forget_runs(self, delivery: Delivery) -> None:
        for run in self.runs_of(delivery):
            self._forget_failures(run)
            del self.runs[run.id]

    def _forget_failures(self, run: Run) -> None:
        self.deleted.update(bug for bug, *_ in run.bugs)
        run.failures, run.bugs = [], []

    def _in_states(self, ids: Collection[int], *states: str) -> list[Delivery]:
        found = [self.deliveries[one] for one in sorted(ids) if one in self.deliveries]
        return [each for each in found if each.state in states]
