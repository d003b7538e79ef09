"""Speaking to psycopg directly: connections that do not hang, and a batch stored in one round trip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg.abc import RV, PQGen

from billhook.inbox.records import Incoming

__all__ = ["PatientConnection", "connect", "insert", "session_options"]


class PatientConnection(psycopg.Connection[Any]):
    """Gives up after `patience_seconds` without an answer, and closes.

    The server's own time-outs are of no use against a server that is stopped, or gone from the network.
    """

    patience_seconds: float | None = None

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """As psycopg's; every statement comes through here."""
        if timeout is not None or self.patience_seconds is None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.patience_seconds)
        except psycopg.OperationalError as error:
            if error.sqlstate is not None or self.pgconn.status != psycopg.pq.ConnStatus.OK:
                raise
            # Neither the server's word nor a broken line: the time was over, in the middle of an answer.
            self.close()
            raise psycopg.OperationalError(f"no answer within {self.patience_seconds:g} s") from None


def session_options(given: str, patience_seconds: float | None) -> str:
    """What the server is told of each connection: wait for the disk, and hold no lock for the dead."""
    settings = {"synchronous_commit": "on", "TimeZone": "UTC"}
    if patience_seconds is not None:
        milliseconds = str(int(patience_seconds * 1000))
        settings["statement_timeout"] = settings["idle_in_transaction_session_timeout"] = milliseconds
    return " ".join(filter(None, [given, *(f"-c {name}={value}" for name, value in settings.items())]))


def connect(arguments: Mapping[str, Any], patience_seconds: float | None, **more: Any) -> PatientConnection:
    """Open a connection; psycopg.Error if it cannot be. `arguments` are libpq's, and win over ours."""
    options = session_options(arguments.get("options", ""), patience_seconds)
    defaults = {"connect_timeout": 2, "application_name": "billhook", "keepalives_idle": 10}
    connection = PatientConnection.connect(**{**defaults, **arguments, "options": options}, **more)
    connection.patience_seconds = patience_seconds
    return connection


_INSERT_NEW = """
    INSERT INTO delivery (source, key, event_type, body, headers, signed_at, received_at, state)
    SELECT source, key, event_type, body, headers, signed_at, received_at, 'received'
    FROM unnest(%s::text[], %s::text[], %s::text[], %s::bytea[], %s::text[], %s::timestamptz[],
                %s::timestamptz[])
         WITH ORDINALITY AS new (source, key, event_type, body, headers, signed_at, received_at, number)
    ORDER BY number
    ON CONFLICT (source, key) DO NOTHING
    RETURNING id
"""


def insert(connection: psycopg.Connection[Any], rows: Sequence[Incoming]) -> list[int]:
    """Commit the rows that are new; see billhook.inbox.database.Database.insert_new.

    In the order of their keys: of two processes with the same two deliveries none waits for the other
    while the other waits for it.
    """
    order = sorted(range(len(rows)), key=lambda number: (rows[number].source, rows[number].key))
    columns = [
        [getattr(rows[number], name) for number in order]
        for name in ("source", "key", "event_type", "body", "headers", "signed_at", "received_at")
    ]
    ids = sorted(row[0] for row in connection.execute(_INSERT_NEW, columns, binary=True))
    if len(ids) < len(rows):
        return ids
    return [delivery_id for _, delivery_id in sorted(zip(order, ids, strict=True))]
