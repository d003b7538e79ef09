"""`billhook demo`: the whole way, with real processes and a real socket, and every promise checked."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from billhook.cli.faults import Fault
from billhook.cli.output import print_json, print_table, printable, progress
from billhook.cli.params import as_json

if TYPE_CHECKING:
    from billhook.cli.demo_rows import Verdict

__all__ = ["demo", "report"]

_SAMPLES_ONLY = "Note: these are samples; events happen by themselves with pip install 'billhook[sandbox]'"
_NEXT = "Next: README.md, for handlers of your own and a sandbox to try them with"

_COLUMNS = ("sent", "answer", "handler got", "inbox", "result")


@click.command(short_help="See it work, here and now.")
@as_json
def demo(as_json: bool) -> None:
    """See it work: the billing service as a sandbox, gunicorn, a worker, an inbox, and 5 bad deliveries.

    The sandbox is subscribed to, usage is sent to it and its clock is moved, until each of the 23 events has
    happened by itself; all must be received and handled. Without the extra `sandbox`, samples are sent.

    Takes a few seconds, a free loopback port and a folder for temporary files; needs no network, no set-up
    and no secret, and leaves nothing behind. Exit code 0 if every delivery went as promised.

    \b
    Example:
      billhook demo && echo all is well
    """
    from billhook.cli.demo_stage import HANDLERS, Stage

    started = time.monotonic()
    with Stage(HANDLERS) as stage, progress("playing", None) as steps:
        if not stage.has_sandbox:
            click.echo(_SAMPLES_ONLY, err=True)
        verdicts = stage.play(steps.advance)
        seconds = time.monotonic() - started
        log = stage.log_tail() if any(verdict.wrong for verdict in verdicts) else ""
    if not as_json:
        _tell(stage.steps)
    good = report(verdicts, seconds, as_json)
    if not good:
        raise Fault(
            "not every delivery went as promised; the end of the server's log:\n" + printable(log, "\n")
        )
    if not as_json:
        click.echo(_NEXT)


def _tell(steps: Sequence[str]) -> None:
    """What led to the table."""
    click.echo("gunicorn received, a worker handled. What was done to be sent webhooks:")
    for step in steps or ["signed a sample of each event type and posted it"]:
        click.echo(f"- {step}")
    click.echo("- posted 5 bad deliveries\n")


def report(verdicts: Sequence[Verdict], seconds: float, as_json: bool) -> bool:
    """Print what happened; True if it all went as promised."""
    good = sum(not verdict.wrong for verdict in verdicts)
    if as_json:
        ok = good == len(verdicts)
        print_json(
            {"ok": ok, "seconds": round(seconds, 2), "rows": [verdict.facts() for verdict in verdicts]}
        )
        return ok
    print_table(
        "",
        _COLUMNS,
        [
            (
                verdict.row.label,
                _answer(verdict),
                _handled(verdict),
                verdict.state or "-",
                "WRONG" if verdict.wrong else "ok",
            )
            for verdict in verdicts
        ],
        whole=_COLUMNS,
    )
    for verdict in verdicts:
        if verdict.wrong:
            click.echo(f"{verdict.row.label}: {printable('; '.join(verdict.wrong))}")
    click.echo(f"{good} of {len(verdicts)} as promised, in {seconds:.1f} s")
    return good == len(verdicts)


def _answer(verdict: Verdict) -> str:
    got = verdict.answer.status
    text = "no answer" if got is None else str(got)
    if got == 200:
        text += " duplicate" if "duplicate" in verdict.answer.body else " accepted"
    return text


def _handled(verdict: Verdict) -> str:
    """`same`: once, the event that was sent, with its values."""
    if verdict.handled == verdict.row.event_type and not verdict.wrong:
        return "same"
    return verdict.handled or "-"
