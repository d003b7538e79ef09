"""The rules of one attempt: whether it calls its handler, and how it ends."""

from __future__ import annotations

from datetime import datetime, timedelta

from model.records import Claim, Process, Result

INTERRUPTED = "the worker was stopped, and the handler did not return within the grace"
MOST_POSTPONEMENTS = 2
"""Fewer than they are, so that histories come to the last one."""
LONGEST_POSTPONEMENT = timedelta(days=31)
READ_AGAIN = (timedelta(seconds=30), timedelta(seconds=120))
"""The waits before the second and the third reading, which is the last."""
OF_CLASS = "the event model"
"""How the error begins of a reading that is tried again."""
READ, UNREADABLE = "read", "unreadable"
"""How a reading ends that is not tried again."""
MISSING_ISSUE_ATTEMPT = 3


class Attempts:
    """What becomes of the attempts of runs, and which effects their handlers have had."""

    def __init__(self) -> None:
        self.effects: set[tuple[str, ...]] = set()
        """Which handlers have had their effect: of which delivery and replay."""

    def calls(self, process: Process, claim: Claim) -> bool:
        """Return whether an attempt calls the handler: not if it is not there, or the run killed before."""
        handler = process.find(claim.run)
        return handler is not None and not self._has_killed(process, claim)

    def _has_killed(self, process: Process, claim: Claim) -> bool:
        most = len(process.waits_of(process.find(claim.run))) + 1
        return claim.attempt > 1 and claim.attempt - claim.uncounted > most

    def end(
        self, process: Process, claim: Claim, outcome: str, now: datetime, after: float | None = None
    ) -> Result:
        """Return the result of an attempt whose handler returned ("ok"), or raised.

        An exception is retried by the schedule, a "retry" `after` its own time, and a "discard" is no
        failure. After the last attempt the run is dead. Where the handler is missing the attempt fails, and
        does not count for the handler. Nor does one that has "put_off" the run to a time, which fails in the
        end.
        """
        run, handler = claim.run, process.find(claim.run)
        waits = process.waits_of(handler)
        if self._has_killed(process, claim):
            return Result(claim, "dead", now, error="RuntimeError")
        if handler is None:
            # No issue at first: a process with newer code may have it. Words with digits group no failures.
            of_type = run.delivery.type
            kind = "LookupError …" if any(map(str.isdigit, of_type)) else f"LookupError {of_type}"
            bug = kind if claim.attempt >= MISSING_ISSUE_ATTEMPT else None
            if claim.attempt > len(waits):
                return Result(claim, "dead", now, error="LookupError", bug=bug)
            due = now + timedelta(seconds=waits[claim.attempt - 1])
            return Result(claim, "due", now, due, "LookupError", uncounted=True, bug=bug)
        if outcome == "ok":
            self.effects.add(self._effect(claim))
            return Result(claim, "succeeded", now)
        if outcome == "discard":
            return Result(claim, "discarded", now, error="discard")
        if outcome == "put_off" and claim.postponements >= MOST_POSTPONEMENTS:
            outcome = "PutOffTooOften"
        if outcome == "put_off":
            until = now + min(max(timedelta(seconds=after or 0), timedelta(0)), LONGEST_POSTPONEMENT)
            return Result(claim, "due", now, until, outcome, uncounted=True, not_before=until)
        number = claim.attempt - claim.uncounted
        bug = None if outcome == "retry" else outcome.partition(":")[0]
        if number > len(waits):
            return Result(claim, "dead", now, error=outcome, bug=bug)
        wait = after if outcome == "retry" and after is not None else waits[number - 1]
        return Result(claim, "due", now, now + timedelta(seconds=wait), outcome, bug=bug)

    def has_had_effect(self, claim: Claim) -> bool:
        """Return whether the handler has committed the effect of a delivery, or of this replay, before."""
        return self._effect(claim) in self.effects

    @staticmethod
    def _effect(claim: Claim) -> tuple[str, ...]:
        of = claim.run.delivery
        return claim.run.name, of.source, of.key, of.variant, str(claim.replays)

    def end_reading(self, claim: Claim, outcome: str, now: datetime) -> Result:
        """Return the result of a reading: of a class that returned ("ok"), or raised.

        What passes by itself ("retry") is read again, three times in all; so is what ended the process.
        """
        number = claim.attempt - claim.uncounted
        if number > len(READ_AGAIN) + 1 or outcome in ("fail", "discard"):
            return Result(claim, UNREADABLE, now)
        if outcome != "retry":
            return Result(claim, READ, now)
        if number > len(READ_AGAIN):
            return Result(claim, UNREADABLE, now)
        due = now + READ_AGAIN[max(0, number - 1)]
        return Result(claim, "due", now, due, OF_CLASS, alone=True)

    def interrupt(self, claim: Claim, now: datetime, lease: timedelta) -> Result:
        """A stop ends an attempt: it is repeated once the process has surely ended, and never counts."""
        return Result(claim, "due", now, now + lease, INTERRUPTED, uncounted=True)
