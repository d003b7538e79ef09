"""What follows from usage that has changed: for the cycles that run, and for those that are billed."""

from __future__ import annotations

from collections.abc import Collection

from billhook.sandbox.billing import consumption, late_usage
from billhook.sandbox.billing.rollups import Key
from billhook.sandbox.transaction import Transaction

__all__ = ["follow"]


def follow(tx: Transaction, changed: Collection[Key]) -> None:
    """Announce what these rows of usage have passed, draw credits, and bill what came late."""
    consumption.usage_changed(tx, changed)
    late_usage.note(tx, changed)
