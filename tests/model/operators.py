"""What operators do in a history: each step is taken by the inbox, and by the rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from billhook.clock import FrozenClock
from billhook.inbox import Inbox
from billhook.inbox.counting.retention import Cutoffs
from billhook.inbox.operating import operations
from model.operator_rules import InboxRules
from model.records import Handler


class Operators:
    """The steps of operators; `front` is the inbox as their commands have it."""

    rules: InboxRules
    front: Inbox
    clock: FrozenClock
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
        self.rules.replay(
            ids,
            now,
            names=names,
            only_failed=options.get("only_failed", False),
            every=options.get("all_handlers", False),
        )

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
        ids = list(self.rules.deliveries)
        if not ids:
            return []
        recent = ids[-12:]
        return sorted({recent[(number + 5 * each) % len(recent)] for each in range(1 + more % 3)})

    def _name(self, number: int) -> str:
        names = sorted({name for each in self.sets for handler in each for name in handler.names})
        return names[number % len(names)]
