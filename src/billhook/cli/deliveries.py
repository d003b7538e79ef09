"""`billhook deliveries`: list, tail, show and export; its other commands have modules of their own."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime
from shlex import quote
from typing import Any

import click

from billhook.basics.printable import first_line
from billhook.cli.context import load_settings, open_inbox, user_app
from billhook.cli.deletion import discard, erase, prune
from billhook.cli.forward import Outage, forward
from billhook.cli.output import (
    CliError,
    print_json,
    print_json_line,
    print_table,
    printable,
    progress,
    say,
    say_paused,
    took,
)
from billhook.cli.params import DELIVERY_ID, ShowGroup, as_json, flag, moment, option, paged
from billhook.cli.postpone import postpone
from billhook.cli.replay import replay, resend
from billhook.cli.selection import Selection, no_match, recording, selecting
from billhook.clock import format_time
from billhook.errors import ModelFailed, PayloadError
from billhook.errors.program import in_program
from billhook.events import Event
from billhook.events.own_models import guarded
from billhook.events.type_field import parse_unread
from billhook.extension import configured_scheme
from billhook.inbox import Deliveries, DeliveryDetails, RunState
from billhook.inbox.reading.deliveries import ListedDelivery, RunDetails, count, details, with_runs
from billhook.inbox.reading.deliveries import export as export_these
from billhook.inbox.reading.search_scope import page_with_unread, read_scope
from billhook.inbox.running.filters import FILTERS
from billhook.inbox.tables.states import DeliveryStatus
from billhook.receiver.masking import masked_headers, signature_headers
from billhook.signing.source import DEFAULT_SOURCE

_LINES = 10
_SEARCHED = 10_000
"""How many deliveries are searched for the first lines of `--contains`: new ones are what is waited for."""
_WIDTHS = (23, 6, 30, 11, 7, 0)
"""Of the columns: the longest of the listed types has 30 characters. A longer cell is not cut."""


@click.command(short_help="Follow new deliveries.")
@selecting("event_type", "source", "key", "search", "contains", "conflicts", limit=False)
@option(
    "-n --lines N",
    "Begin with the newest N. Default: 10; with --since all of them.",
    click.IntRange(0, 100_000),
)
@moment("--since", "Begin with those since this time")
@flag("--json as_json", "Print a line of JSON for each, as `deliveries export` does.")
def tail(selection: Selection, lines: int | None, since: datetime | None) -> None:
    """Print the newest deliveries, and then each new one as it is stored, until Ctrl-C.

    A line has the time of receipt in UTC, the id, the type, the state at that moment, the source, the key and
    what the delivery is about.
    An inbox that is unavailable meanwhile is waited for.

    \b
    Examples:
      billhook deliveries tail
      billhook deliveries tail -n 0 --type PaymentFailed --json | jq .body
    """
    limit = lines if lines is not None or since is not None else _LINES
    selected = replace(selection.filter, since=since)
    with open_inbox() as inbox, suppress(KeyboardInterrupt):
        deliveries = Deliveries(inbox)
        newest = next(deliveries.find(limit=1), None)
        last = 0 if newest is None else newest.summary.id
        if limit != 0:
            first = replace(selection, filter=selected, search_limit=_SEARCHED).bounded(inbox)
            newest_last = reversed([*deliveries.find(first, limit=limit)])
            for one in export_these(inbox, first) if limit is None else newest_last:
                _print_line(one, as_json=selection.as_json)
                last = max(last, one.summary.id)
        for one in deliveries.follow(selected, after=last, on_unavailable=Outage().wait):
            _print_line(one, as_json=selection.as_json)


def _print_line(one: DeliveryDetails, *, as_json: bool) -> None:
    if as_json:
        print_json_line(details_json(one))
        return
    summary = one.summary
    received = summary.received_at.isoformat(" ", "milliseconds").removesuffix("+00:00")
    about = summary.identifiers
    if one.status == "received":  # it is planned some milliseconds later
        try:
            event = parse_unread(summary.event_type, summary.type_field, one.body)
            summary = replace(summary, event_type=event.type)
            with guarded(event.type):
                about = event.identifying_values() if isinstance(event, Event) else ()
        except ModelFailed as error:
            about = (first_line(str(error)),)
        except PayloadError:
            pass  # its state says it, some milliseconds later
    cells = (received, summary.id, summary.type_text, one.status, summary.source, summary.key)
    # Of the same widths in every line, for each is printed before the next is known.
    padded = [printable(cell).ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)]
    conflict = "" if summary.conflict_of is None else f"  conflicts with {summary.conflict_of}"
    click.echo("  ".join([*padded, *about]) + conflict)


@click.group(cls=ShowGroup)
def deliveries() -> None:
    """List, follow, show, replay, postpone, resend, forward, discard, export, prune and erase deliveries.

    Standalone they need no secrets of the receiver.

    \b
    States:
      received     not yet parsed
      waiting      no handler has started, or it waits for an earlier delivery
      running      a handler is running
      paused       a handler of it is paused: `billhook handlers resume NAME`
      retrying     a handler failed and will be called again
      done         every handler succeeded, there was none, or it was discarded
      dead         a handler failed at its last attempt: replay or discard it
      quarantined  authentic, but unreadable, without a type, or in conflict
      pruned       past its retention: only its key is kept, to detect duplicates
      erased       its content was erased: its key is kept, too
    """


for _command in (discard, erase, forward, postpone, prune, replay, resend, tail):
    deliveries.add_command(_command)


@deliveries.command("list")
@selecting(*FILTERS)
@paged("delivery", "deliveries", DELIVERY_ID)
@as_json
def list_(selection: Selection, limit: int, after: int | None) -> None:
    """List deliveries, newest first. A line shows the handler in the worst state.

    \b
    Examples:
      billhook deliveries list --state retrying --error KeyError
      billhook deliveries list --state dead --since 2h
      billhook deliveries list --type InvoiceApproved --json | jq '.[].key'
      billhook deliveries list --search inv_3007
    """
    with open_inbox() as inbox:
        bounded = selection.bounded(inbox)
        # One more than the limit shows whether there is another page, without a count of all.
        summaries = page_with_unread(inbox, bounded, limit + 1, after)
        shown = with_runs(inbox, summaries[:limit])
        if selection.as_json:
            listed = [_listed_json(one) for one in shown]
            # A list does not load the failures: these would be empty, which reads as "never failed".
            for run in (run for one in listed for run in one["runs"]):
                del run["failures"]
            print_json(listed)
            if not shown:
                say(no_match(inbox, bounded))
        elif not shown:
            click.echo(no_match(inbox, bounded))
        else:
            _print_list(shown)
            if len(summaries) > limit:
                say(f"More: add --after {shown[-1].summary.id}")
        if shown and (scope := read_scope(inbox, bounded)) is not None and scope.unread_text is not None:
            say(scope.unread_text)
        say_paused(inbox.paused_handlers())


@deliveries.command(short_help="Show a delivery with its runs.")
@click.argument("delivery_id", type=DELIVERY_ID, metavar="ID")
@as_json
@flag("--body", "Print only the body, unchanged (escaped on a terminal).")
def show(delivery_id: int, as_json: bool, body: bool) -> None:
    """Show a delivery: its headers, its body, and the result of each handler.

    Values of signatures are masked, as on its page; --json has them.

    \b
    Examples:
      billhook deliveries show 42
      (umask 077; billhook deliveries show 42 --body > body.json)
    """
    if as_json and body:
        raise click.UsageError("choose one of --json and --body: the JSON includes the body")
    with open_inbox() as inbox:
        found, paused = details(inbox, [delivery_id]), inbox.paused_handlers()
    if not found:
        raise CliError(f"there is no delivery {delivery_id} in this inbox: see `billhook deliveries list`")
    if as_json:
        print_json(details_json(found[0]))
    elif body and sys.stdout.isatty():
        click.echo(_readable(found[0].body))  # escaped text cannot control the terminal
    elif body:
        # `buffer` goes past the text layer: what that still holds has to come out first.
        sys.stdout.flush()
        sys.stdout.buffer.write(found[0].body)
    else:
        app = user_app()
        signed_by = configured_scheme(load_settings()).headers if app is None else signature_headers(app)
        _print_delivery(found[0], signed_by)
        shown = {each.handler for each in found[0].runs}
        say_paused(one for one in paused if one.name in shown)
        if found[0].body:
            _print_hints(found[0])


@deliveries.command(short_help="Write deliveries as JSON Lines.")
@selecting()
def export(selection: Selection) -> None:
    """Write deliveries as JSON Lines, oldest first, with bodies, runs and failures.

    A body that is not UTF-8 is in body_base64 instead of body. The file has the permissions of your shell's
    umask, and it holds customers' data. `billhook actions` lists each export.

    \b
    Example:
      (umask 077; billhook deliveries export --since 7d > deliveries.jsonl)
    """
    exported: list[int] = []
    with open_inbox() as inbox, recording(inbox, "export", selection.filter.as_options) as add:
        bounded = selection.bounded(inbox)
        try:
            with progress("exporting", count(inbox, bounded)) as steps:
                # One line at a time: an inbox can be larger than the memory.
                for one in export_these(inbox, bounded):
                    exported.append(one.summary.id)
                    print_json_line(details_json(one))
                    steps()
        finally:
            add(len(exported), exported)


_SHOWN_CHARACTERS = 4_000


def _listed_json(one: ListedDelivery) -> dict[str, Any]:
    """Return what a list and a single delivery have: `state` is stored, `standing` is shown to people."""
    own = {"standing": one.status, "error": one.parsed_error, "runs": [asdict(run) for run in one.runs]}
    return asdict(one.summary) | own


def details_json(details: DeliveryDetails) -> dict[str, Any]:
    """Return a delivery as JSON: the summary, headers, body, runs and failures."""
    document = _listed_json(details)
    # Under another name, so that a reader of the JSON never takes base64 for the body itself.
    try:
        document["body"] = details.body.decode("utf-8")
    except UnicodeDecodeError:
        document["body_base64"] = base64.b64encode(details.body).decode("ascii")
    # Stored as WSGI names them, CONTENT_TYPE: the spelling that the sender used is not known.
    document["headers"] = {name.replace("_", "-").title(): value for name, value in details.headers.items()}
    return document


def _print_delivery(details: DeliveryDetails, signed_by: Iterable[str]) -> None:
    """Print a delivery for people; the values of the headers `signed_by` are masked."""
    summary, error = details.summary, details.parsed_error
    signed_at, edited_from = summary.signed_at, summary.edited_from
    sent_as, conflict_of = summary.sent_as, summary.conflict_of
    facts = [
        f"delivery {summary.id}: {printable(summary.type_text)}, {details.status}",
        f"received {format_time(summary.received_at)} UTC from source {printable(summary.source)}",
        f"signed   {format_time(signed_at)} UTC" if signed_at else None,
        f"key      {printable(summary.key)}",
        f"about    {' '.join(summary.identifiers)}" if summary.identifiers else None,
        f"its body was edited by an operator, from delivery {edited_from}" if edited_from else None,
        f"sent as  {printable(sent_as) or '(no type)'}" if sent_as is not None else None,
        f"it conflicts with delivery {conflict_of}, which has the same key" if conflict_of else None,
    ]
    if error is not None:
        # A delivery in conflict or without a type may be readable: an operator has to decide what it is.
        undecided = conflict_of is not None or not summary.event_type
        what = "quarantined" if undecided else "not readable"
        facts.append(f"{'discarded' if summary.state == 'done' else what}: {printable(error['error'])}")
        facts += [
            f"  {printable('.'.join(map(str, each['loc'])))}: {printable(each['msg'])}"
            for each in error.get("details") or ()
        ]
    facts.append(_GONE.get(summary.state))
    click.echo("\n".join(filter(None, facts)))
    if summary.state not in _GONE:
        headers = masked_headers(details, signed_by)
        print_table(("name", "value"), [(name, value) for name, value, _ in headers], title="headers")
        text = _readable(details.body)
        click.echo(f"body, {summary.body_bytes} bytes:")
        click.echo(text[:_SHOWN_CHARACTERS])
        if len(text) > _SHOWN_CHARACTERS:
            hint = in_program(f"`billhook deliveries show {summary.id} --body`")
            click.echo(f"… truncated; {hint} prints all of it")
    if summary.state != "pruned":
        _print_runs(details.runs)


_GONE = {
    "pruned": "past its retention: everything else was deleted",
    "erased": "erased: its headers, body and errors were removed",
}


def _print_hints(details: DeliveryDetails) -> None:
    """Print the commands that replay a delivery, send it elsewhere, or edited to a handler, on stderr."""
    one, handler = details.summary.id, next((run.handler for run in details.runs), "NAME")
    say()
    if details.status in (DeliveryStatus.DEAD, DeliveryStatus.QUARANTINED):
        say(in_program(f"when its cause is mended: billhook deliveries replay {one}"))
    curl = in_program(f"billhook deliveries forward {one} --curl --to URL --secret-file FILE")
    say(f"as curl, signed now for a receiver of your own: {curl}")
    handler = quote(printable(handler))
    say(in_program(f"edited, to one handler: billhook deliveries resend {one} --handler {handler}"))


def _print_runs(runs: list[RunDetails]) -> None:
    if not runs:
        click.echo("no handler has a run of this delivery")
        return
    optional = ("took", "next (UTC)", "worker", "release", "last error", "why discarded")
    rows = [
        (run.handler, run.status, run.attempts, took(run.duration_seconds),
         _next(run, "when its handler's limit allows"), run.worker, run.release, *_texts(run))
        for run in runs
    ]  # fmt: skip
    print_table(("handler", "state", "attempts", *optional), rows, title="runs", optional=optional)
    for run in runs:
        if run.twin_of is not None:
            click.echo(f"for {printable(run.handler)} it is a duplicate of delivery {run.twin_of}")
    failed = [(run.handler, one) for run in runs for one in run.failures]
    if failed:
        columns = ("handler", "attempt", "at (UTC)", "took", "release", "error")
        cells = [
            (
                name,
                one.attempt,
                format_time(one.failed_at),
                took(one.duration_seconds),
                one.release,
                one.error,
            )
            for name, one in failed
        ]
        print_table(columns, cells, title="failed attempts", optional=["release"])
        if last := failed[-1][1].traceback:
            click.echo("traceback of the last one:")
            click.echo(printable(last.rstrip(), keep="\n"))


def _texts(run: RunDetails) -> tuple[str | None, str | None]:
    """Return the last error, and why the run was discarded: both are stored in one column."""
    return (None, run.last_error) if run.state == RunState.DISCARDED else (run.last_error, None)


def _next(run: RunDetails, limited: str) -> str | None:
    """Return when the next attempt is due; `limited` where the limit of the handler decides."""
    if run.not_before is not None and run.state in (RunState.DUE, RunState.WAITING):
        return f"not before {format_time(run.not_before)}"
    if run.state != RunState.DUE:
        return None
    if run.due_at is None:
        return None if run.paused else limited
    return format_time(run.due_at)


def _readable(body: bytes) -> str:
    return printable(body.decode("utf-8", "backslashreplace"), keep="\n\t")


# Of several runs the one whose state comes first is shown.
_STATES_BY_SEVERITY = ("dead", "paused", "retrying", "running", "due", "waiting", "discarded", "succeeded")
_SPARE_COLUMNS = ("key", "next try (UTC)", "attempts", "handler", "about")
"""The columns that a narrow terminal leaves out, in this order; `show` prints them all."""


def _print_list(shown: Sequence[ListedDelivery]) -> None:
    """Print a table. A terminal cuts the last error, or the key; ids and names stay whole."""
    rows = [_row(one) for one in shown]
    if all(row["source"] == DEFAULT_SOURCE for row in rows):
        rows = [row | {"source": None} for row in rows]
    cut = next((name for name in ("last error", "why discarded") if any(row[name] for row in rows)), "key")
    print_table(
        list(rows[0]), [row.values() for row in rows],
        whole=rows[0].keys() - {cut}, cut=cut, optional=rows[0].keys(),
        spare=[name for name in _SPARE_COLUMNS if name != cut],
    )  # fmt: skip


def _row(one: ListedDelivery) -> dict[str, Any]:
    summary = one.summary
    run = min(one.runs, key=lambda run: _STATES_BY_SEVERITY.index(run.standing), default=None)
    error, reason = (None, None) if run is None else _texts(run)
    if one.parsed_error is not None:
        error = str(one.parsed_error["error"])
    row = {
        "id": summary.id,
        "received (UTC)": format_time(summary.received_at),
        "type": summary.type_text,
        "state": one.status,
        "about": " ".join(summary.identifiers),
        "source": summary.source,
        "handler": None,
        "attempts": None,
        "next try (UTC)": None,
        "duplicate of": summary.twin_of,
        "conflict of": summary.conflict_of,
        "why discarded": " ".join(reason.split()) if reason else None,
        "last error": " ".join(error.split()) if error else None,
        "key": summary.key,
    }
    if run is not None:
        more = f" +{len(one.runs) - 1}" if len(one.runs) > 1 else ""
        waits = run.state == RunState.DUE and (run.attempts > 0 or run.due_at is None)
        next_try = _next(run, "at its limit") if waits or run.not_before else None
        row |= {"handler": run.handler + more, "attempts": run.attempts, "next try (UTC)": next_try}
    return row
