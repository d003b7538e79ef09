"""The rules of one attempt: how it ends, and whether its handler was called."""

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
KILLED, MISSING = "RuntimeError", "LookupError"
"""The errors of attempts that call no handler: the run has killed its workers before, or there is none."""


def effect_of(claim: Claim) -> tuple[object, ...]:
    """Return what happens once: what a handler commits for a delivery, or for this replay of it."""
    of = claim.run.delivery
    return claim.run.name, of.source, of.key, of.variant, claim.then.replays


def end_attempt(
    process: Process, claim: Claim, outcome: str, now: datetime, after: float | None = None
) -> Result:
    """Return the result of an attempt whose handler returned ("ok"), or raised.

    An exception is retried by the schedule, a "retry" `after` its own time, and a "discard" is no failure.
    After the last attempt the run is dead. Where the handler is missing the attempt fails, and does not count
    for the handler. Nor does one that has "put_off" the run to a time, which fails in the end.
    """
    handler, number = process.find(claim.run), claim.number
    waits = process.waits if handler is None or handler.waits is None else handler.waits
    bug = None if outcome == "retry" else outcome.partition(":")[0]
    if claim.then.attempts > 1 and number > len(waits) + 1:
        return Result(claim, "dead", now, error=KILLED)
    if handler is None:
        # No issue at first: a process with newer code may have it. Words with digits group no failures.
        of_type, outcome, number = claim.run.delivery.type, MISSING, claim.then.attempts
        bug = f"{outcome} {'…' if any(map(str.isdigit, of_type)) else of_type}"
        bug = bug if number >= MISSING_ISSUE_ATTEMPT else None
    elif outcome == "ok":
        return Result(claim, "succeeded", now)
    elif outcome == "discard":
        return Result(claim, "discarded", now, error=outcome)
    elif outcome == "put_off" and claim.then.postponements < MOST_POSTPONEMENTS:
        until = now + min(max(timedelta(seconds=after or 0), timedelta(0)), LONGEST_POSTPONEMENT)
        return Result(claim, "due", now, until, outcome, uncounted=True, not_before=until)
    elif outcome == "put_off":
        outcome = bug = "PutOffTooOften"
    if number > len(waits):
        return Result(claim, "dead", now, error=outcome, bug=bug)
    wait = after if outcome == "retry" and after is not None else waits[number - 1]
    due = now + timedelta(seconds=wait)
    return Result(claim, "due", now, due, outcome, uncounted=handler is None, bug=bug)


def end_reading(claim: Claim, outcome: str, now: datetime) -> Result:
    """Return the result of a reading: of a class that returned ("ok"), or raised.

    What passes by itself ("retry") is read again, three times in all; so is what ended the process.
    """
    is_last, is_over = claim.number > len(READ_AGAIN), claim.number > len(READ_AGAIN) + 1
    if is_over or outcome in ("fail", "discard") or (outcome == "retry" and is_last):
        return Result(claim, UNREADABLE, now)
    if outcome != "retry":
        return Result(claim, READ, now)
    return Result(claim, "due", now, now + READ_AGAIN[max(0, claim.number - 1)], OF_CLASS, alone=True)


def interrupt(claim: Claim, now: datetime, lease: timedelta) -> Result:
    """A stop ends an attempt: it is repeated once the process has surely ended, and never counts."""
    return Result(claim, "due", now, now + lease, INTERRUPTED, uncounted=True)
