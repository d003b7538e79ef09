"""`billhook workers`: who calls handlers, where, with which release, and what each runs now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime

import click

from billhook.basics.printable import printable
from billhook.cli.context import open_inbox
from billhook.cli.output import CliError, print_json, print_table
from billhook.cli.params import TEXT, DefaultGroup, as_json, option
from billhook.cli.selection import recording
from billhook.clock import format_ago, format_duration
from billhook.inbox import Inbox
from billhook.inbox.operating.holds import HOLDABLE, hold_worker, resume_worker
from billhook.inbox.reading.worker_list import ListedWorker, WorkerState, list_workers
from billhook.inbox.watching.disagreements import read_disagreement

_names = click.argument("names", type=TEXT, nargs=-1, required=True, metavar="WORKER...")


@click.group(cls=DefaultGroup, default="list", subcommand_metavar="| COMMAND [ARGS]...")
def workers() -> None:
    """List the workers of the last day, and what each runs now (the default); hold and resume workers.

    A worker is lost if its process is gone or it was not seen for a minute, and it did not stop in order: it
    was killed, crashed, or its machine is gone. Restarts are those after a worker that was lost, of the last
    day.

    \b
    Examples:
      billhook workers
      billhook workers --json | jq '.[] | select(.state == "lost")'
      billhook workers hold web-1:4711
    """


@workers.command("list", short_help="List the workers of the last day.")
@as_json
def list_(as_json: bool) -> None:
    """List the workers of the last day, and what each runs now.

    \b
    Example:
      billhook workers list --json | jq '.[] | select(.state == "held")'
    """
    with open_inbox() as inbox:
        now = inbox.now()
        found = list_workers(inbox, now)
        with inbox.database.read() as connection:
            disagreement = read_disagreement(connection, now)
    if as_json:
        print_json([{**asdict(one), "running": one.running} for one in found])
        return
    if not found:
        click.echo("no worker was seen in the last day")
        return
    columns = ("host", "pid", "state", "engine", "release", "uptime", "restarts", "runs", "threads", "what")
    rows = [
        (one.host or one.owner, one.pid, f"{one.state.value} {format_ago(one.since, now)}".rstrip(),
         one.engine, one.release or None,
         format_duration(((one.ended_at or now) - one.started_at).total_seconds()),
         one.restarts or None, one.running or None, one.threads, _what(one, now))
        for one in found
    ]  # fmt: skip
    # In a narrow terminal, what a worker runs is on several lines: how long it runs is never cut.
    optional, spare = ("pid", "release", "restarts", "what"), ("engine", "threads", "uptime")
    print_table(columns, rows, whole=columns[:-1], optional=optional, spare=spare)
    if disagreement is not None:
        click.echo(printable(disagreement))


def _what(one: ListedWorker, now: datetime) -> str | None:
    """Return why a worker is held, its oldest run, and how many others it runs and has claimed."""
    why = f"held for: {one.held_why}" if one.state is WorkerState.HELD and one.held_why else None
    if not one.runs:
        return why
    first, others, waiting = one.runs[0], one.running - 1, one.claimed - one.running
    since = "" if first.started_at is None else f", since {format_ago(first.started_at, now)}"
    more = f", and {others:,} more" if others > 0 else ""
    claimed = f"; {waiting:,} more are claimed" if waiting else ""
    runs = f"{first.handler} of delivery {first.delivery_id}{since}{more}{claimed}"
    return "; ".join(filter(None, (why, runs)))


@workers.command(short_help="Have workers start no run.")
@_names
@option("--reason TEXT", "The reason, shown wherever the worker is.")
def hold(names: tuple[str, ...], reason: str | None) -> None:
    """Have workers start no run until they are resumed: given as HOST:PID, as process id, or as owner.

    From its next poll on a worker reads no deliveries and claims no runs; what it runs goes on, and what
    it has claimed and not started is left to others. They go on as if it were not there. A worker that is
    started anew is not held.

    \b
    Example:
      billhook workers hold web-1:4711 --reason "its disk is replaced at noon"
    """
    with _found(names) as (inbox, found):
        for one in found:
            is_held = one.state is WorkerState.HELD
            if is_held and not reason:
                click.echo(f"{one.place} was held already")
                continue
            with recording(inbox, "hold", f"worker {one.place}"):
                hold_worker(inbox, one.owner, inbox.now(), reason)
            new = f"was held already; the reason is now: {printable(reason or '')}"
            click.echo(f"{one.place} {new if is_held else 'starts no run from its next poll on'}")


@workers.command(short_help="Have held workers start runs again.")
@_names
def resume(names: tuple[str, ...]) -> None:
    """Have held workers start runs again, at once.

    \b
    Example:
      billhook workers resume web-1:4711
    """
    with _found(names) as (inbox, found):
        for one in found:
            if one.state is not WorkerState.HELD:
                click.echo(f"{one.place} was not held")
                continue
            with recording(inbox, "resume", f"worker {one.place}"):
                resume_worker(inbox, one.owner)
            click.echo(f"{one.place} starts runs again")


@contextmanager
def _found(names: Sequence[str]) -> Iterator[tuple[Inbox, list[ListedWorker]]]:
    """Give the inbox and the workers of these names, each of which is there; wake the workers afterwards."""
    with open_inbox() as inbox:
        listed = list_workers(inbox, inbox.now())
        yield inbox, [_find(listed, name) for name in names]
        inbox.waker.wake()


def _find(listed: Sequence[ListedWorker], name: str) -> ListedWorker:
    found = [one for one in listed if one.ended_at is None and one.is_named(name)]
    if not found:
        raise CliError(f"there is no live worker {printable(name)}: see `billhook workers`")
    if len(found) > 1:
        places = ", ".join(one.place for one in found)
        raise CliError(printable(f"{name} is of {len(found)} workers, write one of them: {places}"))
    if found[0].engine not in HOLDABLE:
        raise CliError(
            f"{printable(name)} is a worker of {found[0].engine}, which gives it its runs: hold it there, or "
            "pause handlers"
        )
    return found[0]
