"""The end of a month: late usage is billed. Of the month's reports the specification shows only the ids.

Source: spec, "Events", MonthEndReport and UnchargedEvents.
"""

from __future__ import annotations

from sqlalchemy import func, or_, select

from billhook.events import MonthEndReport, UnchargedEvents
from billhook.sandbox import scheduled_jobs
from billhook.sandbox.billing import contract_lifecycle
from billhook.sandbox.clock import add_months
from billhook.sandbox.storage.database import Transaction, new_id
from billhook.sandbox.storage.tables import event
from billhook.sandbox.webhooks.outbox import raise_event

_REPORTED_KEY = "reported_events"
"""The serial number of the newest event at the last report."""


def handle_month_end(tx: Transaction, _: str) -> None:
    """Handle the job `month_end`: bill late usage, and schedule the next month's end.

    Emits MonthEndReport; and UnchargedEvents if no meter counted some of the month's events.
    """
    # tx.now is the job's due time: the first midnight of a month.
    start, end = add_months(tx.now, -1), tx.now
    scheduled_jobs.schedule(tx, scheduled_jobs.next_month_start(end), "month_end", "")
    contract_lifecycle.bill_late_usage(tx)
    raise_event(tx, MonthEndReport(date=tx.now, report_id=new_id("rep")))
    reported = tx.setting(_REPORTED_KEY) or 0
    tx.store_setting(_REPORTED_KEY, tx.scalar(select(func.max(event.c.seq))))
    # Of the month, or of an earlier one whose report it came too late for.
    new = or_(event.c.at >= start, event.c.seq > reported)
    if tx.any(event, event.c.meter_ids == "", event.c.at < end, new):
        raise_event(tx, UnchargedEvents(date=tx.now, report_id=new_id("rep")))
