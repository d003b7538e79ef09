"""What lists, conditions and `billhook status` show of the deliveries of the rules."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

from model.issue_rules import Issues
from model.records import Delivery, Run
from model.rules import Rules

LONG_WAIT = timedelta(minutes=10)


def status(rules: Rules, delivery: Delivery) -> str:
    """Return what lists show of a delivery."""
    if delivery.state != "planned":
        return delivery.state
    runs, paused = rules.runs_of(delivery), _paused(rules)
    if any(run.state in ("waiting", "due") and run.name in paused for run in runs):
        return "paused"
    if any(run.state == "due" and run.attempts > 0 for run in runs):
        return "retrying"
    return "running" if any(run.state == "running" for run in runs) else "waiting"


def waiting_since(rules: Rules, now: datetime) -> datetime | None:
    """Return since when the delivery that waits longest could have been handled; None if none could."""
    paused = _paused(rules)
    unread = [each.received for each in rules.deliveries.values() if each.state == "received"]
    due = [run.due for run in rules.runs.values() if run.state == "due" and run.name not in paused]
    return min([*unread[:1], *(moment for moment in due if moment <= now)], default=None)


def conditions(rules: Rules, issues: Issues, now: datetime) -> dict[str, bool]:
    """Return which conditions hold, of some that the rules know all of.

    A dead delivery is none if each of its dead runs failed by an issue that is snoozed.
    """
    since = waiting_since(rules, now)
    snoozed = {bug for bug, issue in issues.items() if issue.state == "snoozed"}
    dead = [each for each in rules.runs.values() if each.delivery.state == "dead" and each.state == "dead"]
    return {
        "dead": any(snoozed.isdisjoint(bug for bug, *_ in run.bugs) for run in dead),
        "quarantined": any(each.state == "quarantined" for each in rules.deliveries.values()),
        "paused": any(each.paused for each in rules.limits.values()),
        "waiting": since is not None and now - since > LONG_WAIT,
    }


def backlogs(rules: Rules, now: datetime) -> Counter[tuple[str, str]]:
    """Return how many unfinished and dead runs each handler, by its present name, has in which state.

    What waits because its handler is limited is counted as waiting here.
    """
    runs = [each for each in rules.runs.values() if each.unfinished or each.state == "dead"]
    return Counter((rules.present_name(each.name), _state(rules, each, now)) for each in runs)


def _state(rules: Rules, run: Run, now: datetime) -> str:
    if run.state == "dead" or (run.state == "running" and not run.queued):
        return run.state
    if run.state == "due" and run.due > now:
        return "retrying"
    return "paused" if run.state != "running" and run.name in _paused(rules) else "waiting"


def _paused(rules: Rules) -> set[str]:
    """Return every name of the handlers that are paused."""
    return {one for name, each in rules.limits.items() if each.paused for one in rules.every_name(name)}
