"""`billhook deliveries`: list, tail, show, export and discard; the others have modules of their own."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import click

from billhook.cli import delivery_format
from billhook.cli.context import load_settings, open_inbox, user_app
from billhook.cli.deletion import erase, prune
from billhook.cli.delivery_format import details_json, print_deliveries
from billhook.cli.forward import Outage, forward
from billhook.cli.output import (
    CliError,
    UsageConfigError,
    print_json,
    print_json_line,
    printable,
    progress,
    say_paused,
)
from billhook.cli.params import DELIVERY_ID, as_json, flag, integer, moment, string
from billhook.cli.replay import replay, resend
from billhook.cli.selection import (
    ALL_FILTERS,
    Selection,
    confirming,
    delivery_count,
    recording,
    selecting,
)
from billhook.errors import PayloadError
from billhook.events import Event, parse_event
from billhook.extension import configured_scheme
from billhook.inbox import Deliveries, DeliveryDetails
from billhook.inbox.deliveries import details
from billhook.inbox.discard import DiscardResult
from billhook.inbox.discard import discard as discard_these
from billhook.receiver.masking import signature_headers

_LINES = 10
_SEARCHED = 10_000
"""How many deliveries are searched for the first lines of `--contains`: new ones are what is waited for."""
_WIDTHS = (23, 6, 30, 11, 7, 0)
"""Of the columns: the longest of the listed types has 30 characters. A longer cell is not cut."""
_LONGEST_REASON = 500


@click.command(short_help="Follow new deliveries.")
@selecting("event_type", "source", "key", "search", "contains", "conflicts")
@click.option(
    "-n", "--lines", type=click.IntRange(0, 100_000), metavar="N",
    help="Begin with the newest N. Default: 10; with --since all of them.",
)  # fmt: skip
@moment("--since", "Begin with those since this time")
@flag("--json", "as_json", told="Print a line of JSON for each, as `deliveries export` does.")
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
    from billhook.inbox.deliveries import export

    limit = lines if lines is not None or since is not None else _LINES
    selected = replace(selection.filter, since=since)
    with open_inbox() as inbox, suppress(KeyboardInterrupt):
        deliveries = Deliveries(inbox)
        newest = next(deliveries.find(limit=1), None)
        last = 0 if newest is None else newest.summary.id
        if limit != 0:
            first = replace(selection, filter=selected, search_limit=_SEARCHED).bounded(inbox)
            found = (
                export(inbox, first) if limit is None else reversed([*deliveries.find(first, limit=limit)])
            )
            for one in found:
                _print(one, as_json=selection.as_json)
                last = max(last, one.summary.id)
        for one in deliveries.follow(selected, after=last, on_unavailable=Outage().wait):
            _print(one, as_json=selection.as_json)


def _print(one: DeliveryDetails, *, as_json: bool) -> None:
    if as_json:
        print_json_line(details_json(one))
        return
    summary = one.summary
    received = summary.received_at.isoformat(" ", "milliseconds").removesuffix("+00:00")
    cells = (received, summary.id, summary.event_type or "(none)", one.status, summary.source, summary.key)
    # Of the same widths in every line, for each is printed before the next is known.
    padded = [printable(cell).ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)]
    about = summary.identifiers
    if one.status == "received":  # it is planned some milliseconds later
        with suppress(PayloadError):
            event = parse_event(summary.event_type, one.body)
            about = event.identifying_values() if isinstance(event, Event) else ()
    conflict = "" if summary.conflict_of is None else f"  conflicts with {summary.conflict_of}"
    click.echo("  ".join([*padded, *about]) + conflict)


@click.group()
def deliveries() -> None:
    """List, follow, show, replay, resend, forward, discard, export, prune and erase deliveries.

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


deliveries.add_command(erase)
deliveries.add_command(forward)
deliveries.add_command(prune)
deliveries.add_command(replay)
deliveries.add_command(resend)
deliveries.add_command(tail)


@deliveries.command("list")
@selecting(*ALL_FILTERS)
@integer("--limit", 1, 10_000, 50, "The highest number of deliveries.")
@click.option(
    "--after",
    type=DELIVERY_ID,
    metavar="ID",
    help="Continue after this delivery, the last of the previous page.",
)
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
        print_deliveries(inbox, selection.bounded(inbox), limit, after, as_json=selection.as_json)
        say_paused(inbox.paused_handlers())


@deliveries.command(short_help="Show a delivery with its runs.")
@click.argument("delivery_id", type=DELIVERY_ID, metavar="ID")
@as_json
@flag("--body", told="Print only the body, unchanged (escaped on a terminal).")
def show(delivery_id: int, as_json: bool, body: bool) -> None:
    """Show a delivery: its headers, its body, and the result of each handler.

    Values of signatures are masked, as on its page; --json has them.

    \b
    Examples:
      billhook deliveries show 42
      billhook deliveries show 42 --body > body.json
    """
    if as_json and body:
        raise click.UsageError("choose one of --json and --body: the JSON includes the body")
    with open_inbox() as inbox:
        found, paused = details(inbox, [delivery_id]), inbox.paused_handlers()
    if not found:
        raise CliError(f"there is no delivery {delivery_id} in this inbox: see `billhook deliveries list`")
    if as_json:
        print_json(details_json(found[0]))
    elif body:
        delivery_format.write_body(found[0].body)
    else:
        app = user_app()
        signed_by = configured_scheme(load_settings()).headers if app is None else signature_headers(app)
        delivery_format.print_delivery(found[0], signed_by)
        shown = {each.handler for each in found[0].runs}
        say_paused(one for one in paused if one.name in shown)
        if found[0].body:
            delivery_format.print_hints(found[0])


@deliveries.command(short_help="Write deliveries as JSON Lines.")
@selecting()
def export(selection: Selection) -> None:
    """Write deliveries as JSON Lines, oldest first, with bodies, runs and failures.

    A body that is not UTF-8 is in body_base64 instead of body. The file has the permissions of your shell's
    umask: run umask 077 first, because it holds customers' data. `billhook actions` lists each export.

    \b
    Example:
      billhook deliveries export --since 7d > deliveries.jsonl
    """
    from billhook.inbox.deliveries import count, export

    exported: list[int] = []
    with open_inbox() as inbox, recording(inbox, "export", selection.conditions) as add:
        bounded = selection.bounded(inbox)
        try:
            with progress("exporting", count(inbox, bounded)) as steps:
                # One line at a time: an inbox can be larger than the memory.
                for one in export(inbox, bounded):
                    exported.append(one.summary.id)
                    print_json_line(details_json(one))
                    steps()
        finally:
            add(len(exported), exported)


@deliveries.command(short_help="Discard deliveries that can never succeed.")
@selecting(ids=True)
@string("--reason", "TEXT", "The reason; it is stored as the last error.", required=True)
@confirming
def discard(selection: Selection, reason: str) -> None:
    """Discard deliveries: those given by ID, or those that the options select.

    Handlers that have not succeeded are not called again, and the deliveries are done, with the reason as
    their last error. Quarantined deliveries and those not yet parsed can be discarded, too. A handler that is
    running continues, but its result is ignored. `replay` undoes a discard.

    \b
    Examples:
      billhook deliveries discard 42 --reason 'the customer is gone'
      billhook deliveries discard --state dead --handler shop.chase --reason 'done by hand' --dry-run
    """
    reason = " ".join(reason.split())[:_LONGEST_REASON]  # one line: it is a cell of the table of deliveries
    if not reason:
        raise UsageConfigError("--reason is empty: give a reason, which is stored with the delivery")
    now = datetime.now(UTC)
    with open_inbox() as inbox:
        found = selection.find(inbox, "Discard {}?")
        if found is None:
            return
        change = partial(discard_these, inbox, reason=reason, now=now, dry_run=selection.dry_run)
        done = selection.apply(inbox, found, change, DiscardResult())
    if selection.as_json:
        counts = {"selected": found.total, "discarded": done.deliveries, "runs": done.runs}
        print_json({**counts, "reason": reason, "dry_run": selection.dry_run})
        return
    would = "would be " if selection.dry_run else ""
    runs = "1 run" if done.runs == 1 else f"{done.runs} runs"
    click.echo(f"{done.deliveries} of {delivery_count(found.total)} {would}discarded, with {runs}")
    if not done.deliveries:
        click.echo("Nothing to do: they are already done, or past their retention.")
