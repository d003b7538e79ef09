"""Findings about the inbox in use: its database, paused handlers, and whether a worker serves it.

Does a committed delivery survive, and who else can read it?
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from billhook.clock import format_duration, format_time
from billhook.doctor.finding import Finding, Level
from billhook.inbox.condition_checks import Facts, worker_missing_since
from billhook.inbox.conditions import CONDITIONS, LIMITS, HeldCondition, Severity
from billhook.inbox.database import CONNECTIONS_PER_PROCESS
from billhook.inbox.diagnosis import inbox_facts
from billhook.inbox.facts import PostgresFacts, SqliteFacts
from billhook.printable import printable

if TYPE_CHECKING:
    from billhook.doctor.examined import Setup
    from billhook.inbox import Inbox

_NETWORK = (
    "nfs",
    "cifs",
    "smb",
    "afs",
    "9p",
    "ceph",
    "gluster",
    "lustre",
    "fuse.sshfs",
    "fuse.s3fs",
    "davfs",
)
_MEMORY = ("tmpfs", "ramfs")
_FIXED_VERSION = (3, 51, 3)
_OLDEST_POSTGRES = 15
_WEB_PROCESSES = 2
"""How many `billhook serve` and the shipped settings of gunicorn start."""


def sqlite_findings(facts: SqliteFacts, platform: str = sys.platform) -> Iterator[Finding]:
    """Judge a SQLite inbox."""
    if facts.journal_mode != "wal" or facts.synchronous != 2:
        yield Finding(
            "error", "sqlite-durability",
            f"journal_mode is {facts.journal_mode} and synchronous {facts.synchronous}, not wal and 2",
            "a delivery that was answered 200 may be gone after a power failure",
            "stop other programs that open the inbox and change these settings",
        )  # fmt: skip
    if platform == "darwin" and not facts.fullfsync:
        yield Finding(
            "error", "sqlite-fullfsync", "fullfsync is off",
            "on macOS a commit then stays in the drive's own memory, and a power failure loses it",
            "use a SQLite that knows PRAGMA fullfsync",
        )  # fmt: skip
    kind = facts.file_system or ""
    if kind.startswith(_NETWORK):
        yield Finding(
            "error", "network-file-system", f"{facts.path} is on a network file system ({kind})",
            "its locks and its fsync are not to be trusted: two processes may corrupt the inbox",
            "put it on a local disk, or use PostgreSQL for several machines (BILLHOOK_INBOX_URL)",
        )  # fmt: skip
    elif kind in _MEMORY:
        yield Finding(
            "error", "inbox-in-memory", f"{facts.path} is on {kind}, which is memory",
            "every delivery is lost when the machine or the container restarts",
            "put it on a disk or a volume (BILLHOOK_INBOX_URL)",
        )  # fmt: skip
    elif kind == "overlay":
        yield Finding(
            "warning", "inbox-in-container", f"{facts.path} is in a container's own layer (overlay)",
            "it is deleted together with the container, with all deliveries",
            "put it on a volume (BILLHOOK_INBOX_URL)",
        )  # fmt: skip
    if facts.version < _FIXED_VERSION:
        version = ".".join(map(str, facts.version))
        yield Finding(
            "note", "sqlite-version",
            f"SQLite is {version} ({facts.library}): before 3.51.3 it has the WAL-reset bug",
            "billhook keeps clear of it; another program that writes to the file may corrupt it",
            "on Linux with x86-64: `pip install --upgrade pysqlite3`; elsewhere upgrade SQLite, or leave the "
            "file to billhook, and back it up with `billhook db backup`",
        )  # fmt: skip
    for level, may in (("error", "write"), ("warning", "read")):
        files = [name for name, access in facts.lax_files.items() if access == may]
        if files:
            yield Finding(
                "error" if level == "error" else "warning", f"inbox-mode-{may}",
                f"other users may {may} {', '.join(files)}",
                "the inbox holds customers' data, and what handlers will be given",
                f"chmod 600 {shlex.join(files)}",
            )  # fmt: skip


def postgres_findings(facts: PostgresFacts) -> Iterator[Finding]:
    """Judge an inbox on PostgreSQL."""
    if facts.version < _OLDEST_POSTGRES:
        yield Finding(
            "error", "postgres-version", f"the server is PostgreSQL {facts.version}",
            f"billhook needs {_OLDEST_POSTGRES} or newer", "upgrade the server",
        )  # fmt: skip
    if not (facts.fsync and facts.full_page_writes):
        yield Finding(
            "error", "postgres-fsync", "the server runs with fsync or full_page_writes off",
            "what was answered 200 may be gone, and the database corrupt, after a power failure",
            "set both to on in postgresql.conf and restart the server",
        )  # fmt: skip
    if not facts.local and facts.sslmode != "verify-full":
        how = "without TLS" if not facts.encrypted else f"with sslmode={facts.sslmode}"
        yield Finding(
            "warning", "postgres-tls", f"{facts.place} is reached over a network {how}",
            "libpq does not check who answers: another machine could read the password and every body",
            "end BILLHOOK_INBOX_URL in ?sslmode=verify-full&sslrootcert=system",
        )  # fmt: skip
    if facts.pooler == "transaction":
        yield Finding(
            "note", "pooler", "a pooler is before the server, taken to keep no session for a connection",
            "each transaction sets what it depends on, and workers are not notified: they poll every 2 s",
            "give workers the server's own address, or set BILLHOOK_INBOX_POOL_MODE=session if it keeps one",
        )  # fmt: skip
    elif facts.pooler == "session":
        yield Finding(
            "note", "pooler", "a pooler is before the server, taken to keep a session for a connection",
            "if it does not, what was answered 200 may be gone after a power failure",
            "see that its pool_mode is session, or leave BILLHOOK_INBOX_POOL_MODE out",
        )  # fmt: skip
    if facts.superuser:
        yield Finding(
            "warning", "postgres-superuser", "billhook's role is a superuser of the server",
            "an attacker who gets into a web process can read and change every database",
            "make a role of its own: GRANT CREATE ON DATABASE … is all that `billhook db upgrade` needs",
        )  # fmt: skip

    yield from _about_row_security(facts)


def _about_row_security(facts: PostgresFacts) -> Iterator[Finding]:
    role, protected = facts.role, facts.row_security
    names = [f"{facts.schema}.{table}" for table in protected.missing]
    policies = "; ".join(f"CREATE POLICY billhook ON {name} TO {role} USING (true)" for name in names)
    remedy = (
        f"have an administrator run `{policies}`, which is for SELECT, INSERT, UPDATE and DELETE; or "
        f"`ALTER ROLE {role} BYPASSRLS`; or make the role the owner, without FORCE ROW LEVEL SECURITY"
    )
    if protected.text:
        yield Finding(
            "error", "postgres-row-security",
            f"row security of {', '.join(names)} applies to the role {role}, and no policy allows it "
            f"{protected.text}",
            "the server skips such a statement, mostly without an error: a delivery is answered 200 and "
            "never handled, or handled and never finished, or never deleted",
            remedy,
        )  # fmt: skip
    elif names:
        yield Finding(
            "note", "postgres-row-security",
            f"row security of {', '.join(names)} applies to the role {role}, by its policies",
            "rows that they hide from the role are never handled, finished or deleted, and no error says so",
            remedy,
        )  # fmt: skip


def connection_findings(facts: PostgresFacts, web: int, workers: int) -> Iterator[Finding]:
    """Judge whether that many processes get their connections."""
    needed = CONNECTIONS_PER_PROCESS * (web + workers)
    least = CONNECTIONS_PER_PROCESS * (min(web, 1) + min(workers, 1))
    for of_what, name, most, others in facts.limits:
        if most - others >= needed:
            continue
        remedy = (
            f"have an administrator run `ALTER {of_what.upper()} {name} CONNECTION LIMIT {needed + others}`"
        )
        if of_what == "server":
            remedy = "raise max_connections in postgresql.conf, and restart the server"
        yield Finding(
            "error" if most - others < least else "warning", "postgres-connections",
            f"the {f'{of_what} {name}'.strip()} may have {most} connections, of which others use {others}: "
            f"{web} web and {workers} worker processes need {needed}, {CONNECTIONS_PER_PROCESS} each",
            "a web process without a connection answers every delivery with 503, a worker handles none",
            f"{remedy}; or have fewer processes",
        )  # fmt: skip


def about_inbox(setup: Setup) -> Iterator[Finding]:
    """Ask whether a delivery could be stored."""
    yield setup.unusable or Finding("ok", "inbox", f"{setup.inbox.database.display_url} is writable")


def about_database(setup: Setup) -> Iterator[Finding]:
    """Ask whether a committed delivery survives, and who else can read it."""
    facts = inbox_facts(setup.inbox)
    if isinstance(facts, SqliteFacts):
        yield from sqlite_findings(facts)
        return
    yield from postgres_findings(facts)
    alive = sum(one.alive for one in setup.overview.workers)
    given = setup.environ.get("WEB_CONCURRENCY", "")
    web = int(given) if given.isdecimal() else _WEB_PROCESSES
    if setup.settings.engine == "thread":  # its workers are threads of the web processes
        web, alive = max(web, alive), 0
    elif setup.settings.engine != "inline":
        alive = max(1, alive)
    yield from connection_findings(facts, web, alive)


_CAPTURE = "`billhook capture --to FOLDER`, then `billhook doctor signature --request FILE`"


class _Words(NamedTuple):
    """The consequence and the remedy of a finding about a condition; a code, if not the condition's name."""

    why: str
    remedy: str
    code: str = ""


_WORDS = {
    "clock": _Words(
        "leases and due times go by the server's; the age of a signature goes by this machine's, so that "
        "with more than BILLHOOK_TOLERANCE_SECONDS every delivery is refused, with 401",
        "set the clock that is wrong by NTP (`timedatectl`)", "server-clock",
    ),
    "thread-crashed": _Words(
        "its work waits until it is started again: by the next request, mostly, or with the process",
        "look in the log for `has crashed`, where the whole error is, and correct what it names; if that "
        "is billhook's, report it",
    ),
    "disk": _Words(
        "on a full disk every delivery is answered 503, and the service gives up at some time",
        "free some space, or keep less: lower BILLHOOK_RETENTION_DAYS, or prune deliveries", "free-space",
    ),
    "clock-refusals": _Words(
        "with a clock that is off by more than the tolerance every delivery is refused; so is an old "
        "request that is sent again",
        "compare the clocks (`timedatectl`, `chronyc tracking`); else ask the service for its delays",
    ),
    "refused-all": _Words(
        "the secret, the scheme or something between the service and here is wrong",
        f"record a request with {_CAPTURE}",
    ),
    "refused-since": _Words(
        "if the signing secret was changed at the service, each delivery is refused until it is here",
        "put the service's new secret first and the old one second in {secrets}, and restart; if it was not "
        f"changed: {_CAPTURE}",
    ),
}  # fmt: skip
_WORDS["disk-full"] = _WORDS["disk"]
_OTHER_CHECKS = ("no-worker", "notify-file", "paused", "row-security")
"""The conditions of which another check has more to say."""
_COUNTED = ("dead", "quarantined", "waiting", "failing", "unknown-type")
"""The conditions of deliveries and handlers, not of the set-up: `billhook status` has more to say of them."""
_REFUSALS = ("clock-refusals", "refused-all", "refused-since")
"""Notes, for a stranger could cause them; this command warns of them, as it is asked what is wrong."""


def condition_codes() -> set[str]:
    """Return the codes that `about_conditions` may give its findings."""
    names = {one.name for one in CONDITIONS if one not in LIMITS} - {*_OTHER_CHECKS, *_COUNTED}
    return {_WORDS[name].code or name if name in _WORDS else name for name in names}


def about_conditions(setup: Setup) -> Iterator[Finding]:
    """Return what the conditions say of the set-up and its processes."""
    for held in setup.judgement.holding:
        if held.condition.name not in (*_OTHER_CHECKS, *_COUNTED, *_REFUSALS):
            yield _finding(setup, held, _LEVELS[held.condition.severity])
    for name, why in setup.judgement.unjudged.items():
        yield Finding("warning", "not-judged", f"the condition {name} could not be judged", why)
    counted = [one.text for one in setup.judgement.problems if one.condition.name in _COUNTED]
    if counted:
        yield Finding(
            "note", "see-status", f"deliveries need attention: {', '.join(counted)}",
            "this examines the set-up, and not what became of each delivery",
            "`billhook status` lists what needs attention, `billhook failures` each bug",
        )  # fmt: skip


def about_refusals(setup: Setup) -> Iterator[Finding]:
    """Return what the conditions say of refused requests: a clock that is off, a secret that does not fit."""
    for held in setup.judgement.holding:
        if held.condition.name in _REFUSALS:
            yield _finding(setup, held, "warning")


def _finding(setup: Setup, held: HeldCondition, level: Level) -> Finding:
    condition, subject, text = held
    words = _WORDS.get(condition.name)
    if words is None:
        words = _Words(condition.holds, f"`billhook {condition.first_command(subject)}`")
    secrets = "BILLHOOK_SECRETS_FILE" if setup.settings.secrets_file else "BILLHOOK_SECRETS"
    remedy = words.remedy.replace("{secrets}", secrets)
    return Finding(level, words.code or condition.name, text, words.why, remedy)


_LEVELS: Mapping[Severity, Level] = {
    Severity.CRITICAL: "error",
    Severity.WARNING: "warning",
    Severity.NOTE: "note",
}


def about_paused(setup: Setup) -> Iterator[Finding]:
    """Name the paused handlers."""
    for one in setup.overview.paused if setup.judgement.holds("paused") else ():
        why = f" ({printable(one.why)})" if one.why else ""
        yield Finding(
            "warning", "handler-paused",
            f"{printable(one.name)} is PAUSED since {format_time(one.since)} UTC{why}",
            "no worker calls it, and its deliveries wait", f"billhook handlers resume {printable(one.name)}",
        )  # fmt: skip


def about_worker(setup: Setup) -> Iterator[Finding]:
    """Ask whether a worker serves the inbox."""
    missing = missing_worker(setup.inbox, setup.settings.engine, own_app=setup.own_app, now=setup.inbox_now)
    if missing is not None:
        yield missing


def missing_worker(inbox: Inbox, engine: str, *, own_app: bool, now: datetime) -> Finding | None:
    """Return the finding that no worker seems to serve the inbox; None if one does."""
    missing, seen_at = worker_missing_since(Facts(inbox, now, engine))
    if not missing:
        return None
    what, why = "No worker is running", "deliveries are stored, and no handler is called"
    if seen_at is not None:
        age = format_duration((now - seen_at).total_seconds())
        number, unit = age.split(" ")[:2]  # one unit is enough here
        what = f"No worker has been seen for {number} {unit}"
        why = f"the last was seen at {format_time(seen_at)} UTC; {why}"
    return Finding("warning", "no-worker", what, why, _how_to_start(engine, own_app=own_app))


def _how_to_start(engine: str, *, own_app: bool) -> str:
    if engine == "celery":
        name = "MODULE:NAME" if own_app else "billhook.standalone:celery"
        return f"start one: celery -A {name} worker"
    if own_app and engine == "thread":
        return "start the app: its threads start with the first request"
    return "start one: billhook worker"
