"""Asking for stored events. Source: spec, "Endpoints", GET /events."""

from __future__ import annotations

from sqlalchemy import BigInteger, select, type_coerce

from billhook.resources import EventQuery
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.storage.paging import Page, page_of
from billhook.sandbox.storage.tables.usage import event
from billhook.sandbox.transaction import Transaction

__all__ = ["history"]


def history(tx: Transaction, query: EventQuery, limit: int) -> Page[str]:
    """One page of the events of a range, each as its JSON.

    They are in the order of their timestamps, those of one moment in the order in which they came.
    """
    if query.end_time < query.start_time:
        raise invalid_request("endTime is before startTime", "startTime", "endTime")
    where = [event.c.at >= query.start_time, event.c.at < query.end_time]
    if query.event_name is not None:
        where.append(event.c.name == query.event_name)
    if query.customer_alias is not None:
        where.append(event.c.alias == query.customer_alias)
    order = [type_coerce(event.c.at, BigInteger), event.c.seq]
    found = page_of(tx.connection, select(event.c.body).where(*where), order, limit, query.cursor, event.name)
    return found.of(lambda row: row.body)
