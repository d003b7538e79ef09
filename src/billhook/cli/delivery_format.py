"""Format deliveries: one in words or as JSON, a page of them as a table."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from shlex import quote
from typing import Any

import click

from billhook.cli.output import print_json, print_table, printable, took
from billhook.cli.selection import no_match
from billhook.handlers.quarantine import parse_error
from billhook.handlers.tracebacks import users_frames
from billhook.inbox import DeliveryFilter, Inbox, RunState
from billhook.inbox.deliveries import (
    DeliveryDetails,
    ListedDelivery,
    RunDetails,
    page,
    with_runs,
)
from billhook.inbox.states import DeliveryStatus
from billhook.program import in_program
from billhook.receiver.masking import masked_headers
from billhook.signing.source import DEFAULT_SOURCE

_SHOWN_CHARACTERS = 4_000


def _listed_json(one: ListedDelivery) -> dict[str, Any]:
    """Return what a list and a single delivery have: `state` is stored, `standing` is shown to people."""
    error = None if one.error is None else parse_error(one.error)
    runs = [asdict(run) for run in one.runs]
    return asdict(one.summary) | {"standing": one.status, "error": error, "runs": runs}


def delivery_error(error: str | None) -> str | None:
    """Return the text of the delivery's own error."""
    return None if error is None else str(parse_error(error)["error"])


def details_json(details: DeliveryDetails) -> dict[str, Any]:
    """Return a delivery as JSON: the summary, headers, body, runs and failures."""
    document = _listed_json(details)
    # Under another name, so that a reader of the JSON never takes base64 for the body itself.
    try:
        document["body"] = details.body.decode("utf-8")
    except UnicodeDecodeError:
        document["body_base64"] = base64.b64encode(details.body).decode("ascii")
    document["headers"] = {_header(name): value for name, value in details.headers.items()}
    return document


def write_body(body: bytes) -> None:
    """Write the exact bytes to a file or a pipe; on a terminal, escaped text that cannot control it."""
    if sys.stdout.isatty():
        click.echo(_readable(body))
    else:
        # `buffer` goes past the text layer: what that still holds has to come out first.
        sys.stdout.flush()
        sys.stdout.buffer.write(body)


def print_delivery(details: DeliveryDetails, signed_by: Iterable[str]) -> None:
    """Print a delivery for people; the values of the headers `signed_by` are masked."""
    summary = details.summary
    click.echo(f"delivery {summary.id}: {printable(summary.event_type) or '(no type)'}, {details.status}")
    click.echo(f"received {summary.received_at.isoformat()} from source {printable(summary.source)}")
    if summary.signed_at is not None:
        click.echo(f"signed   {summary.signed_at.isoformat()}")
    click.echo(f"key      {printable(summary.key)}")
    if summary.identifiers:
        click.echo(f"about    {' '.join(summary.identifiers)}")
    if summary.edited_from is not None:
        click.echo(f"its body was edited by an operator, from delivery {summary.edited_from}")
    if summary.sent_as is not None:
        click.echo(f"sent as  {printable(summary.sent_as) or '(no type)'}")
    if summary.conflict_of is not None:
        click.echo(f"it conflicts with delivery {summary.conflict_of}, which has the same key")
    if details.error is not None:
        # A delivery in conflict or without a type may be readable: an operator has to decide what it is.
        undecided = summary.conflict_of is not None or not summary.event_type
        what = "quarantined" if undecided else "not readable"
        _print_error(parse_error(details.error), "discarded" if summary.state == "done" else what)
    if summary.state == "pruned":
        click.echo("past its retention: everything else was deleted")
        return
    if summary.state == "erased":
        click.echo("erased: its headers, body and errors were removed")
        _print_runs(details.runs)
        return
    headers = masked_headers(details, signed_by)
    print_table("headers", ("name", "value"), [(name, value) for name, value, _ in headers])
    text = _readable(details.body)
    click.echo(f"body, {summary.body_bytes} bytes:")
    click.echo(text[:_SHOWN_CHARACTERS])
    if len(text) > _SHOWN_CHARACTERS:
        hint = in_program(f"`billhook deliveries show {summary.id} --body`")
        click.echo(f"… truncated; {hint} prints all of it")
    _print_runs(details.runs)


def print_hints(details: DeliveryDetails) -> None:
    """Print the commands that replay a delivery, send it elsewhere, or edited to a handler, on stderr."""
    one, handler = details.summary.id, next((run.handler for run in details.runs), "NAME")
    curl = in_program(f"billhook deliveries forward {one} --curl --to URL --secret-file FILE")
    edit = in_program(f"billhook deliveries resend {one} --handler {quote(printable(handler))}")
    click.echo(err=True)
    if details.status in (DeliveryStatus.DEAD, DeliveryStatus.QUARANTINED):
        click.echo(f"when its cause is mended: {in_program(f'billhook deliveries replay {one}')}", err=True)
    click.echo(f"as curl, signed now for a receiver of your own: {curl}", err=True)
    click.echo(f"edited, to one handler: {edit}", err=True)


def _print_error(error: dict[str, Any], what: str) -> None:
    click.echo(f"{what}: {printable(error['error'])}")
    for each in error.get("details") or ():
        place = ".".join(map(str, each["loc"]))
        click.echo(f"  {printable(place)}: {printable(each['msg'])}")


def _print_runs(runs: list[RunDetails]) -> None:
    if not runs:
        click.echo("no handler has a run of this delivery")
        return
    optional = ("took", "next", "last error", "why discarded")
    rows = [
        (run.handler, run.status, run.attempts, took(run.duration_seconds), _next_attempt(run), *_texts(run))
        for run in runs
    ]
    print_table("runs", ("handler", "state", "attempts", *optional), rows, optional=optional)
    for run in runs:
        if run.twin_of is not None:
            click.echo(f"for {printable(run.handler)} it is a duplicate of delivery {run.twin_of}")
    failures = [(run.handler, one) for run in runs for one in run.failures]
    if failures:
        columns = ("handler", "attempt", "at (UTC)", "took", "error")
        cells = [
            (name, one.attempt, _format_time(one.failed_at), took(one.duration_seconds), one.error)
            for name, one in failures
        ]
        print_table("failed attempts", columns, cells)
        last = failures[-1][1].traceback
        if last:
            click.echo("traceback of the last one:")
            click.echo(printable(users_frames(last.rstrip()), keep="\n"))


def _texts(run: RunDetails) -> tuple[str | None, str | None]:
    """Return the last error, and why the run was discarded: both are stored in one column."""
    return (None, run.last_error) if run.state == RunState.DISCARDED else (run.last_error, None)


def _next_attempt(run: RunDetails) -> str:
    if run.state not in ("due", "running"):
        return ""
    if run.due_at is None:
        return "" if run.paused else "when its handler's limit allows"
    return _format_time(run.due_at)


def _format_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def _readable(body: bytes) -> str:
    return printable(body.decode("utf-8", "backslashreplace"), keep="\n\t")


def _header(name: str) -> str:
    # Stored as WSGI names them, CONTENT_TYPE: the spelling that the sender used is not known.
    return name.replace("_", "-").title()


# Of several runs the one whose state comes first is shown; a `due` run that failed before is `retrying`.
_STATES_BY_SEVERITY = ("dead", "paused", "retrying", "running", "due", "waiting", "discarded", "succeeded")
_OPTIONAL_COLUMNS = (
    "about", "source", "next try (UTC)", "twin of", "conflict of", "why discarded", "last error"
)  # fmt: skip
_SPARE_COLUMNS = ("key", "next try (UTC)", "attempts", "handler", "about")
"""The columns that a narrow terminal leaves out, in this order; `show` prints them all."""


def print_deliveries(
    inbox: Inbox, selection: DeliveryFilter, limit: int, after: int | None, *, as_json: bool
) -> None:
    """Print the newest selected deliveries below the id `after`, and the option for the next page."""
    # One more than the limit shows whether there is another page, without a count of all.
    summaries = page(inbox, selection, limit + 1, below=after)
    more, shown = len(summaries) > limit, with_runs(inbox, summaries[:limit])
    if as_json:
        listed = [_listed_json(one) for one in shown]
        # A list does not load the failures: these would be empty, which reads as "never failed".
        for run in (run for one in listed for run in one["runs"]):
            del run["failures"]
        print_json(listed)
    elif not shown:
        click.echo(no_match(inbox, selection))
    else:
        _print(shown)
        if more:
            click.echo(f"More: add --after {shown[-1].summary.id}", err=True)


def _print(shown: Sequence[ListedDelivery]) -> None:
    """Print a table. A terminal cuts the last error, or the key; ids and names stay whole."""
    rows = [_row(one) for one in shown]
    if all(row["source"] == DEFAULT_SOURCE for row in rows):
        rows = [row | {"source": None} for row in rows]
    cut = next((name for name in ("last error", "why discarded") if any(row[name] for row in rows)), "key")
    print_table(
        "", list(rows[0]), [row.values() for row in rows],
        whole=rows[0].keys() - {cut}, cut=cut, optional=_OPTIONAL_COLUMNS,
        spare=[name for name in _SPARE_COLUMNS if name != cut],
    )  # fmt: skip


def _row(one: ListedDelivery) -> dict[str, Any]:
    summary, run = one.summary, min(one.runs, key=_rank, default=None)
    more = f" +{len(one.runs) - 1}" if len(one.runs) > 1 else ""
    error, reason = (None, None) if run is None else _texts(run)
    if one.error is not None:
        error = delivery_error(one.error)
    return {
        "id": summary.id,
        "received (UTC)": _format_time(summary.received_at),
        "type": summary.event_type or "(none)",
        "state": one.status,
        "about": " ".join(summary.identifiers),
        "source": summary.source,
        "handler": None if run is None else run.handler + more,
        "attempts": None if run is None else run.attempts,
        "next try (UTC)": None if run is None else _next_retry(run),
        "twin of": summary.twin_of,
        "conflict of": summary.conflict_of,
        "why discarded": " ".join(reason.split()) if reason else None,
        "last error": " ".join(error.split()) if error else None,
        "key": summary.key,
    }


def _rank(run: RunDetails) -> int:
    return _STATES_BY_SEVERITY.index("retrying" if _retried(run) and not run.paused else run.status)


def _retried(run: RunDetails) -> bool:
    return run.state == RunState.DUE and run.attempts > 0


def _next_retry(run: RunDetails) -> str | None:
    if run.state == RunState.DUE and run.due_at is None and not run.paused:
        return "at its limit"
    return _format_time(run.due_at) if _retried(run) and run.due_at is not None else None
