"""`billhook demo`: the whole path with real processes and sockets, and every delivery's result checked."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from billhook.cli.output import CliError, print_json, print_table, printable, progress
from billhook.cli.params import as_json
from billhook.errors import MissingExtra

if TYPE_CHECKING:
    from billhook.cli.demo.expectations import DemoResult
    from billhook.cli.demo.processes import DemoAddress

__all__ = ["demo", "report"]

_SAMPLES_ONLY = (
    "Note: sending samples; pip install 'billhook[sandbox]' to see the events of a real billing service"
)
_NEXT = "Next: README.md shows how to write your own handlers and try them with a sandbox"

_COLUMNS = ("sent", "answer", "handler got", "inbox", "result")


@click.command(short_help="See it work on this machine.")
@click.option("--stay", is_flag=True, help="Keep everything running until Ctrl-C, and print the addresses.")
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
    from billhook.cli.demo.processes import HANDLERS, DemoEnvironment

    started = time.monotonic()
    with DemoEnvironment(HANDLERS, stays=stay) as environment:
        if not environment.has_sandbox:
            if stay:
                raise MissingExtra("a demo that stays", "sandbox")
            click.echo(_SAMPLES_ONLY, err=True)
        with progress("running the demo", None) as steps:
            results = environment.play(steps.advance)
        seconds = time.monotonic() - started
        log = environment.log_tail() if any(result.wrong for result in results) else ""
        if not as_json:
            _print_steps(environment.steps)
        good = report(results, seconds, as_json, environment.addresses if stay else ())
        if good and stay:
            _announce(environment.addresses, as_json)
            environment.stay()
    if not good:
        raise CliError(
            "not every delivery had the expected result; the end of the servers' log:\n"
            + printable(log, "\n")
        )
    if not as_json:
        click.echo(_NEXT)


def _announce(addresses: Sequence[DemoAddress], as_json: bool) -> None:
    """Print where everything is, and how to log in."""
    if not as_json:
        click.echo("Everything stays up until Ctrl-C:")
        for one in addresses:
            click.echo(f"  {one.name:10} {one.url}")
            for name, value in one.login.items():
                click.echo(f"  {'':10} {name}: {value}")
        click.echo("Raise an event on the sandbox's page Trigger: it arrives in the dashboard.")
    # A reader at the other end of a pipe waits for this, and the process does not end.
    sys.stdout.flush()


def _print_steps(steps: Sequence[str]) -> None:
    """Print what was done before the table."""
    click.echo("gunicorn received the deliveries and a worker handled them. They were caused by:")
    for step in steps or ["signed a sample of each event type and posted it"]:
        click.echo(f"- {step}")
    click.echo("- posted 5 bad deliveries\n")


def report(
    results: Sequence[DemoResult], seconds: float, as_json: bool, addresses: Sequence[DemoAddress] = ()
) -> bool:
    """Print the results; return True if every one is as expected. JSON has the addresses of what stays."""
    good = sum(not result.wrong for result in results)
    if as_json:
        ok = good == len(results)
        found = {"ok": ok, "seconds": round(seconds, 2), "rows": [result.to_json() for result in results]}
        stays = {one.name: {"url": one.url, "login": dict(one.login)} for one in addresses}
        print_json({**found, "addresses": stays} if stays else found)
        return ok
    print_table(
        "",
        _COLUMNS,
        [
            (
                result.row.label,
                _answer(result),
                _handled(result),
                result.state or "-",
                "WRONG" if result.wrong else "ok",
            )
            for result in results
        ],
        whole=_COLUMNS,
    )
    for result in results:
        if result.wrong:
            click.echo(f"{result.row.label}: {printable('; '.join(result.wrong))}")
    click.echo(f"{good} of {len(results)} as expected, in {seconds:.1f} s")
    return good == len(results)


def _answer(result: DemoResult) -> str:
    got = result.answer.status
    text = "no answer" if got is None else str(got)
    if got == 200:
        text += " duplicate" if "duplicate" in result.answer.body else " accepted"
    return text


def _handled(result: DemoResult) -> str:
    """Return `same` for one call with the event that was sent, or the classes that the handler got."""
    if result.handled == result.row.event_type and not result.wrong:
        return "same"
    return result.handled or "-"
