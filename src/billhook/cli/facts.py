"""A delivery in words and in JSON."""

from __future__ import annotations

import base64
import json
import re
import sys
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from billhook.cli.output import print_table, printable
from billhook.inbox.admin import Details, Listed, Run, Summary

__all__ = ["details_facts", "error_text", "listed_facts", "print_details", "write_body"]

_SHOWN_CHARACTERS = 4_000
_CALLER = re.compile(r'  File "[^"]*/billhook/dispatch/(?:call|handler)\.py", ')


def _summary_facts(summary: Summary, standing: str) -> dict[str, Any]:
    """`state` is the stored one, `standing` what people are told; times in ISO 8601."""
    return _plain(asdict(summary)) | {"standing": standing}


def listed_facts(one: Listed) -> dict[str, Any]:
    """As JSON has it: the summary's facts, the error, and the runs without their failures."""
    facts = _summary_facts(one.summary, one.standing)
    facts["error"] = None if one.error is None else _error(one.error)
    facts["runs"] = [_run_facts(run) for run in one.runs]
    for run in facts["runs"]:
        del run["failures"]
    return facts


def error_text(error: str | None) -> str | None:
    """The delivery's own error in words."""
    return None if error is None else str(_error(error)["error"])


def details_facts(details: Details) -> dict[str, Any]:
    """As JSON has it: the summary's facts, headers, body, runs and failures."""
    facts = _summary_facts(details.summary, details.standing)
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
    click.echo(f"delivery {summary.id}: {printable(summary.event_type) or '(no type)'}, {details.standing}")
    click.echo(f"received {summary.received_at.isoformat()} from source {printable(summary.source)}")
    if summary.signed_at is not None:
        click.echo(f"signed   {summary.signed_at.isoformat()}")
    click.echo(f"key      {printable(summary.key)}")
    if summary.sent_as is not None:
        click.echo(f"came as  {printable(summary.sent_as) or '(no type)'}")
    if summary.conflict_of is not None:
        click.echo(f"it contradicts delivery {summary.conflict_of}, which has the same key")
    if details.error is not None:
        undecided = summary.conflict_of is not None or not summary.event_type
        what = "quarantined" if undecided else "not readable"
        _print_error(_error(details.error), "discarded" if summary.state == "done" else what)
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
    """Why a delivery is quarantined or discarded: `error`, and `details`, a `loc` and a `msg` a field."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) and "error" in found else {"error": text, "details": []}


def _print_error(error: dict[str, Any], what: str) -> None:
    click.echo(f"{what}: {printable(error['error'])}")
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
            click.echo(printable(_users_frames(last.rstrip()), keep="\n"))


def _users_frames(traceback: str) -> str:
    """Without the frames of billhook that called the handler: they tell nothing of it."""
    kept: list[str] = []
    leaving_out = at_head = False
    for line in traceback.splitlines():
        if line.startswith('  File "'):
            leaving_out = at_head and _CALLER.match(line) is not None
            at_head = leaving_out
        elif not line.startswith("    "):
            leaving_out, at_head = False, line.startswith("Traceback ")
        if not leaving_out:
            kept.append(line)
    return "\n".join(kept)


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
