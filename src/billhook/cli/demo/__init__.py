"""`billhook demo`: the whole path with real processes and sockets, and every delivery's result checked."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from billhook.cli.output import CliError, print_json, print_table, printable, progress
from billhook.cli.params import as_json, flag
from billhook.errors import MissingExtra

if TYPE_CHECKING:
    from billhook.cli.demo.expectations import DemoDelivery

_SAMPLES_ONLY = (
    "Note: sending samples; pip install '.[sandbox]' in the checkout to see the events of a billing service"
)
_NEXT = "Next: README.md shows how to write your own handlers and try them with a sandbox"


@click.command()
@flag("--stay", told="Keep everything running until Ctrl-C, and print the addresses.")
@as_json
def demo(stay: bool, as_json: bool) -> None:
    """See it work: a sandbox of the billing service, gunicorn, a worker, an inbox, and 5 bad deliveries.

    The demo subscribes to every event, sends usage and moves the sandbox's clock forward until all 23 events
    have fired; all must be received and handled. Without the extra `sandbox`, it sends samples.

    It takes a few seconds and needs no network, set-up or secret: only a free loopback port and a temporary
    folder, which it removes. Exit code 0 if every delivery had the expected result.

    With --stay, raise an event on the sandbox's pages afterwards: it arrives in the receiver's dashboard.

    \b
    Examples:
      billhook demo && echo all is well
      billhook demo --stay
    """
    from billhook.cli.demo.processes import DemoEnvironment

    started = time.monotonic()
    with DemoEnvironment(stays=stay) as environment:
        if environment.sandbox is None:
            if stay:
                raise MissingExtra("a demo that stays", "sandbox")
            click.echo(_SAMPLES_ONLY, err=True)
        with progress("running the demo", None) as steps:
            rows = environment.play(steps)
        if not as_json:
            click.echo("gunicorn received the deliveries and a worker handled them. They were caused by:")
            for step in environment.steps or ["signed a sample of each event type and posted it"]:
                click.echo(f"- {step}")
            click.echo("- posted 5 bad deliveries\n")
        if not report(rows, time.monotonic() - started, as_json, environment.addresses if stay else None):
            log = environment.log_tail()
            raise CliError(f"not every delivery had the expected result; the end of the servers' log:\n{log}")
        if stay:
            if not as_json:
                _announce(environment.addresses)
            # A reader at the other end of a pipe waits for this, and the process does not end.
            sys.stdout.flush()
            environment.stay()
    if not as_json:
        click.echo(_NEXT)


def _announce(addresses: Mapping[str, Mapping[str, Any]]) -> None:
    """Print where everything is, and how to log in."""
    click.echo("Everything stays up until Ctrl-C:")
    for name, one in addresses.items():
        click.echo(f"  {name:10} {one['url']}")
        for key, value in one["login"].items():
            click.echo(f"  {'':10} {key}: {value}")
    click.echo("Raise an event on the sandbox's page Trigger: it arrives in the dashboard.")


def report(
    rows: Sequence[DemoDelivery], seconds: float, as_json: bool, addresses: Mapping[str, object] | None = None
) -> bool:
    """Print the results; return True if every one is as expected. JSON has the addresses of what stays."""
    good = sum(not row.wrong for row in rows)
    if as_json:
        shown = [
            {"sent": row.label, "type": row.event_type, "expected": row.status, "got": row.reply.status,
             "answer": row.reply.body, "handler": row.handled, "state": row.stored, "ok": not row.wrong,
             "wrong": row.wrong}
            for row in rows
        ]  # fmt: skip
        found = {"ok": good == len(rows), "seconds": round(seconds, 2), "rows": shown}
        print_json({**found, "addresses": addresses} if addresses else found)
        return good == len(rows)
    columns = ("sent", "answer", "handler got", "inbox", "result")
    print_table("", columns, [_cells(row) for row in rows], whole=columns)
    for row in rows:
        if row.wrong:
            click.echo(f"{row.label}: {printable('; '.join(row.wrong))}")
    click.echo(f"{good} of {len(rows)} as expected, in {seconds:.1f} s")
    return good == len(rows)


def _cells(row: DemoDelivery) -> tuple[str, ...]:
    status = row.reply.status
    answer = "no answer" if status is None else str(status)
    if status == 200:
        answer += " duplicate" if "duplicate" in row.reply.body else " accepted"
    is_same = row.handled == row.event_type and not row.wrong
    handled = "same" if is_same else row.handled or "-"
    return row.label, answer, handled, row.stored or "-", "WRONG" if row.wrong else "ok"
