"""Findings about the inbox in use: its database, paused handlers, and whether a worker serves it.

Does a committed delivery survive, and who else can read it?
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from billhook.basics.engine_kinds import ENGINES, Place
from billhook.basics.printable import printable
from billhook.clock import format_time
from billhook.doctor.finding import Finding, Level
from billhook.inbox.watching.conditions import Facts, worker_missing
from billhook.inbox.watching.judgement import CONDITIONS, LIMITS, HeldCondition, Severity

if TYPE_CHECKING:
    from billhook.doctor.examined import Setup
    from billhook.inbox import Inbox
    from billhook.settings import Settings

_WEB_PROCESSES = 2
"""How many `billhook serve` and the shipped settings of gunicorn start."""


def about_inbox(setup: Setup) -> Iterator[Finding]:
    """Ask whether a delivery could be stored."""
    yield setup.unusable or Finding("ok", "inbox", f"{setup.inbox.database.display_url} is writable")


def about_database(setup: Setup) -> Iterator[Finding]:
    """Ask whether a committed delivery survives, and who else can read it."""
    alive = sum(one.alive for one in setup.overview.workers)
    given = setup.environ.get("WEB_CONCURRENCY", "")
    web = int(given) if given.isdecimal() else _WEB_PROCESSES
    place = ENGINES[setup.settings.engine].place
    if place is Place.WEB:  # its workers are threads of the web processes
        web, alive = max(web, alive), 0
    elif place is Place.WORKER:
        alive = max(1, alive)
    for problem in setup.inbox.database.facts().problems(web, alive):
        yield Finding(*problem)


_CAPTURE = "`billhook capture --to FOLDER`, then `billhook doctor signature --request FILE`"


class _Words(NamedTuple):
    """The consequence and the remedy of a finding about a condition; a code, if not the condition's name."""

    why: str
    remedy: str
    code: str = ""


_WORDS = {
    "clock": _Words(
        "due times go by the server's, and so does how long a worker is silent; the age of a signature goes "
        "by this machine's, so that "
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
    "no-consumer": _Words(
        "deliveries are answered 200, and no handler is called",
        "start a Celery worker with `-Q` and the queue's name, or change `task_routes`; `celery -A "
        "MODULE:NAME inspect active_queues` lists what each worker consumes",
    ),
    "not-stored": _Words(
        "the service sends them again for some time; what it gives up is lost",
        "correct what the other findings name; else look in the receiver's log for `refused with 503`, where "
        "the error of each is",
    ),
    "held": _Words(
        "the runs of a held worker are left to others, and wait where there is none",
        "`billhook actions` says who holds it, and `billhook workers` since when and why; `billhook workers "
        "resume WORKER` ends it, for each that is listed as held",
    ),
    "hanging": _Words(
        "each keeps a thread of its worker until it returns, and is not called again meanwhile",
        "`billhook workers` says where; to end it now, kill that worker: the run is attempted again, by "
        "another. Give the handler a `timeout_seconds`, and what it calls time-outs",
    ),
    "refused": _Words(
        "if they are genuine, each delivery is lost once the service gives up",
        f"compare the secrets here with the service's; then record a request with {_CAPTURE}",
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
_COUNTED = ("dead", "quarantined", "waiting", "failing", "known-issues", "unknown-type")
"""The conditions of deliveries and handlers, not of the set-up: `billhook status` has more to say of them."""
_REFUSALS = ("clock-refusals", "refused-all", "refused-since")
"""The conditions of refused requests, which are a check of their own."""


def condition_codes() -> set[str]:
    """Return the codes that `about_conditions` may give its findings."""
    names = {one.name for one in CONDITIONS if one not in LIMITS} - {*_OTHER_CHECKS, *_COUNTED}
    return {_WORDS[name].code or name if name in _WORDS else name for name in names}


def about_conditions(setup: Setup) -> Iterator[Finding]:
    """Return what the conditions say of the set-up and its processes."""
    for held in setup.judgement.holding:
        if held.condition.name not in (*_OTHER_CHECKS, *_COUNTED, *_REFUSALS):
            yield _finding(setup, held)
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
            yield _finding(setup, held)


def _finding(setup: Setup, held: HeldCondition) -> Finding:
    condition, subject, text, _ = held
    words = _WORDS.get(condition.name)
    if words is None:
        words = _Words(condition.holds, f"`billhook {condition.first_command(subject)}`")
    secrets = "BILLHOOK_SECRETS_FILE" if setup.settings.secrets_file else "BILLHOOK_SECRETS"
    remedy = words.remedy.replace("{secrets}", secrets)
    level = _LEVELS[condition.severity]
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
            "no worker calls it, and its deliveries wait",
            f"`billhook handlers resume {shlex.quote(printable(one.name))}`",
        )  # fmt: skip


def about_worker(setup: Setup) -> Iterator[Finding]:
    """Ask whether a worker serves the inbox."""
    missing = missing_worker(setup.inbox, setup.settings, own_app=setup.own_app, now=setup.inbox_now)
    if missing is not None:
        yield missing


def missing_worker(inbox: Inbox, settings: Settings, *, own_app: bool, now: datetime) -> Finding | None:
    """Return the finding that no worker seems to serve the inbox; None if one does."""
    if text := worker_missing(Facts(inbox, now, settings.engine)):
        why, seen_at = "deliveries are stored, and no handler is called", inbox.worker_seen_at()
        if seen_at is not None:
            why = f"the last was seen at {format_time(seen_at)} UTC; {why}"
        how = _how_to_start(settings, own_app=own_app)
        return Finding("warning", "no-worker", text.capitalize(), why, how)
    return None


def _how_to_start(settings: Settings, *, own_app: bool) -> str:
    kind = ENGINES[settings.engine]
    if own_app and kind.place is Place.WEB:
        return "start the app: its threads start with the first request"
    files = "" if own_app or settings.handlers or kind.is_foreign else " FILE"
    return f"start one: {kind.start_command(own_app=own_app)}{files}"
