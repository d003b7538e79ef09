"""Deliveries that came again under another key: a sender that signs its retries anew, with a new id."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, select

from billhook.inbox.clauses import among
from billhook.inbox.records import Likeness, Plan
from billhook.inbox.schema import delivery, run

__all__ = ["find_twins", "reason"]

Duty = tuple[int, str]
"""A delivery's id, and the handler's name."""


def find_twins(connection: Connection, plans: Sequence[Plan]) -> dict[Duty, int]:
    """Of the plans' runs those whose handler had the like already, with the id of that delivery.

    That is the first delivery planned for the handler that is alike, no twin itself, and not received
    longer before (or after: an unreadable one may be read late) than the likeness lasts. Of two that are
    planned together the second is the twin. Where there are no table locks, call it only under
    billhook.inbox.locks.
    """
    wanted = list(_wanted(plans))
    if not wanted:
        return {}
    known = _known(connection, [(handler, likeness) for _, handler, likeness in wanted])
    twins: dict[Duty, int] = {}
    for delivery_id, handler, likeness in wanted:
        had = known[handler, likeness.digest]
        window = timedelta(seconds=likeness.window_seconds)
        for original, received_at in had:
            if abs(likeness.received_at - received_at) <= window:
                twins[delivery_id, handler] = original
                break
        else:
            had.append((delivery_id, likeness.received_at))
    return twins


def reason(original: int, likeness: Likeness) -> str:
    """Why a twin's run is discarded, in words."""
    return f"twin of delivery {original}: same {', '.join(likeness.fields)}"


def _wanted(plans: Sequence[Plan]) -> Iterator[tuple[int, str, Likeness]]:
    for plan in plans:
        for handler, terms in plan.terms.items():
            if terms.likeness is not None:
                yield plan.delivery_id, handler, terms.likeness


def _known(
    connection: Connection, wanted: Sequence[tuple[str, Likeness]]
) -> defaultdict[tuple[str, str], list[tuple[int, datetime]]]:
    """The runs that may be originals, by handler and digest: delivery ids and times of receipt."""
    since = min(each.received_at - timedelta(seconds=each.window_seconds) for _, each in wanted)
    query = (
        select(run.c.handler, run.c.identity, run.c.delivery_id, delivery.c.received_at)
        .join(delivery, delivery.c.id == run.c.delivery_id)
        .where(
            among(run.c.handler, sorted({handler for handler, _ in wanted})),
            among(run.c.identity, sorted({each.digest for _, each in wanted})),
            run.c.identity.is_not(None),  # with the next line what the index says of itself
            run.c.twin_of.is_(None),
            delivery.c.received_at >= since,
        )
        .order_by(run.c.id)
    )
    found: defaultdict[tuple[str, str], list[tuple[int, datetime]]] = defaultdict(list)
    for handler, digest, delivery_id, received_at in connection.execute(query):
        found[handler, digest].append((delivery_id, received_at))
    return found
