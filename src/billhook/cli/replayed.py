"""What `billhook deliveries replay` says when it is done, or when there was nothing to do."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from billhook.cli.choosing import in_deliveries, known_handlers
from billhook.cli.output import print_json, printable
from billhook.cli.where import the_settings, users_app

if TYPE_CHECKING:
    from billhook.inbox import Inbox
    from billhook.inbox.replay import Replayed

__all__ = ["nothing", "report"]

_SEEN_WITHIN = timedelta(minutes=1)
"""Workers say that they are there three times as often."""


def report(
    inbox: Inbox, total: int, done: Replayed, how: Mapping[str, Any], *, dry_run: bool, as_json: bool
) -> None:
    """What was done, of `total` deliveries, and `how` that was asked for.

    On stderr, that nobody is there to handle them.
    """
    if as_json:
        facts = {"selected": total, "replayed": done.deliveries, "reread": done.reread, "runs": done.runs}
        print_json({**facts, "added": done.added, "dry_run": dry_run})
    else:
        # That succeeded runs were asked for too.
        everything = how["all_handlers"] or how["handler"] is not None
        _print(total, done, dry_run=dry_run, everything=everything)
    missing = _missing_worker(inbox) if done.deliveries and not dry_run else None
    if missing is not None:
        click.echo(missing, err=True)


def _print(total: int, done: Replayed, *, dry_run: bool, everything: bool) -> None:
    would = "would be " if dry_run else ""
    runs = "1 run" if done.runs == 1 else f"{done.runs} runs"
    click.echo(
        f"{done.deliveries} of {in_deliveries(total)} {would}replayed: "
        f"{runs} {would}due again, {in_deliveries(done.reread)} {would}read anew"
        + (f", {in_deliveries(done.added)} {would}handled for the first time" if done.added else "")
    )
    if not done.deliveries:
        click.echo(_why_nothing(everything))


def nothing(inbox: Inbox, handler: str | None) -> str:
    """Nothing is selected; if it may be for the handler's name, those that newer deliveries have are told."""
    from billhook.inbox.admin import Selection, count

    told = "nothing matches"
    if handler is None or count(inbox, Selection(handler=handler)):
        return told
    return f"{told}: no delivery has a run of {printable(handler)}{known_handlers(inbox)}"


def _why_nothing(everything: bool) -> str:
    if everything:
        return "Nothing was to be done: no such run is finished, or waits for another attempt."
    return (
        "Nothing was to be done, for no handler failed: --all-handlers runs those that succeeded again, "
        "and --handler NAME one of them."
    )


def _missing_worker(inbox: Inbox) -> str | None:
    """Return what to tell whoever replayed, if nobody seems to work on the inbox; else None."""
    engine = the_settings().engine
    if engine == "inline":
        return None
    seen_at = inbox.worker_seen_at()
    age = None if seen_at is None else datetime.now(UTC) - seen_at
    if age is not None and age <= _SEEN_WITHIN:
        return None
    what = "No worker is running" if age is None else f"No worker has been seen for {_duration(age)}"
    return f"{what}; {_how_to_start(engine)}"


def _duration(age: timedelta) -> str:
    minutes = int(age.total_seconds() // 60)
    count, unit = next(
        (minutes // size, unit)
        for size, unit in ((1440, "day"), (60, "hour"), (1, "minute"))
        if minutes >= size
    )
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"


def _how_to_start(engine: str) -> str:
    own_app = users_app() is not None
    if engine == "celery":
        name = "MODULE:NAME" if own_app else "billhook.standalone:celery"
        return f"start one: celery -A {name} worker"
    if own_app and engine == "thread":
        return "start the app: the first request begins its work"
    return f"start one: {'flask --app … ' if own_app else ''}billhook worker"
