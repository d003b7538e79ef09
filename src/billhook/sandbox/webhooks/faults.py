"""Fault injection: the faults, and which of them strikes which delivery.

A fault strikes each delivery once at most, and one that spoils an attempt never strikes the last attempt of
the schedule. So every delivery arrives in the end, with any number of faults, except where LOSE strikes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import Row, case, delete, insert, select, update

from billhook.sandbox.storage.database import Transaction
from billhook.sandbox.storage.tables import applied_fault, delivery, fault


class FaultKind(StrEnum):
    """A fault that can be injected into a delivery."""

    DUPLICATE = "duplicate"
    """Sent twice at the same time."""
    DELAY = "delay"
    """Sent some seconds late."""
    REORDER = "reorder"
    """Held until a later one to the same URL was sent, for some seconds at most."""
    DROP = "drop"
    """The receiver's response is treated as lost, so the delivery is sent again."""
    CORRUPT = "corrupt"
    """One bit of the body is flipped after signing."""
    WRONG_SECRET = "wrong_secret"  # noqa: S105 - the name of a fault
    """Signed with a random secret."""
    STALE = "stale"
    """Signed an hour ago."""
    LOSE = "lose"
    """Never sent: the delivery has failed at its first attempt."""


TIMED = {FaultKind.DELAY: 5, FaultKind.REORDER: 10}
"""Faults with a delay, and its default in seconds."""
SPOILING = tuple(kind for kind in FaultKind if kind not in (FaultKind.DUPLICATE, FaultKind.LOSE, *TIMED))
"""Faults after which the delivery is sent again: all others."""


def clear(tx: Transaction, kind: str | None) -> None:
    """Delete all faults, or those of one kind; deliveries that they hold become due."""
    if kind in (None, FaultKind.REORDER):
        values = {"held": False, "due_at": tx.real_now}
        released = tx.execute(update(delivery).where(delivery.c.held).values(**values)).rowcount
        tx.enqueued = tx.enqueued or released > 0
    removed = select(fault.c.id) if kind is None else select(fault.c.id).where(fault.c.kind == kind)
    tx.execute(delete(applied_fault).where(applied_fault.c.fault_id.in_(removed)))
    tx.execute(delete(fault).where(fault.c.id.in_(removed)))


def decide(tx: Transaction, found: Sequence[Row[Any]]) -> list[tuple[Row[Any], FaultKind | None]]:
    """Return the deliveries to send now, each with its fault or None; others are delayed or held."""
    faults = tx.execute(select(fault).order_by(fault.c.seq)).all()
    of_found = applied_fault.c.delivery_id.in_([due.id for due in found])
    rows = tx.execute(select(applied_fault).where(of_found))
    struck = {(row.delivery_id, row.fault_id) for row in rows}
    # Counted here as well: one call decides for several deliveries.
    left = {one.id: one.times - one.struck for one in faults if one.times is not None}
    now: list[tuple[Row[Any], FaultKind | None]] = []
    for due in found:
        for one in faults:
            if (due.id, one.id) not in struck and left.get(one.id, 1) > 0 and _fits(tx, one, due):
                left[one.id] = left.get(one.id, 2) - 1
                kind = _struck_by(tx, one, due)
                if kind not in TIMED:
                    now.append((due, kind))
                break
        else:
            now.append((due, None))
    return now


def _fits(tx: Transaction, one: Row[Any], due: Row[Any]) -> bool:
    if one.event_type not in (None, due.event_type) or one.subscription_id not in (None, due.subscription_id):
        return False
    if one.kind in SPOILING and due.attempts >= len(tx.options.retry_seconds):
        return False
    if one.kind == FaultKind.REORDER and tx.any(delivery, delivery.c.held, delivery.c.url == due.url):
        return False  # the held one waits for this delivery
    # Seeded by the delivery, so that the result does not depend on the order of threads.
    generator = random.Random(f"{one.seed}:{one.kind}:{due.seq}")  # noqa: S311
    return bool(generator.random() < one.probability)


def _struck_by(tx: Transaction, one: Row[Any], due: Row[Any]) -> FaultKind:
    kind = FaultKind(one.kind)
    tx.execute(insert(applied_fault).values(delivery_id=due.id, fault_id=one.id))
    tx.execute(update(fault).where(fault.c.id == one.id).values(struck=fault.c.struck + 1))
    if kind in TIMED:
        before = delivery.c.held_up_by
        values = {
            "due_at": tx.real_now + timedelta(seconds=float(one.seconds)),
            "held": kind == FaultKind.REORDER,
            "held_up_by": case((before.is_(None), kind.value), else_=before + f", {kind}"),
        }
        tx.execute(update(delivery).where(delivery.c.id == due.id).values(**values))
    return kind
