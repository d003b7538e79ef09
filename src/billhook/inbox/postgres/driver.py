"""Speaking to psycopg directly: connections that do not hang, and a batch stored in one round trip."""

from __future__ import annotations

import logging
import re
import select
import time
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.conninfo import make_conninfo
from sqlalchemy import Connection, text
from sqlalchemy.exc import DisconnectionError

from billhook.errors import ConfigError
from billhook.inbox.postgres.place import quoted, schemas_in
from billhook.inbox.records import Incoming

__all__ = [
    "PatientConnection",
    "connect",
    "insert",
    "is_lost",
    "known",
    "reason",
    "replace_lost",
    "session_options",
    "tell_of_fsync",
]

logger = logging.getLogger("billhook.inbox")

WEAK = ("off", "local", "remote_write")
"""Settings of synchronous_commit that answer before the disk, here or on a standby, has it."""


_SETTINGS = "SELECT current_setting('synchronous_commit'), current_setting('search_path')"


class PatientConnection(psycopg.Connection[Any]):
    """Gives up after `patience_seconds` without an answer, and closes.

    The server's own time-outs are of no use against a server that is stopped, or gone from the network.
    """

    patience_seconds: float | None = None

    def wait(self, gen: PQGen[RV], *how: Any, **more: Any) -> RV:
        """As psycopg's; every statement comes through here."""
        if self.patience_seconds is None:
            return super().wait(gen, *how, **more)
        return super().wait(self._patiently(gen, self.patience_seconds), *how, **more)

    def _patiently(self, gen: PQGen[RV], seconds: float) -> PQGen[RV]:
        """The steps of `gen`, each taken when psycopg has waited for it: for ever, if nobody counted.

        When the time is over one more is taken: this process may have slept, and the answer be there.
        """
        end, late = time.monotonic() + seconds, False
        try:
            step = next(gen)
            while True:
                step = gen.send((yield step))
                if late:
                    self.close()
                    raise psycopg.OperationalError(f"no answer within {seconds:g} s")
                late = time.monotonic() > end
        except StopIteration as done:
            answer: RV = done.value
            return answer


def session_options(given: str, patience_seconds: float | None, schema: str | None = None) -> str:
    """What the server is told of each connection: wait for the disk, and hold no lock for the dead.

    `given` comes from the URL. It may set other time-outs, and not whether a commit is on the disk, nor, if
    `schema` says which, in which schema.
    """
    milliseconds = str(int((patience_seconds or 0) * 1000))  # 0: no limit, whatever the role's own is
    limits = {"statement_timeout": milliseconds, "idle_in_transaction_session_timeout": milliseconds}
    fixed = {
        "synchronous_commit": "on",
        "default_transaction_isolation": r"read\ committed",
        "TimeZone": "UTC",
    }
    if schema is not None:
        fixed["search_path"] = re.sub(r"([\\\s])", r"\\\1", quoted(schema))
    before, after = (
        [f"-c {name}={value}" for name, value in settings.items()] for settings in (limits, fixed)
    )
    return " ".join(filter(None, [*before, given, *after]))


def known(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same, if libpq knows all of them: nothing that happens later mends a wrong name. ConfigError."""
    try:
        make_conninfo(**arguments)
    except psycopg.ProgrammingError as error:
        raise ConfigError(f"BILLHOOK_INBOX_URL: {reason(error)}") from None
    return arguments


def connect(
    arguments: Mapping[str, Any],
    patience_seconds: float | None,
    *,
    schema: str | None = None,
    autocommit: bool = False,
) -> PatientConnection:
    """Open a connection; `arguments` are libpq's, and win over ours. Raises psycopg.Error or OSError.

    With `schema` it sees the tables there and no others; without, those that its URL and role say.
    """
    defaults = {
        "connect_timeout": 2,
        "application_name": "billhook",
        # A listener is silent for hours: these tell within a minute that nobody is there any more.
        "keepalives_idle": 10,
        "keepalives_interval": 10,
        "keepalives_count": 3,
    }
    options = session_options(arguments.get("options", ""), patience_seconds, schema)
    connection = PatientConnection.connect(**{**defaults, **arguments, "options": options}, autocommit=True)
    try:
        connection.patience_seconds = patience_seconds
        ((durable, path),) = connection.execute(_SETTINGS).fetchall()
        if durable in WEAK:  # something between us and the server has its own way with options
            need = f"synchronous_commit is {durable!r}, need 'on'"
            raise psycopg.OperationalError(need)  # noqa: TRY301 - closed below like any other failure
        if schema is not None and schemas_in(path) != [schema]:
            need = (
                f"search_path is {path!r}, need {quoted(schema)!r}: a pooler drops it, set it with ALTER ROLE"
            )
            raise psycopg.OperationalError(need)  # noqa: TRY301 - as above
        connection.autocommit = autocommit
    except BaseException:
        connection.close()
        raise
    return connection


def is_lost(connection: psycopg.Connection[Any]) -> bool:
    """Whether an idle connection has ended meanwhile: unasked, a server says nothing but goodbye."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def replace_lost(connection: psycopg.Connection[Any], *_: object) -> None:
    """The pool's connections may have ended while they lay there; SQLAlchemy opens another then."""
    if is_lost(connection):
        raise DisconnectionError("the server ended it")


def tell_of_fsync(connection: Connection, place: str) -> None:
    """Warn of a server that does not wait for its disk: it is the operator's to mend, not ours to refuse."""
    if connection.execute(text("SHOW fsync")).scalar_one() != "on":
        lost = "what was answered 200 may be gone after a power cut"
        logger.warning("the server of %s runs with fsync=off: %s", place, lost)


def reason(error: BaseException | None) -> str:
    """What went wrong, in one line. Not the server's DETAIL, which may show a row, and so a body."""
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return " ".join((primary or str(error)).split())


_COLUMNS = ("source", "key", "event_type", "body", "digest", "headers", "signed_at", "received_at")
_INSERT_NEW = """
    INSERT INTO delivery (source, key, event_type, body, digest, headers, signed_at, received_at, state)
    SELECT source, key, event_type, body, digest, headers, signed_at, received_at, 'received'
    FROM unnest(%s::text[], %s::text[], %s::text[], %s::bytea[], %s::bytea[], %s::text[], %s::timestamptz[],
                %s::timestamptz[])
         WITH ORDINALITY
         AS new (source, key, event_type, body, digest, headers, signed_at, received_at, number)
    ORDER BY number
    ON CONFLICT (source, key, slot) DO NOTHING
    RETURNING id
"""


def insert(connection: psycopg.Connection[Any], rows: Sequence[Incoming]) -> list[int]:
    """Commit the rows that are new; see billhook.inbox.database.Database.insert_new.

    In the order of their keys: of two processes with the same two deliveries none waits for the other
    while the other waits for it.
    """
    order = sorted(range(len(rows)), key=lambda number: (rows[number].source, rows[number].key))
    columns = [[getattr(rows[number], name) for number in order] for name in _COLUMNS]
    ids = sorted(row[0] for row in connection.execute(_INSERT_NEW, columns, binary=True))
    if len(ids) < len(rows):
        return ids
    return [delivery_id for _, delivery_id in sorted(zip(order, ids, strict=True))]
