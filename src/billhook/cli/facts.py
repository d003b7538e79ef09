"""A delivery in words and in JSON."""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from billhook.cli.output import print_table, printable
from billhook.inbox.admin import Details, Run, Summary

__all__ = ["details_facts", "print_details", "summary_facts", "write_body"]

_SHOWN_CHARACTERS = 4_000


def summary_facts(summary: Summary) -> dict[str, Any]:
    """As JSON has it; times in ISO 8601."""
    return _plain(asdict(summary))


def details_facts(details: Details) -> dict[str, Any]:
    """As JSON has it: the summary's facts, headers, body, runs and failures."""
    facts = summary_facts(details.summary)
    try:
        facts["body"] = details.body.decode("utf-8")
    except UnicodeDecodeError:
        facts["body_base64"] = base64.b64encode(details.body).decode("ascii")
    facts["headers"] = {_header(name): value for name, value in details.headers.items()}
    facts["error"] = None if details.error is None else _error(details.error)
    facts["runs"] = [_run_facts(run) for run in details.runs]
    return facts


def write_body(body: bytes) -> None:
    """The exact bytes to a file or a pipe; on a terminal, text that cannot act on it."""
    if sys.stdout.isatty():
        click.echo(_readable(body))
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(body)


def print_details(details: Details) -> None:
    """For people."""
    summary = details.summary
    click.echo(f"delivery {summary.id}: {printable(summary.event_type)}, {summary.state}")
    click.echo(f"received {summary.received_at.isoformat()} from source {printable(summary.source)}")
    if summary.signed_at is not None:
        click.echo(f"signed   {summary.signed_at.isoformat()}")
    click.echo(f"key      {printable(summary.key)}")
    if details.error is not None:
        _print_error(_error(details.error))
    if summary.state == "pruned":
        click.echo("past its retention: of all the rest nothing is kept")
        return
    print_table("headers", ("name", "value"), [(_header(n), v) for n, v in details.headers.items()])
    text = _readable(details.body)
    click.echo(f"body, {summary.body_bytes} bytes:")
    click.echo(text[:_SHOWN_CHARACTERS])
    if len(text) > _SHOWN_CHARACTERS:
        click.echo(f"… cut here: `billhook deliveries show {summary.id} --body` has all of it")
    _print_runs(details.runs)


def _error(text: str) -> dict[str, Any]:
    """Why a delivery is quarantined: `error`, and `details` with a `loc` and a `msg` for each field."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) and "error" in found else {"error": text, "details": []}


def _print_error(error: dict[str, Any]) -> None:
    click.echo(f"not readable: {printable(error['error'])}")
    for each in error.get("details") or ():
        place = ".".join(map(str, each["loc"]))
        click.echo(f"  {printable(place)}: {printable(each['msg'])}")


def _print_runs(runs: list[Run]) -> None:
    if not runs:
        click.echo("no handler has a run of it")
        return
    print_table(
        "runs",
        ("handler", "state", "attempts", "next", "last error"),
        [(run.handler, run.state, run.attempts, _next(run), run.last_error) for run in runs],
    )
    for run in runs:
        if run.twin_of is not None:
            click.echo(f"for {printable(run.handler)} it is a twin of delivery {run.twin_of}")
    failures = [(run.handler, one) for run in runs for one in run.failures]
    if failures:
        print_table(
            "failed attempts",
            ("handler", "attempt", "at (UTC)", "error"),
            [(handler, one.attempt, _at(one.failed_at), one.error) for handler, one in failures],
        )
        last = failures[-1][1].traceback
        if last:
            click.echo("the last one's traceback:")
            click.echo(printable(last.rstrip(), keep="\n"))


def _next(run: Run) -> str:
    return _at(run.due_at) if run.state in ("due", "running") else ""


def _at(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def _readable(body: bytes) -> str:
    return printable(body.decode("utf-8", "backslashreplace"), keep="\n\t")


def _header(name: str) -> str:
    return name.replace("_", "-").title()


def _run_facts(run: Run) -> dict[str, Any]:
    facts = _plain(asdict(run))
    facts["failures"] = [_plain(one) for one in facts["failures"]]
    return facts


def _plain(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: each.isoformat() if isinstance(each, datetime) else each for name, each in facts.items()}
