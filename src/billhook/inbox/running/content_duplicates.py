"""Content duplicates: deliveries sent again under another key, by a sender whose retries have new ids.

For a handler with an identity, the run of such a delivery is stored as discarded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, select

from billhook.inbox.tables.handler_names import ONE_NAME, StoredNames
from billhook.inbox.tables.records import RunPlan
from billhook.inbox.tables.schema import FIRST_OF_CONTENT, delivery, run
from billhook.inbox.tables.sql import in_values


def find_duplicates(
    connection: Connection, plans: Sequence[RunPlan], names: StoredNames = ONE_NAME
) -> dict[tuple[int, str], int]:
    """Find the planned runs whose handler has had the same content, with the id of that first delivery.

    Keys of the result are delivery ids and handlers' names; `names` are those that runs of a handler are
    stored under. The first delivery is the earliest planned for the handler with an equal content key that is
    no duplicate itself, received within the key's window before this one (or after it: an unreadable delivery
    may be read late). Of two that are planned together the second is the duplicate. On PostgreSQL only under
    billhook.inbox.tables.locks.
    """
    wanted = [
        (planned.delivery_id, handler, options.content_key)
        for planned in plans
        for handler, options in planned.options.items()
        if options.content_key is not None
    ]
    if not wanted:
        return {}
    own_names = {name: handler for _, handler, _ in wanted for name in names.get(handler, (handler,))}
    query = (
        select(run.c.handler, run.c.identity, run.c.delivery_id, delivery.c.received_at)
        .join(delivery, delivery.c.id == run.c.delivery_id)
        .where(
            in_values(run.c.handler, sorted(own_names)),
            in_values(run.c.identity, sorted({key.digest for _, _, key in wanted})),
            FIRST_OF_CONTENT,
            delivery.c.received_at
            >= min(key.received_at - timedelta(seconds=key.window_seconds) for _, _, key in wanted),
        )
        .order_by(run.c.id)
    )
    # Runs that may be the first, by handler and digest.
    originals: defaultdict[tuple[str, str], list[tuple[int, datetime]]] = defaultdict(list)
    for handler, digest, delivery_id, received_at in connection.execute(query):
        originals[own_names[handler], digest].append((delivery_id, received_at))
    duplicates: dict[tuple[int, str], int] = {}
    for delivery_id, handler, key in wanted:
        earlier = originals[handler, key.digest]
        window = timedelta(seconds=key.window_seconds)
        for original, received_at in earlier:
            # Not its own run, which is stored under a former name where another is to take it over.
            if original != delivery_id and abs(key.received_at - received_at) <= window:
                duplicates[delivery_id, handler] = original
                break
        else:
            earlier.append((delivery_id, key.received_at))
    return duplicates
