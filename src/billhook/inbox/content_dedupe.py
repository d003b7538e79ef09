"""Content duplicates: deliveries sent again under another key, by senders whose retries have new ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, select

from billhook.inbox.records import ContentKey, RunPlan
from billhook.inbox.schema import delivery, run
from billhook.inbox.sql import in_values

__all__ = ["duplicate_reason", "find_duplicates"]

Duty = tuple[int, str]
"""A delivery's id, and the handler's name."""


def find_duplicates(connection: Connection, plans: Sequence[RunPlan]) -> dict[Duty, int]:
    """Find the planned runs whose handler has had the same content, with the id of that first delivery.

    The first delivery is the earliest planned for the handler with an equal content key that is no duplicate
    itself, received within the key's window before this one (or after it: an unreadable delivery may be read
    late). Of two that are planned together the second is the duplicate. On PostgreSQL only under
    billhook.inbox.locks.
    """
    wanted = list(_wanted(plans))
    if not wanted:
        return {}
    known = _known(connection, [(handler, content_key) for _, handler, content_key in wanted])
    duplicates: dict[Duty, int] = {}
    for delivery_id, handler, content_key in wanted:
        had = known[handler, content_key.digest]
        window = timedelta(seconds=content_key.window_seconds)
        for original, received_at in had:
            if abs(content_key.received_at - received_at) <= window:
                duplicates[delivery_id, handler] = original
                break
        else:
            had.append((delivery_id, content_key.received_at))
    return duplicates


def duplicate_reason(original: int, content_key: ContentKey) -> str:
    """Return the text of why a duplicate run is discarded."""
    return f"twin of delivery {original}: same {', '.join(content_key.fields)}"


def _wanted(plans: Sequence[RunPlan]) -> Iterator[tuple[int, str, ContentKey]]:
    for plan in plans:
        for handler, options in plan.options.items():
            if options.content_key is not None:
                yield plan.delivery_id, handler, options.content_key


def _known(
    connection: Connection, wanted: Sequence[tuple[str, ContentKey]]
) -> defaultdict[tuple[str, str], list[tuple[int, datetime]]]:
    """Return runs that may be the first, by handler and digest: delivery ids and times of receipt."""
    since = min(each.received_at - timedelta(seconds=each.window_seconds) for _, each in wanted)
    query = (
        select(run.c.handler, run.c.identity, run.c.delivery_id, delivery.c.received_at)
        .join(delivery, delivery.c.id == run.c.delivery_id)
        .where(
            in_values(run.c.handler, sorted({handler for handler, _ in wanted})),
            in_values(run.c.identity, sorted({each.digest for _, each in wanted})),
            run.c.identity.is_not(None),  # with the next line, so that the partial index applies
            run.c.twin_of.is_(None),
            delivery.c.received_at >= since,
        )
        .order_by(run.c.id)
    )
    found: defaultdict[tuple[str, str], list[tuple[int, datetime]]] = defaultdict(list)
    for handler, digest, delivery_id, received_at in connection.execute(query):
        found[handler, digest].append((delivery_id, received_at))
    return found
