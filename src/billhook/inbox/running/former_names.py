"""Write the former names of handlers: the `aliases` in the list of handlers of a process.

So a command knows them without the app. The newest list of live processes decides: after a roll-back a name
is a handler's own again. With `aliases=("chase",)` in the newest list:

    the row of chase           renamed_to = billing.chase
    --handler billing.chase    runs under billing.chase and under chase, as with --handler chase
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from sqlalchemy import Connection, select, update

from billhook.inbox.running.handler_lists import NEWEST_LIST, HandlerList
from billhook.inbox.running.limits import pause_renamed
from billhook.inbox.running.ordering import release_next, waiting_keys
from billhook.inbox.running.workers import WORKER_SILENT_AFTER
from billhook.inbox.tables.database import Database
from billhook.inbox.tables.dialect import dialect_of
from billhook.inbox.tables.handler_names import present_names, stored_names
from billhook.inbox.tables.locks import lock_order
from billhook.inbox.tables.schema import handler
from billhook.inbox.tables.sql import in_values


def record_former_names(
    database: Database, own: HandlerList | None, number: int | None, now: datetime
) -> None:
    """Write the former names of a list's handlers, if it is the newest of live processes, which this one is.

    A name that one of its handlers has itself is no former name, nor is one that its handler has given up.
    Two orders become one with a rename, and two again with a roll-back, when the run that one waited for may
    be in the other: what waits in the orders of renamed handlers behind nothing is made due. A handler that
    is paused under one of its names is paused under all.
    """
    if own is None or number is None:
        return
    with database.read() as connection:
        known = present_names(connection)
    wanted = {former: name for name in sorted(own.names) for former in own.aliases.get(name, ())}
    wanted = {former: name for former, name in wanted.items() if former not in own.names}
    written = {former: name for former, name in wanted.items() if known.get(former) != name}
    cleared = {
        former
        for former, name in known.items()
        if former in own.names or (name in own.names and former not in wanted)
    }
    if not (wanted or cleared):
        return
    since = {"alive_since": now - WORKER_SILENT_AFTER}
    with database.write() as connection:
        lock_order(connection)
        before = stored_names(connection)
        is_newest = (connection.execute(select(NEWEST_LIST), since).scalar() or number) <= number
        if is_newest:
            _write(connection, written, cleared)
        names = stored_names(connection)
        alone = {name: (name,) for name in before if name not in names}
        release_next(connection, waiting_keys(connection, {**names, **alone}), now)
        if is_newest and written:
            pause_renamed(connection, {*written.values()})


def _write(connection: Connection, written: Mapping[str, str], cleared: Collection[str]) -> None:
    if cleared:
        gone = update(handler).where(in_values(handler.c.name, sorted(cleared)))
        connection.execute(gone.values(renamed_to=None))
    for former, name in sorted(written.items()):
        # Another process may insert it at the same time.
        row = dialect_of(connection).insert(handler).values(name=former, renamed_to=name)
        same = [handler.c.name]
        connection.execute(row.on_conflict_do_update(index_elements=same, set_={"renamed_to": name}))
