"""The outbox: subscriptions, events and the deliveries that are to be sent; and the log of all of them.

A subscription says which URL receives which type of event. Events are followed from raising to settling.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Row, delete, func, insert, select, update

from billhook.events import EVENT_TYPES, Event, PingTest
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.storage.database import Transaction, new_id
from billhook.sandbox.storage.repository import ListPage, fetch_page
from billhook.sandbox.storage.tables import applied_fault, attempt, delivery, raised_event, subscription
from billhook.sandbox.webhooks.faults import FaultKind
from billhook.sandbox.webhooks.http_post import destination

JITTER = 0.1
"""Share by which a retry's wait is randomly shorter or longer than the schedule says."""
STATES = ("pending", "delivered", "failed", "cancelled")


def raise_event(tx: Transaction, event: Event, *, only: Collection[str] | None = None) -> str:
    """Store `event` and enqueue a delivery for each subscription to its type, or for the ids in `only`.

    Returns the event's id. Source: spec, "Events".
    """
    event_id = new_id("evt")
    number = tx.scalar(
        insert(raised_event)
        .values(id=event_id, event_type=event.type, body=event.to_json(), raised_at=tx.now, cause=tx.cause)
        .returning(raised_event.c.seq)
    )
    _prune_events(tx, number)
    # One delivery for each subscription, also of one URL: each has its own thresholds and state.
    subscribed = select(subscription.c.id, subscription.c.callback_url).where(
        subscription.c.event_type == event.type
    )
    if only is not None:
        subscribed = subscribed.where(subscription.c.id.in_(only))
    for subscription_id, callback_url in tx.execute(subscribed).all():
        enqueue(tx, event_id, subscription_id, callback_url)
    return event_id


def enqueue(tx: Transaction, event_id: str, subscription_id: str, url: str) -> str:
    """Store a delivery of the event, due now. Returns the delivery's id."""
    delivery_id = new_id("dlv")
    tx.execute(
        insert(delivery).values(
            id=delivery_id, raised_id=event_id, subscription_id=subscription_id, url=url,
            state="pending", due_at=tx.real_now,
        )
    )  # fmt: skip
    tx.enqueued = True
    return delivery_id


def find_due(tx: Transaction, most: int, most_each: int, in_progress: Mapping[str, str]) -> list[Row[Any]]:
    """Return due deliveries with type and body of their event, oldest first, without those in progress.

    With these, given as destination by id, they are at most `most` in all, and `most_each` of a destination.
    """
    found: list[Row[Any]] = []
    busy = Counter(in_progress.values())
    waiting = select(delivery.c.seq).where(
        delivery.c.url == subscription.c.callback_url, delivery.c.due_at <= tx.real_now
    )
    urls = select(subscription.c.callback_url).where(waiting.exists()).distinct()
    of_url = (
        select(delivery, raised_event.c.event_type, raised_event.c.body)
        .join(raised_event, raised_event.c.id == delivery.c.raised_id)
        .where(delivery.c.due_at <= tx.real_now)
        .order_by(delivery.c.due_at, delivery.c.seq)
        # Twice as many as can start: some of them may be in progress.
        .limit(2 * most_each)
    )
    for url in tx.scalars(urls):
        if busy[destination(url)] < most_each:
            found += tx.execute(of_url.where(delivery.c.url == url))
    chosen: list[Row[Any]] = []
    for due in sorted(found, key=lambda one: (one.due_at, one.seq)):
        to = destination(due.url)
        if due.id not in in_progress and busy[to] < most_each and busy.total() < most:
            busy[to] += 1
            chosen.append(due)
    return chosen


def next_due_at(tx: Transaction) -> datetime | None:
    """Return when the next delivery falls due that is not due now, by the machine's time."""
    query = select(func.min(delivery.c.due_at)).where(delivery.c.due_at > tx.real_now)
    return tx.execute(query).scalar()


def count_due(tx: Transaction) -> int:
    """Return the number of deliveries that are due now, with those in progress."""
    query = select(func.count()).select_from(delivery).where(delivery.c.due_at <= tx.real_now)
    return tx.scalars(query).one()


def settle(tx: Transaction, due: Row[Any], made: Sequence[Mapping[str, Any]]) -> None:
    """Store the attempts and the delivery's new state; schedule a retry unless one succeeded."""
    counted = select(func.count()).select_from(attempt).where(attempt.c.delivery_id == due.id)
    before = tx.scalars(counted).one()
    for number, one in enumerate(made, before + 1):
        faults = ", ".join(filter(None, [due.held_up_by, one["fault"]])) or None
        columns = {**one, "delivery_id": due.id, "number": number, "fault": faults}
        tx.execute(insert(attempt).values(**columns))
    schedule = tx.options.retry_seconds
    state, due_at = "failed", None
    if any(one["error"] is None for one in made):
        state = "delivered"
    elif due.attempts < len(schedule) and not any(one["fault"] is FaultKind.LOSE for one in made):
        seed = tx.options.effective_random_seed
        # Jitter spreads the retries of deliveries that failed together.
        generator = random.Random(None if seed is None else f"{seed}:{due.seq}:{due.attempts}")  # noqa: S311
        seconds = schedule[due.attempts] * generator.uniform(1 - JITTER, 1 + JITTER)
        state, due_at = "pending", tx.real_now + timedelta(seconds=seconds)
    # A delivery that was cancelled during the attempt stays cancelled.
    tx.execute(
        update(delivery)
        .where(delivery.c.id == due.id, delivery.c.state == "pending")
        .values(state=state, due_at=due_at, attempts=due.attempts + 1, held=False, held_up_by=None)
    )
    # The fault `reorder` holds a delivery until a later one to the same URL was attempted.
    tx.execute(
        update(delivery)
        .where(delivery.c.held, delivery.c.url == due.url, delivery.c.seq < due.seq)
        .values(held=False, due_at=tx.real_now)
    )


def _prune_events(tx: Transaction, newest: int) -> None:
    """Delete the events before the newest `keep_events`, with their deliveries; unsent ones are kept.

    It runs once for each tenth of `keep_events`, so up to a tenth more is stored, and an event costs little.
    """
    keep = tx.options.keep_events
    if newest % max(1, keep // 10) != 0:
        return
    unsent = select(delivery.c.seq).where(
        delivery.c.raised_id == raised_event.c.id, delivery.c.due_at.is_not(None)
    )
    events = select(raised_event.c.id).where(raised_event.c.seq <= newest - keep, ~unsent.exists())
    deliveries = select(delivery.c.id).where(delivery.c.raised_id.in_(events))
    # Children first: their foreign keys refer to the deliveries.
    for table in (attempt, applied_fault):
        tx.execute(delete(table).where(table.c.delivery_id.in_(deliveries)))
    tx.execute(delete(delivery).where(delivery.c.raised_id.in_(events)))
    tx.execute(delete(raised_event).where(raised_event.c.id.in_(events)))


def check_event_type(name: str | None) -> None:
    """Reject the name of an event type that there is not; None is no name."""
    if name not in (None, *EVENT_TYPES):
        raise invalid_request(f"eventType is not one of the {len(EVENT_TYPES)} types", "eventType")


def subscribe(
    tx: Transaction, url: str, event_type: str, threshold: Decimal | None, recurring_threshold: Decimal | None
) -> str:
    """Return the id of the subscription with this URL, type and thresholds; create it if there is none."""
    thresholds = {"threshold": threshold, "recurring_threshold": recurring_threshold}
    there = tx.execute(
        select(subscription).where(
            subscription.c.callback_url == url, subscription.c.event_type == event_type
        )
    )
    for row in there:  # compared in Python: as texts in the columns, 80 and 80.0 differ
        if (row.threshold, row.recurring_threshold) == (threshold, recurring_threshold):
            return str(row.id)
    subscription_id = new_id("sub")
    tx.execute(
        insert(subscription).values(
            id=subscription_id, callback_url=url, event_type=event_type, created_at=tx.now, **thresholds
        )
    )
    return subscription_id


def ping_subscription(tx: Transaction, subscription_id: str, url: str) -> tuple[str, str]:
    """Send a PingTest to the URL, for any subscribed type. Returns the ids of event and delivery."""
    # only=(): the ping goes to this URL, not to the subscriptions to PingTest.
    raised_id = raise_event(tx, PingTest(), only=())
    return raised_id, enqueue(tx, raised_id, subscription_id, url)


def cancel_subscription(tx: Transaction, subscription_id: str) -> None:
    """Delete the subscription and cancel its pending deliveries; the others stay in the log."""
    tx.execute(delete(subscription).where(subscription.c.id == subscription_id))
    # An attempt in progress ends as it will: `settle` leaves the state cancelled.
    tx.execute(
        update(delivery)
        .where(delivery.c.subscription_id == subscription_id, delivery.c.state == "pending")
        .values(state="cancelled", due_at=None, held=False)
    )


def attempts_of(tx: Transaction, delivery_ids: Sequence[str]) -> dict[str, list[Row[Any]]]:
    """Return the attempts of each delivery, in the order in which they ended."""
    found: dict[str, list[Row[Any]]] = {delivery_id: [] for delivery_id in delivery_ids}
    query = select(attempt).where(attempt.c.delivery_id.in_(found)).order_by(attempt.c.seq)
    for row in tx.execute(query):
        found[row.delivery_id].append(row)
    return found


def send_again(tx: Transaction, delivery_id: str) -> None:
    """Make a delivery due now, under the same id, with the whole schedule of retries."""
    tx.execute(
        update(delivery)
        .where(delivery.c.id == delivery_id)
        # attempts=0 restarts the schedule; the log still numbers its attempts on.
        .values(state="pending", attempts=0, due_at=tx.real_now, held=False)
    )
    tx.enqueued = True


@dataclass(frozen=True, slots=True)
class DeliveryTrace:
    """A delivery with its attempts, oldest first: rows of the tables `delivery` and `attempt`."""

    delivery: Row[Any]
    attempts: Sequence[Row[Any]]


@dataclass(frozen=True, slots=True)
class EventGroup:
    """The events that one cause, an operation or a job, raised at the same time, oldest first."""

    cause: str
    at: datetime
    events: Sequence[Row[Any]]


def timeline(
    tx: Transaction, limit: int, cursor: str | None, *where: ColumnElement[bool]
) -> ListPage[EventGroup]:
    """Return the newest `limit` events that match, after `cursor`, by cause; the total counts events.

    A group that does not fit on a page is continued on the next one.
    """
    page = fetch_page(
        tx, select(raised_event).where(*where), limit, cursor, raised_event.c.seq, newest_first=True
    )
    groups = [
        EventGroup(cause, at, list(events)[::-1])
        for (cause, at), events in groupby(page.items, key=lambda one: (one.cause, one.raised_at))
    ]
    return ListPage(groups, page.total, page.next_cursor)


def count_states(tx: Transaction) -> dict[str, int]:
    """Return the number of deliveries in each state that has some."""
    query = select(delivery.c.state, func.count()).group_by(delivery.c.state).order_by(delivery.c.state)
    return {row[0]: row[1] for row in tx.execute(query)}


def deliveries_of(tx: Transaction, event_ids: Sequence[str]) -> dict[str, list[DeliveryTrace]]:
    """Return the deliveries of each event, oldest first."""
    # One query for the deliveries of all events, and one for the attempts of all deliveries.
    found: dict[str, list[DeliveryTrace]] = {event_id: [] for event_id in event_ids}
    query = select(delivery).where(delivery.c.raised_id.in_(found)).order_by(delivery.c.seq)
    rows = tx.execute(query).all()
    attempts = attempts_of(tx, [row.id for row in rows])
    for row in rows:
        found[row.raised_id].append(DeliveryTrace(row, attempts[row.id]))
    return found
