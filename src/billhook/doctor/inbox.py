"""Findings about the inbox in use: its database, paused handlers, and whether a worker serves it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from billhook.doctor.finding import Finding
from billhook.doctor.storage import postgres_findings, sqlite_findings
from billhook.errors import BillhookError
from billhook.printable import printable

if TYPE_CHECKING:
    from billhook.inbox import Inbox

__all__ = ["inbox_findings", "missing_worker", "unusable_inbox"]

_SEEN_WITHIN = timedelta(minutes=1)
"""Three times the interval at which a worker renews its row in the inbox."""


def inbox_findings(inbox: Inbox, engine: str, *, own_app: bool, now: datetime) -> Iterator[Finding]:
    """Judge an inbox and who serves it. Raises InboxUnavailable and SchemaMismatch: see `unusable_inbox`.

    `own_app`: the handlers run in a Flask app of the user's, or in its workers.
    """
    from billhook.inbox.diagnosis import SqliteFacts, inbox_facts

    inbox.check_writable()
    facts = inbox_facts(inbox)
    yield from sqlite_findings(facts) if isinstance(facts, SqliteFacts) else postgres_findings(facts)
    for one in inbox.paused_handlers():
        why = f" ({printable(one.why)})" if one.why else ""
        yield Finding(
            "warning", "handler-paused",
            f"{printable(one.name)} is PAUSED since {one.since.strftime('%Y-%m-%d %H:%M:%S UTC')}{why}",
            "no worker calls it, and its deliveries wait", f"billhook handlers resume {printable(one.name)}",
        )  # fmt: skip
    yield from refusal_findings(inbox, now)
    missing = missing_worker(inbox, engine, own_app=own_app, now=now)
    if missing is not None:
        yield Finding(
            "warning", "no-worker", missing.partition(";")[0],
            "deliveries are stored, and no handler is called", missing.partition("; ")[2],
        )  # fmt: skip


def refusal_findings(inbox: Inbox, now: datetime) -> Iterator[Finding]:
    """Judge what was refused in the last 24 hours: a clock that is off, a secret that does not fit."""
    from billhook.inbox.overview import read_overview

    overview = read_overview(inbox, now)
    for cause, whose in (("stale", "behind"), ("future", "ahead of")):
        if cause in overview.refused_seconds:
            seconds, number = overview.refused_seconds[cause], overview.refused[cause]
            yield Finding(
                "warning", "clock-refusals",
                f"{number} genuine deliveries were refused: their signed time is {seconds:.0f} s {whose} "
                "this clock on average",
                "with a clock that is off by more than the tolerance every delivery is refused; "
                "so is an old request that is sent again",
                "compare the clocks (`timedatectl`, `chronyc tracking`); else ask the service for its delays",
            )  # fmt: skip
    # Not by the counts alone: a delivery is counted as accepted when a worker reads it.
    stored = overview.last_at is not None and overview.last_at >= overview.since
    verified = stored or any(one.duplicates for one in overview.types)
    mismatched = overview.refused.get("mismatch", 0)
    if mismatched and not verified:
        yield Finding(
            "warning", "refused-all",
            f"{mismatched} signatures matched no secret, and no delivery was accepted in 24 hours",
            "the secret, the scheme or something between the service and here is wrong",
            "record a request with `billhook capture`, then `billhook doctor signature --request FILE`",
        )  # fmt: skip


def unusable_inbox(error: BillhookError) -> Finding:
    """Return the finding about an inbox that cannot be read or written."""
    return Finding(
        "error", "inbox", str(error), "every delivery is answered 503 until it can be stored",
        "make the database reachable; for its schema run `billhook db upgrade`",
    )  # fmt: skip


def missing_worker(inbox: Inbox, engine: str, *, own_app: bool, now: datetime) -> str | None:
    """Return that no worker seems to serve the inbox, and how to start one; None if one does."""
    if engine == "inline":  # handlers run in the app's own requests, without a worker
        return None
    seen_at = inbox.worker_seen_at()
    age = None if seen_at is None else now - seen_at
    if age is not None and age <= _SEEN_WITHIN:
        return None
    what = "No worker is running" if age is None else f"No worker has been seen for {_duration(age)}"
    return f"{what}; {_how_to_start(engine, own_app=own_app)}"


def _duration(age: timedelta) -> str:
    minutes = int(age.total_seconds() // 60)
    count, unit = next(
        (minutes // size, unit)
        for size, unit in ((1440, "day"), (60, "hour"), (1, "minute"))
        if minutes >= size
    )
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"


def _how_to_start(engine: str, *, own_app: bool) -> str:
    if engine == "celery":
        name = "MODULE:NAME" if own_app else "billhook.standalone:celery"
        return f"start one: celery -A {name} worker"
    if own_app and engine == "thread":
        return "start the app: its threads start with the first request"
    return f"start one: {'flask --app … ' if own_app else ''}billhook worker"
