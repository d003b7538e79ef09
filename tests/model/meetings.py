"""Steps that bring about what chance rarely does: what happens to a run between its claim and its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from model.operators import Operators
from model.records import Run

ROUNDS = 12


class Meetings(Operators):
    """Steps of a driver, each made of its plain ones."""

    lease_seconds: float
    after: Any
    release: int
    poll: Callable[..., None]
    start: Callable[[int], None]
    put: Callable[[int, int, int], None]
    tick: Callable[[float], None]
    finish: Callable[[int], None]
    _end: Callable[..., None]
    _executing: Callable[[int], tuple[Any, list[Any]]]

    def reach_newest(self, number: int) -> None:
        """Let a worker handle what comes before a run of which only the newest counts."""
        for _ in range(ROUNDS if self.running else 0):
            self.poll(number)
            one = self.running[number % len(self.running)]
            executing = one.worker.executing
            if not executing or any(one.claims[each.lease].run.newest for each in executing):
                return
            self._end(one, executing[0], "ok", None)

    def end_newest(self, number: int, outcome: str, after: float | None) -> None:
        """End an attempt of which only the newest counts, if there is one, and settle it."""
        for place, one in enumerate(self.running):
            newest = [each for each in one.worker.executing if one.claims[each.lease].run.newest]
            if newest:
                self._end(one, newest[number % len(newest)], outcome, after)
                self.poll(place)
                return

    def replay_quarantined(self, number: int) -> None:
        """Replay a delivery that is quarantined, if there is one: mostly a conflict, which can be read."""
        found = [each.id for each in self.rules.deliveries.values() if each.state == "quarantined"]
        if found:
            self.replay_these([found[-1 - number % min(3, len(found))]])

    def set_aside(self) -> None:
        """Discard the newest delivery while no worker has read it."""
        unread = [each.id for each in self.rules.deliveries.values() if each.state == "received"]
        if unread:
            self.discard_these([max(unread)])

    def take_back(self) -> None:
        """Replay the newest delivery that was set aside: it is planned behind those that have come since."""
        done = [each for each in self.rules.deliveries.values() if each.state == "done" and each.needs_action]
        if done:
            self.replay_these([max(each.id for each in done)])

    def pause_former(self, number: int) -> None:
        """Pause a handler under a name that a process has for a former one, and another for its own.

        What the first has begun fails meanwhile, so that it is due again.
        """
        own = {each.name for one in self.running for each in one.handlers}
        former = [
            (place, name, each.name in {claim.run.name for claim in one.process.holds.values()})
            for place, one in enumerate(self.running)
            for each in one.handlers
            for name in each.aliases
            if name in own
        ]
        former = [each for each in former if each[2]] or former
        if not former:
            return
        place, name, _ = former[number % len(former)]
        self.front.pause_handler(name, "closed", self.clock.now())
        self.rules.pause(name)
        one = self.running[place]
        while one.worker.executing:
            self._end(one, one.worker.executing[0], "retry", 2.0)
        self.poll(place)
        self.tick(4.0)
        self.poll(place)

    def exhaust(self, number: int, how: int) -> None:
        """Let a run fail until it is dead; then an operator discards, replays or erases it.

        A reading fails by what may pass, until its delivery is quarantined.
        """
        one, attempts = self._executing(number)
        if one is None:
            return
        run = one.claims[attempts[number % len(attempts)].lease].run
        outcome = "retry" if run.reads else "fail"
        for _ in range(ROUNDS):
            for each in [*one.worker.executing]:
                self._end(one, each, outcome if one.claims[each.lease].run is run else "ok", None)
            self.poll(self.running.index(one))
            if not run.unfinished:
                break
            self.tick(61.0)
        ids = [run.delivery.id]
        if how % 3 == 0:
            self.discard_these(ids)
        if how % 3 == 1:
            self.replay_these(ids, all_handlers=how % 2 == 0)
        if how % 3 == 2:
            self.erase_these(ids, discard=False)
        self.after = None  # the last poll has read it before that

    def overtake(self, number: int, outcome: str, after: float | None) -> None:
        """Let another worker take over a run whose handler hangs; then the handler ends after all."""
        one, attempts = self._executing(number)
        others = [each for each in self.running if each is not one]
        if one is None or not others:
            return
        attempt = attempts[number % len(attempts)]
        run, other = one.claims[attempt.lease].run, others[number % len(others)]
        self.tick(self.lease_seconds + 1)
        self._let_claim(other, run)
        if attempt in one.worker.executing:
            self._end(one, attempt, outcome, after)
        self.poll(self.running.index(one))

    def _let_claim(self, one: Any, run: Run) -> bool:
        """Let a worker handle what comes before a run; return whether it has that under way."""
        for _ in range(ROUNDS):
            self.poll(self.running.index(one))
            if run.state == "running" and run.owner == one.process.name:
                return True
            for each in [*one.worker.executing]:
                self._end(one, each, "ok", None)
            self.tick(4.0)
        return False

    def lose_late(self, number: int) -> None:
        """Let a worker die in a run; then another, when that has taken so long that others run beside it."""
        one, attempts = self._executing(number)
        if one is None:
            return
        run = one.claims[attempts[number % len(attempts)].lease].run
        for is_late in (False, True):
            if is_late:
                for _ in range(3):
                    self.tick(self.lease_seconds * 0.4)
                    self.poll(self.running.index(one))
                for each in range(3):
                    self.put(303 + 3 * each, 2, 1)
                self.poll(self.running.index(one))
            self.poll(self.running.index(one), dies=True)
            self.start(self.release)
            self.tick(self.lease_seconds + 1)
            one = self.running[0]
            if not self._let_claim(one, run):
                return

    def read_all(self) -> None:
        """Let workers succeed with what they begin, until all that came is read."""
        for _ in range(ROUNDS):
            if any(each.state == "received" for each in self.rules.deliveries.values()):
                for number in range(len(self.running)):
                    self.finish(number)

    def meddle(self, number: int, how: int, outcome: str, after: float | None) -> None:
        """Let an operator end a run that is under way, and perhaps replay or erase it; then it ends."""
        one, attempts = self._executing(number)
        if one is None:
            return
        attempt = attempts[number % len(attempts)]
        ids = [one.claims[attempt.lease].run.delivery.id]
        if how % 3 < 2:
            self.discard_these(ids)
        if how % 3 == 1:
            self.replay_these(ids, all_handlers=True)
        if how % 3 == 2:
            self.erase_these(ids, discard=True)
        self._end(one, attempt, outcome, after)
        self.poll(self.running.index(one))
