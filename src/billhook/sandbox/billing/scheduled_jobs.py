"""The scheduled jobs of the sandbox's clock, stored in the database: schedule, cancel, and take the next."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, func, insert, select

from billhook.sandbox.clock import add_months
from billhook.sandbox.storage.tables.billing import scheduled_job
from billhook.sandbox.storage.transaction import Transaction

# Month-end runs last of all jobs due at one moment: its report includes the billing cycles that end then.
_ORDER = (scheduled_job.c.due_at, scheduled_job.c.kind == "month_end", scheduled_job.c.seq)


def schedule(tx: Transaction, due_at: datetime, kind: str, subject_id: str) -> None:
    """Schedule the job `kind` for `subject_id` at `due_at`.

    A moment that is past means now. The kinds are the keys of `sandbox.JOB_HANDLERS`.
    """
    # A job runs with tx.now set to its due time: one in the past would turn the time back.
    due_at = max(due_at, tx.now)
    tx.connection.execute(insert(scheduled_job).values(due_at=due_at, kind=kind, subject_id=subject_id))
    # After the commit this wakes the scheduler, which may sleep until a later job.
    tx.scheduled = True


def cancel(tx: Transaction, subject_id: str, kind: str | None = None) -> None:
    """Cancel the jobs of `subject_id`: all of them, or those of one kind."""
    which = scheduled_job.c.subject_id == subject_id
    if kind is not None:
        which &= scheduled_job.c.kind == kind
    tx.connection.execute(delete(scheduled_job).where(which))


def schedule_first_month_end(tx: Transaction) -> None:
    """Schedule the first end of a month, once for each database. Each end schedules the next one."""
    # A database that is opened again has it already.
    if (
        tx.connection.execute(select(scheduled_job.c.seq).where(scheduled_job.c.kind == "month_end")).first()
        is None
    ):
        schedule(tx, next_month_start(tx.now), "month_end", "")


def next_month_start(moment: datetime) -> datetime:
    """Return the first midnight of the month after `moment`."""
    return add_months(moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0), 1)


def next_due_at(tx: Transaction) -> datetime | None:
    """Return when the next job is due, or None without one."""
    due_at: datetime | None = tx.connection.execute(select(func.min(scheduled_job.c.due_at))).scalar_one()
    return due_at


def pop_due(tx: Transaction, until: datetime) -> Row[Any] | None:
    """Delete and return the first job that is due by `until`, or None.

    Jobs are taken in the order of their due times; of one moment, in the order in which they were scheduled.
    """
    job = tx.connection.execute(
        select(scheduled_job).where(scheduled_job.c.due_at <= until).order_by(*_ORDER).limit(1)
    ).first()
    if job is not None:
        discard(tx, job)
    return job


def upcoming(tx: Transaction, limit: int) -> Sequence[Row[Any]]:
    """Return the first `limit` jobs, in the order in which they will run."""
    return tx.connection.execute(select(scheduled_job).order_by(*_ORDER).limit(limit)).all()


def discard(tx: Transaction, item: Row[Any]) -> None:
    """Delete this job."""
    tx.connection.execute(delete(scheduled_job).where(scheduled_job.c.seq == item.seq))
