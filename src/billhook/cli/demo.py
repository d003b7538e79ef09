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

_COLUMNS = ("sent", "answer", "handler got", "inbox", "result")


@click.command()
@as_json
def demo(as_json: bool) -> None:
    """See it work: gunicorn, a worker, an inbox, and 28 deliveries, 5 of them bad.

    Takes a few seconds, a free loopback port and a folder for temporary files; needs no network, no set-up
    and no secret, and leaves nothing behind. Exit code 0 if every delivery went as promised.

    \b
    Example:
      billhook demo && echo all is well
    """
    from billhook.cli.demo_stage import HANDLERS, Stage

    started = time.monotonic()
    with Stage(HANDLERS) as stage, progress("delivering", len(stage.rows)) as steps:
        verdicts = stage.play(steps.advance)
        seconds = time.monotonic() - started
        log = stage.log_tail() if any(verdict.wrong for verdict in verdicts) else ""
    good = report(verdicts, seconds, as_json)
    if not good:
        raise Fault(
            "not every delivery went as promised; the end of the server's log:\n" + printable(log, "\n")
        )


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
