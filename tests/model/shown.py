"""What lists and conditions show of the deliveries of the rules."""

from __future__ import annotations

from datetime import datetime

from model.records import Delivery
from model.rules import Rules


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


def _paused(rules: Rules) -> set[str]:
    """Return every name of the handlers that are paused."""
    return {one for name, each in rules.limits.items() if each.paused for one in rules.former.every(name)}
