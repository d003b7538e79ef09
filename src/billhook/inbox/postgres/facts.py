"""The facts of an inbox on PostgreSQL, for `billhook doctor`."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection, func, literal_column, select, table, text

from billhook.basics.printable import printable
from billhook.clock import format_duration
from billhook.inbox.postgres.roles import connection_limits
from billhook.inbox.tables.database import CONNECTIONS_PER_PROCESS, Database
from billhook.inbox.tables.facts import NO_ROW_SECURITY, ConnectionLimit, Problem, RowSecurity

_BYTES = text(
    "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class"
    " WHERE relkind = 'r' AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = :schema)"
)
_SEQUENCES = text(
    "SELECT t.relname AS name, quote_ident(n.nspname) || '.' || quote_ident(t.relname) AS quoted,"
    " quote_ident(a.attname) AS id, quote_ident(n.nspname) || '.' || quote_ident(s.relname) AS sequence"
    " FROM pg_class s JOIN pg_namespace n ON n.oid = s.relnamespace AND n.nspname = :schema"
    " JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass"
    " AND d.objid = s.oid AND d.deptype IN ('a', 'i')"
    " JOIN pg_class t ON t.oid = d.refobjid JOIN pg_attribute a ON a.attrelid = t.oid"
    " AND a.attnum = d.refobjsubid"
    # CASE, as the function fails for a table, and the server may evaluate the conditions in any order.
    " WHERE CASE WHEN s.relkind = 'S' THEN has_sequence_privilege(s.oid, 'USAGE, SELECT') END"
    " ORDER BY t.relname"
)
_LAST = text("SELECT coalesce(pg_sequence_last_value(cast(:sequence AS regclass)), 0)")
# One that only reads holds no snapshot between its statements, unless it is REPEATABLE READ, as a dump's is.
_OPEN = text(
    "SELECT pid, application_name AS application, extract(epoch FROM now() - xact_start)::float8 AS seconds"
    " FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
    " AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid()"
    " AND xact_start <= now() - make_interval(secs => :seconds) ORDER BY xact_start LIMIT 1"
)
_LONG_OPEN_SECONDS = 300.0
_OLDEST = 15
_MIB = 1024 * 1024
_NAMES = text("SELECT quote_ident(current_user), quote_ident(:schema)")


class SequenceBehind(NamedTuple):
    """A sequence that will give a table ids that it has already. Names are quoted for SQL."""

    table: str
    column: str
    sequence: str
    last: int
    highest: int


class OpenTransaction(NamedTuple):
    """A transaction of another connection that keeps what was changed since it began from being removed."""

    pid: int
    application: str
    seconds: float


@dataclass(frozen=True, slots=True)
class PostgresFacts:
    """What is known of an inbox on PostgreSQL. `local`: no network is between; `sslmode` is libpq's.

    `limits` are those of the connections that `role` may have. `role` and `schema` are quoted for SQL.
    """

    place: str
    version: int
    fsync: bool
    full_page_writes: bool
    autovacuum: bool
    superuser: bool
    local: bool
    encrypted: bool
    sslmode: str
    pooler: Literal["transaction", "session"] | None = None
    """What is taken to be kept by a pooler that was found in between."""
    inbox_bytes: int = 0
    role: str = ""
    schema: str = ""
    row_security: RowSecurity = NO_ROW_SECURITY
    limits: Sequence[ConnectionLimit] = ()
    behind: Sequence[SequenceBehind] = ()
    open_transaction: OpenTransaction | None = None
    """The one that has been open longest, if that is long; not of a role whose connections are not shown."""

    @property
    def size_text(self) -> str:
        """The size, and the server."""
        return f"{self.inbox_bytes / _MIB:,.1f} MiB, PostgreSQL {self.version}"

    def problems(self, web: int, workers: int) -> Iterator[Problem]:
        """Judge the server, the way to it and the role."""
        if self.version < _OLDEST:
            yield Problem(
                "error", "postgres-version", f"the server is PostgreSQL {self.version}",
                f"billhook needs {_OLDEST} or newer", "upgrade the server",
            )  # fmt: skip
        if not (self.fsync and self.full_page_writes):
            yield Problem(
                "error", "postgres-fsync", "the server runs with fsync or full_page_writes off",
                "what was answered 200 may be gone, and the database corrupt, after a power failure",
                "set both to on in postgresql.conf and restart the server",
            )  # fmt: skip
        if not self.autovacuum:
            yield Problem(
                "warning", "postgres-autovacuum", "the server runs with autovacuum or track_counts off",
                "what is updated and deleted is never freed: tables and indexes grow with every delivery",
                "set both to on in postgresql.conf and reload it, or run VACUUM ANALYZE from cron",
            )  # fmt: skip
        if (one := self.open_transaction) is not None:
            of = f"of {printable(one.application)} " if one.application else ""
            end = f"`pg_terminate_backend({one.pid})`"
            yield Problem(
                "warning", "postgres-open-transaction",
                f"a transaction {of}(pid {one.pid}) has been open for {format_duration(one.seconds)}",
                "the server keeps all rows that have changed since: tables grow, and pages, counts and "
                "handlers with limits become slower with each delivery until it ends",
                f"end it, or have an administrator call {end}; back up from a standby or by pg_basebackup, "
                "and set idle_in_transaction_session_timeout",
            )  # fmt: skip
        if not self.local and self.sslmode != "verify-full":
            how = "without TLS" if not self.encrypted else f"with sslmode={self.sslmode}"
            yield Problem(
                "warning", "postgres-tls", f"{self.place} is reached over a network {how}",
                "libpq does not check who answers: another machine could read the password and every body",
                "end BILLHOOK_INBOX_URL in ?sslmode=verify-full&sslrootcert=system",
            )  # fmt: skip
        if self.pooler == "transaction":
            yield Problem(
                "note", "pooler", "a pooler is before the server, taken to keep no session for a connection",
                "each transaction sets what it depends on, and workers are not notified: they poll every 2 s",
                "give workers the server's own address, or set BILLHOOK_INBOX_POOL_MODE=session if it keeps "
                "one",
            )  # fmt: skip
        elif self.pooler == "session":
            yield Problem(
                "note", "pooler", "a pooler is before the server, taken to keep a session for a connection",
                "if it does not, what was answered 200 may be gone after a power failure",
                "see that its pool_mode is session, or leave BILLHOOK_INBOX_POOL_MODE out",
            )  # fmt: skip
        if self.superuser:
            yield Problem(
                "warning", "postgres-superuser", "billhook's role is a superuser of the server",
                "an attacker who gets into a web process can read and change every database",
                "make a role of its own: GRANT CREATE ON DATABASE … is all that `billhook db upgrade` needs",
            )  # fmt: skip
        yield from self._about_sequences()
        yield from self._about_row_security()
        yield from self._about_connections(web, workers)

    def _about_sequences(self) -> Iterator[Problem]:
        """Judge whether new rows get new ids."""
        if self.behind:
            found = ", ".join(f"{one.sequence} is at {one.last}" for one in self.behind)
            rows = ", ".join(f"{one.table} has {one.highest}" for one in self.behind)
            mend = "; ".join(
                f"SELECT setval('{one.sequence}', (SELECT max({one.column}) FROM {one.table}))"  # noqa: S608 - shown
                for one in self.behind
            )
            yield Problem(
                "error", "postgres-sequences", f"sequences are behind the rows: {found}, and {rows}",
                "rows were copied without them, as by logical replication: a new row gets an id that another "
                "has, so a delivery is answered 503, or no worker can handle it",
                f"stop receivers and workers, have the tables' owner run `{mend}`, and start them",
            )  # fmt: skip

    def _about_row_security(self) -> Iterator[Problem]:
        role, protected = self.role, self.row_security
        names = [f"{self.schema}.{table}" for table in protected.missing]
        policies = "; ".join(f"CREATE POLICY billhook ON {name} TO {role} USING (true)" for name in names)
        remedy = (
            f"have an administrator run `{policies}`, which is for SELECT, INSERT, UPDATE and DELETE; or "
            f"`ALTER ROLE {role} BYPASSRLS`; or make the role the owner, without FORCE ROW LEVEL SECURITY"
        )
        if protected.text:
            yield Problem(
                "error", "postgres-row-security",
                f"row security of {', '.join(names)} applies to the role {role}, and no policy allows it "
                f"{protected.text}",
                "the server skips such a statement, mostly without an error: a delivery is answered 200 and "
                "never handled, or handled and never finished, or never deleted",
                remedy,
            )  # fmt: skip
        elif names:
            yield Problem(
                "note", "postgres-row-security",
                f"row security of {', '.join(names)} applies to the role {role}, by its policies",
                "rows that they hide from the role are never handled, finished or deleted, and no error says "
                "so",
                remedy,
            )  # fmt: skip

    def _about_connections(self, web: int, workers: int) -> Iterator[Problem]:
        """Judge whether that many processes get their connections."""
        needed = CONNECTIONS_PER_PROCESS * (web + workers)
        least = CONNECTIONS_PER_PROCESS * (min(web, 1) + min(workers, 1))
        for of_what, name, most, others in self.limits:
            if most - others >= needed:
                continue
            alter = f"ALTER {of_what.upper()} {name} CONNECTION LIMIT {needed + others}"
            remedy = f"have an administrator run `{alter}`"
            if of_what == "server":
                remedy = "raise max_connections in postgresql.conf, and restart the server"
            yield Problem(
                "error" if most - others < least else "warning", "postgres-connections",
                f"the {f'{of_what} {name}'.strip()} may have {most} connections, of which others use "
                f"{others}: {web} web and {workers} worker processes need {needed}, "
                f"{CONNECTIONS_PER_PROCESS} each",
                "a web process without a connection answers every delivery with 503, a worker handles none",
                f"{remedy}; or have fewer processes",
            )  # fmt: skip


def read_facts(connection: Connection, database: Database) -> PostgresFacts:
    """Read the facts of an inbox on PostgreSQL."""
    shown = {
        name: connection.execute(text(f"SHOW {name}")).scalar_one()
        for name in (
            "server_version_num",
            "fsync",
            "full_page_writes",
            "autovacuum",
            "track_counts",
            "is_superuser",
        )
    }
    role, schema = connection.execute(_NAMES, {"schema": database.schema}).one()
    session: Any = connection.connection.driver_connection
    options = {option.keyword: option.val for option in session.pgconn.info}
    return PostgresFacts(
        place=database.display_url,
        version=int(shown["server_version_num"]) // 10_000,
        fsync=shown["fsync"] == "on",
        full_page_writes=shown["full_page_writes"] == "on",
        autovacuum=shown["autovacuum"] == shown["track_counts"] == "on",
        superuser=shown["is_superuser"] == "on",
        local=is_local(session.info.host),
        encrypted=bool(session.pgconn.ssl_in_use),
        sslmode=(options.get(b"sslmode") or b"prefer").decode(),
        pooler=None if not session.has_pooler else "transaction" if session.is_pooled else "session",
        inbox_bytes=connection.execute(_BYTES, {"schema": database.schema}).scalar_one(),
        role=role,
        schema=schema,
        row_security=database.row_security(),
        limits=connection_limits(connection),
        behind=_read_behind(connection, database.schema),
        open_transaction=_read_open(connection),
    )


def _read_open(connection: Connection) -> OpenTransaction | None:
    row = connection.execute(_OPEN, {"seconds": _LONG_OPEN_SECONDS}).one_or_none()
    return None if row is None else OpenTransaction(*row)


def _read_behind(connection: Connection, schema: str | None) -> list[SequenceBehind]:
    """Return the sequences that are behind the ids of their tables."""
    found = []
    for each in connection.execute(_SEQUENCES, {"schema": schema}).all():
        ids: Any = func.max(literal_column(each.id))
        highest = connection.execute(select(ids).select_from(table(each.name, schema=schema))).scalar_one()
        # After the ids: a receiver that stores meanwhile advances it.
        last = connection.execute(_LAST, {"sequence": each.sequence}).scalar_one()
        if highest is not None and last < highest:
            found.append(SequenceBehind(each.quoted, each.id, each.sequence, last, highest))
    return found


def is_local(host: str) -> bool:
    """Return whether libpq's `host` is this machine: a socket, or an address that no network is between."""
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
