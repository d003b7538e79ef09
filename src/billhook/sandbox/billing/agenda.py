"""What falls due, and when: the rows that the clock works off."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, func, insert, select

from billhook.sandbox.periods import months_after
from billhook.sandbox.storage.tables.billing import agenda
from billhook.sandbox.transaction import Transaction

__all__ = ["Item", "add", "begin", "drop", "first_due", "next_month", "remove", "take"]


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to do: what `kind` of step, about what, at what moment of the sandbox's time."""

    seq: int
    due_at: datetime
    kind: str
    subject_id: str


def add(tx: Transaction, due_at: datetime, kind: str, subject_id: str) -> None:
    """Do the step `kind` for `subject_id` at `due_at`; now, if that is over. Kinds are in `steps.STEPS`."""
    due_at = max(due_at, tx.now)
    tx.connection.execute(insert(agenda).values(due_at=due_at, kind=kind, subject_id=subject_id))
    tx.scheduled = True


def drop(tx: Transaction, subject_id: str, kind: str | None = None) -> None:
    """Forget what is to be done for `subject_id`: all, or what is of one kind."""
    which = agenda.c.subject_id == subject_id
    if kind is not None:
        which &= agenda.c.kind == kind
    tx.connection.execute(delete(agenda).where(which))


def begin(tx: Transaction) -> None:
    """Put down what happens without any business: the first end of a month. Once for a database."""
    if tx.connection.execute(select(agenda.c.seq).where(agenda.c.kind == "month_end")).first() is None:
        add(tx, next_month(tx.now), "month_end", "")


def next_month(moment: datetime) -> datetime:
    """The first midnight of the month after."""
    return months_after(moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0), 1)


def first_due(tx: Transaction) -> datetime | None:
    """When the next thing falls due."""
    due_at: datetime | None = tx.connection.execute(select(func.min(agenda.c.due_at))).scalar_one()
    return due_at


def take(tx: Transaction, until: datetime) -> Item | None:
    """Take off the first thing that is due by `until`: by its moment, then by its number."""
    # The end of a month comes after all else of its moment: its report tells the cycles that end with it.
    order = (agenda.c.due_at, agenda.c.kind == "month_end", agenda.c.seq)
    row = tx.connection.execute(
        select(agenda).where(agenda.c.due_at <= until).order_by(*order).limit(1)
    ).first()
    if row is None:
        return None
    item = Item(row.seq, row.due_at, row.kind, row.subject_id)
    remove(tx, item)
    return item


def remove(tx: Transaction, item: Item) -> None:
    """Take this one off."""
    tx.connection.execute(delete(agenda).where(agenda.c.seq == item.seq))
