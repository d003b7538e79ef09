"""`billhook workers`: who calls handlers, where, with which release, and what each runs now."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

import click

from billhook.basics.printable import printable
from billhook.cli.context import open_inbox
from billhook.cli.output import print_json, print_table
from billhook.cli.params import as_json
from billhook.clock import format_ago, format_duration
from billhook.inbox.reading.worker_list import ListedWorker, list_workers
from billhook.inbox.watching.disagreements import read_disagreement


@click.command()
@as_json
def workers(as_json: bool) -> None:
    """List the workers of the last day, and what each runs now.

    A worker is lost if its process is gone or it was not seen for a minute, and it did not stop in order: it
    was killed, crashed, or its machine is gone. Restarts are those after a worker that was lost, of the last
    day.

    \b
    Examples:
      billhook workers
      billhook workers --json | jq '.[] | select(.state == "lost")'
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
        (one.host or one.owner, one.pid, f"{one.state.value} {format_ago(one.ended_at, now)}".rstrip(),
         one.engine, one.release or None,
         format_duration(((one.ended_at or now) - one.started_at).total_seconds()),
         one.restarts or None, one.running or None, one.threads, _what(one, now))
        for one in found
    ]  # fmt: skip
    print_table(
        columns, rows, whole=columns[:-1], cut="what", optional=["pid", "release", "restarts", "what"]
    )
    if disagreement is not None:
        click.echo(printable(disagreement))


def _what(one: ListedWorker, now: datetime) -> str | None:
    """Return the oldest run of a worker, and how many others it has claimed."""
    if not one.runs:
        return None
    first, waiting = one.runs[0], one.claimed - one.running
    since = "" if first.started_at is None else f", since {format_ago(first.started_at, now)}"
    more = f"; {waiting:,} more are claimed" if waiting else ""
    return f"{first.handler} of delivery {first.delivery_id}{since}{more}"
