"""What operators do in a history: each step is taken by the inbox, and by the rules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from billhook.clock import FrozenClock
from billhook.engines.first_runs import FirstRuns
from billhook.engines.resend import resend
from billhook.extension import get_state
from billhook.inbox import Inbox
from billhook.inbox.counting.retention import Cutoffs
from billhook.inbox.operating import operations
from billhook.inbox.operating.holds import hold_worker, resume_worker
from billhook.inbox.operating.postpone import postpone
from billhook.inbox.operating.takeover import take_over
from billhook.inbox.reading.deliveries import details
from billhook.inbox.watching.issue_updates import update_issues
from billhook.inbox.watching.issues import IssueState, change_issue, list_issues
from model.issue_rules import Issues, error_of, failures_of, look
from model.operator_rules import EMPTIED, InboxRules
from model.own_types import know
from model.records import Delivery, Handler
from model.sender import CREATED, PING, STATUS, fields_as

SNOOZED_FOR = 600.0
POSTPONED_FOR = (0.0, 4.0, 45.0, 600.0, 2_600_000.0)


class Operators:
    """The steps of operators; `front` is the inbox as their commands have it."""

    rules: InboxRules
    issues: Issues
    front: Inbox
    clock: FrozenClock
    running: list[Any]
    sets: list[Sequence[Handler]]

    def replay(self, number: int, how: int, more: int) -> None:
        ids = self._some(number, more)
        names: tuple[str, ...] = ()
        options: dict[str, Any] = {}
        if how % 4 == 1:
            names = (self._name(more),)
            options["handler"] = names[0]
        if how % 4 == 2:
            options["all_handlers"] = True
        if how % 4 == 3:
            names = (self._name(more),)
            options |= {"handler": names[0], "only_failed": True}
        self.replay_these(ids, names=names, **options)

    def replay_these(self, ids: Sequence[int], *, names: Sequence[str] = (), **options: Any) -> None:
        now = self.clock.now()
        operations.replay(self.front, ids, now, **options)
        of_one = bool(names) and not options.get("only_failed", False)
        self.rules.replay(ids, now, names, finished=of_one or options.get("all_handlers", False))

    def replay_as(self, number: int, how: int) -> None:
        """Replay deliveries as another type than they were sent as."""
        event_type = (STATUS, PING, CREATED)[how % 3]
        found = [each for each in self.rules.deliveries.values() if each.state in ("done", "quarantined")]
        some = [found[-1 - number % len(found)]] if found else []
        fields = {each.id: fields_as(event_type, each.body or b"") for each in some}
        operations.replay(self.front, [*fields], self.clock.now(), as_type=event_type)
        self.rules.replay_as([*fields], event_type, fields)

    def resend(self, number: int, how: int, more: int) -> None:
        """Have a handler called with an edited copy of a delivery: with the body of another of its type."""
        one = self.running[number % len(self.running)] if self.running else None
        stored = [self.rules.deliveries[each] for each in self._recent()]
        found = [
            each for each in stored if each.body and each.fields is not None and each.sent_type == each.type
        ]
        found = [each for each in found if not each.is_unread and each.state not in EMPTIED]
        found = [each for each in found if one and any(handler.handles(each) for handler in one.handlers)]
        if one is None or not found:
            return
        original, now = found[how % len(found)], self.clock.now()
        know(one.process.knows)
        handlers = [each for each in one.handlers if each.handles(original)]
        others = [each for each in found if each.type == original.type]
        handler, other = handlers[more % len(handlers)], others[more % len(others)]
        facts, registered = details(self.front, [original.id])[0], get_state(one.app).dispatcher.handlers
        new_id = resend(self.front, registered, facts, handler.name, other.body or b"", now)
        key = details(self.front, [new_id])[0].summary.key
        kind = (original.source, key, original.type, original.known)
        self.rules.resend(Delivery(new_id, *kind, other.body, other.fields, now, None), handler, now)

    def give_first_runs(self, number: int, how: int) -> None:
        """Give a handler that is registered what it has missed, and replay what it has had."""
        found = self._missing(number)
        if found:
            ids, now, (app, handler, _) = self._recent(), self.clock.now(), found[how % len(found)]
            options = FirstRuns(get_state(app).dispatcher.handlers, handler.name)
            operations.replay(self.front, ids, now, handler=handler.name, backfill=options)
            self.rules.replay(ids, now, (handler.name,), finished=True)
            self.rules.give_first_runs(ids, handler, now)

    def take_over(self, number: int, how: int, more: int) -> None:
        """Let a handler that is registered take over the runs of another."""
        found = [
            each
            for each in self._missing(number)
            if any(not run.reads for run in self.rules.runs_of(each[2]))
        ]
        if not found:
            return
        now, (app, to, delivery) = self.clock.now(), found[how % len(found)]
        of_it = [each for each in self.rules.runs_of(delivery) if not each.reads]
        name = of_it[more % len(of_it)].name
        # Of two runs of one delivery either may be taken over.
        every = self.rules.every_name(name)
        runs = [each.delivery.id for each in self.rules.runs.values() if each.name in every]
        ids = [each for each in self._recent() if runs.count(each) < 2]
        options = FirstRuns(get_state(app).dispatcher.handlers, to.name)
        take_over(self.front, ids, now, handler=name, to=to.name, to_names=to.names, options=options)
        self.rules.take_over(ids, name, to, now)

    def _missing(self, number: int) -> list[tuple[Any, Handler, Delivery]]:
        """Return the handlers of a process that have no run of a delivery that they handle, with its app."""
        one = self.running[number % len(self.running)] if self.running else None
        found = []
        if one is not None:
            know(one.process.knows)
        for delivery in [self.rules.deliveries[each] for each in self._recent()] if one else []:
            had = {each.name for each in self.rules.runs_of(delivery)}
            fitting = [each for each in one.handlers if each.handles(delivery)]
            found += [(one.app, each, delivery) for each in fitting if each.name not in had]
        return found

    def postpone(self, number: int, how: int, more: int) -> None:
        """Put deliveries off, or only the runs of a handler; or end that."""
        ids, now = self._some(number, more), self.clock.now()
        name = self._name(more) if how % 3 == 0 else None
        until = now + timedelta(seconds=POSTPONED_FOR[how % len(POSTPONED_FOR)])
        postpone(self.front, ids, now, until, handler=name)
        self.rules.postpone(ids, now, until, () if name is None else (name,))

    def look(self) -> None:
        """Open, reopen and resolve issues, as workers do every few seconds."""
        now = self.clock.now()
        update_issues(self.front, now, with_figures=False)
        look(self.issues, self.rules, now)

    def change_issue(self, number: int, how: int, more: int) -> None:
        """Acknowledge, resolve or snooze an issue, the only one with its subject and error.

        They are in the order in which they happened last.
        """
        self.look()
        shown = [(issue.subject, error_of(bug)) for bug, issue in self.issues.items()]
        bugs = [bug for bug, which in zip(self.issues, shown, strict=True) if shown.count(which) == 1]
        if not bugs:
            return
        failures = failures_of(self.rules)
        bugs.sort(key=lambda bug: failures[bug][1][-1:] if bug in failures else [])
        bug, now = bugs[number % len(bugs)], self.clock.now()
        issue = self.issues[bug]
        found = [each for each in list_issues(self.front, subject=issue.subject) if each.kind == "failure"]
        found = [each for each in found if each.title.partition(":")[0] == error_of(bug)]
        found = [each for each in found if each.subject == issue.subject]
        state = (IssueState.ACKNOWLEDGED, IssueState.RESOLVED, IssueState.SNOOZED, IssueState.SNOOZED)[
            how % 4
        ]
        until = now + timedelta(seconds=SNOOZED_FOR) if how % 4 == 2 else None
        times = 1 + more % 3 if how % 4 == 3 else None
        if [
            change_issue(self.front, each.id, state, now, who="op", until=until, more=times) for each in found
        ] != [True]:
            raise AssertionError(f"{len(found)} issues of {bug}")
        issue.change(state.value, now, until, times)

    def hold(self, number: int) -> None:
        """Have a worker start nothing."""
        alive = [each.process for each in self.running if each.process.seen is not None]
        alive = [each for each in alive if not each.forgotten]
        if alive:
            process = alive[number % len(alive)]
            if hold_worker(self.front, process.name, self.clock.now()) is process.held:
                raise AssertionError(f"{process.name} is held though it was, or is not there")
            process.held = True

    def unhold(self, number: int) -> None:
        """Have a worker that is held start runs again."""
        held = [each.process for each in self.running if each.process.held]
        if held:
            process = held[number % len(held)]
            resume_worker(self.front, process.name)
            process.held = False

    def discard(self, number: int, more: int) -> None:
        self.discard_these(self._some(number, more))

    def discard_these(self, ids: Sequence[int]) -> None:
        now = self.clock.now()
        operations.discard(self.front, ids, "not needed", now)
        self.rules.discard(ids, "not needed", now)

    def erase(self, number: int, more: int) -> None:
        self.erase_these(self._some(number, more), discard=more % 3 > 0)

    def erase_these(self, ids: Sequence[int], *, discard: bool) -> None:
        now = self.clock.now()
        operations.erase(self.front, ids, now, discard_unfinished=discard)
        self.rules.erase(ids, now, discard=discard)

    def prune(self, days: float) -> None:
        now = self.clock.now()
        inbox, found = self.front, None
        while found is None or not found.over:
            found = inbox.prune(Cutoffs.of(now, days), found.after if found else 0)
        self.rules.prune(now, days)

    def pause(self, number: int) -> None:
        name = self._name(number)
        self.front.pause_handler(name, "closed", self.clock.now())
        self.rules.pause(name)

    def pause_some(self, number: int) -> None:
        """Pause every third handler."""
        for each in range(4):
            self.pause(number + 3 * each)

    def resume(self, number: int) -> None:
        paused = sorted(name for name, each in self.rules.limits.items() if each.paused)
        name = paused[number % len(paused)] if paused else self._name(number)
        self.front.resume_handler(name)
        self.rules.resume(name)

    def count(self) -> None:
        """Move the watermark of the hourly counts, which must change nothing."""
        self.front.advance_watermark(self.clock.now())

    def resume_all(self) -> None:
        """Resume every handler that is paused."""
        for name, limits in list(self.rules.limits.items()):
            if limits.paused:
                self.front.resume_handler(name)
                self.rules.resume(name)

    def _some(self, number: int, more: int) -> list[int]:
        recent = self._recent()
        if not recent:
            return []
        return sorted({recent[(number + 5 * each) % len(recent)] for each in range(1 + more % 3)})

    def _recent(self) -> list[int]:
        return [*self.rules.deliveries][-12:]

    def _name(self, number: int) -> str:
        names = sorted({name for each in self.sets for handler in each for name in handler.names})
        return names[number % len(names)]
