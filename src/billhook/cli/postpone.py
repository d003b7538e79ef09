"""`billhook deliveries postpone`: have runs not called before a time."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

import click

from billhook.basics.printable import counted
from billhook.cli.context import open_inbox
from billhook.cli.params import DURATION, TIME, option
from billhook.cli.selection import Selection, confirming, selecting
from billhook.clock import format_time
from billhook.inbox.operating.postpone import PostponeResult
from billhook.inbox.operating.postpone import postpone as postpone_these
from billhook.inbox.running.postponing import LONGEST_POSTPONEMENT


@click.command(short_help="Have deliveries not handled before a time.")
@selecting(ids=True)
@option("--not-before TIME moment", "The time, in ISO 8601: 2026-01-31T18:45.", TIME)
@option("--for duration", "For how long from now: 90s, 30m, 2h, 7d; 0s ends it.", DURATION)
@confirming
def postpone(selection: Selection, moment: datetime | None, duration: timedelta | None) -> None:
    """Put deliveries off: their handlers are not called before a time, 31 days ahead at most.

    With --handler only its runs. Those that are due, wait in their order or are retried are put off; what is
    running, finished, or not read yet stays as it is, and so does a retry that is later. Deliveries that wait
    behind one of these in an order wait with it, and are counted. A replay ends it too.

    \b
    Examples:
      billhook deliveries postpone 42 --for 2h
      billhook deliveries postpone --handler shop.chase --state unfinished --not-before 2026-01-31T18:45
      billhook deliveries postpone 42 --for 0s
    """
    if (moment is None) is (duration is None):
        raise click.UsageError("give either the time with --not-before, or how long with --for")
    with open_inbox() as inbox:
        now = inbox.now()
        until = moment or now + min(duration or timedelta(0), LONGEST_POSTPONEMENT * 2)
        if moment is not None and moment <= now:
            raise click.UsageError("that time has passed: --for 0s has them due at once")
        check_far(until, now)
        found = selection.find(inbox, f"Put {{}} off until {format_time(until)} UTC?")
        change = partial(postpone_these, inbox, now=now, until=until, handler=selection.filter.handler)
        done = selection.apply(inbox, found, change, PostponeResult())
    time = "at once" if until <= now else f"not before {format_time(until)} UTC"
    behind = (
        f"{counted(done.behind, 'delivery')} wait{'s' if done.behind == 1 else ''} behind them in an order"
    )
    running = f"{counted(done.running, 'run')} {'is' if done.running == 1 else 'are'} running, and left alone"
    figures = {"selected": found.total, "postponed": done.deliveries, "runs": done.runs}
    selection.report(
        {**figures, "running": done.running, "behind": done.behind, "not_before": until},
        f"{done.deliveries} of {counted(found.total, 'delivery')} {selection.would}put off: "
        f"{counted(done.runs, 'run')} due {time}",
        behind if done.behind else "",
        running if done.running else "",
        "" if done.runs or done.running else "Nothing to do: no run of them is unfinished.",
    )


def check_far(until: datetime, now: datetime) -> None:
    """Raise UsageError for a time that is too far ahead."""
    if until > now + LONGEST_POSTPONEMENT:
        raise click.UsageError("that is more than 31 days ahead: put it off for less")
