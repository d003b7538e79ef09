"""`billhook deliveries erase`: remove the content of deliveries for good, and keep their keys."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from billhook.cli.context import open_inbox
from billhook.cli.errors import CliError, UsageConfigError
from billhook.cli.output import print_json, progress
from billhook.cli.params import DELIVERY_ID, TEXT, as_json, delivery_filters
from billhook.cli.selection import (
    Flags,
    Selected,
    confirm,
    delivery_count,
    describe,
    in_batches,
    parse_selection,
    select,
    within_search_limit,
    work_in_batches,
)

if TYPE_CHECKING:
    from billhook.inbox import DeliveryFilter, Inbox
    from billhook.inbox.erase import EraseResult

__all__ = ["erase"]

_BATCH = 200
_MOST_NAMED = 20


@click.command(
    epilog="Copies elsewhere are not erased: backups, exports, logs, your own database; nor, until VACUUM, "
    "dead rows on PostgreSQL and traces of rows that moved on SQLite. The page of the inbox says more."
)
@click.argument("delivery_ids", type=DELIVERY_ID, nargs=-1, metavar="[ID]...")
@click.option(
    "--customer",
    type=TEXT,
    metavar="ID",
    help="Whose body names this customer: exactly this id, in a field that identifies a customer.",
)
@delivery_filters
@click.option("--handler", type=TEXT, metavar="NAME", help="With a run of this handler.")
@click.option(
    "--conflicts", is_flag=True, help="Deliveries with the key of another delivery but other content."
)
@click.option(
    "--discard",
    is_flag=True,
    help="Discard those that are not finished: their handlers are not called again.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be done without doing it.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@as_json
def erase(
    delivery_ids: tuple[int, ...],
    customer: str | None,
    discard: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **selected: Any,
) -> None:
    """Erase deliveries: those given by ID, of a customer, or that the options select.

    Body, headers, errors and failed attempts are removed from the database. The key stays, so that the
    delivery is still a duplicate when it is sent again, and is not stored; so do its type, its times and the
    result of each handler. An erased delivery cannot be replayed. Exit code 1 if one that is not finished,
    or not readable, was left.

    \b
    Examples:
      billhook deliveries erase 42
      billhook deliveries erase --customer cus_1001 --dry-run
    """
    selection, search_limit = parse_selection("erase", delivery_ids, selected, also=customer is not None)
    flags = Flags(dry_run, yes, as_json)
    with open_inbox() as inbox:
        if customer is None:
            # Not asked here: the question says what an answer of yes does, which is counted first.
            quiet = flags._replace(yes=True)
            chosen = select(
                inbox, delivery_ids, selection, search_limit, question="", done="erased", flags=quiet
            )
            unsure: list[int] = []
        else:
            _check_customer(customer, delivery_ids)
            selection = within_search_limit(inbox, selection, search_limit)
            chosen, unsure = _of_customer(inbox, customer, selection)
        if chosen is not None:
            _work(inbox, chosen, unsure, flags, discard=discard)


def _check_customer(customer: str, delivery_ids: tuple[int, ...]) -> None:
    if not customer.strip():
        raise UsageConfigError("--customer is empty: give the customer's id, as deliveries have it")
    if delivery_ids:
        raise click.UsageError("give ids or --customer, not both")


def _work(inbox: Inbox, chosen: Selected, unsure: list[int], flags: Flags, *, discard: bool) -> None:
    """Count, ask, erase and report; exit code 1 if a delivery was left."""
    ids = [one for batch in chosen.batches for one in batch]
    done, clean = _count(inbox, ids, discard=discard, dry_run=flags.dry_run), True
    if done.erased and not flags.dry_run:
        if not any(flags):
            confirm(_question(done))
        done, clean = _erase(inbox, chosen._replace(batches=in_batches(ids, _BATCH)), discard=discard)
    _report(len(ids), done, unsure, clean=clean, flags=flags)
    if unsure or (done.unfinished and not flags.dry_run):
        sys.exit(1)


def _of_customer(inbox: Inbox, customer: str, selection: DeliveryFilter) -> tuple[Selected, list[int]]:
    """Return the deliveries that name the customer, and those that cannot be read and have the id in them."""
    from billhook.events.inspection import names_customer, search_parts
    from billhook.inbox.admin import count
    from billhook.inbox.erase import search_bodies

    def examine(event_type: str, body: bytes) -> bool | None:
        return names_customer(event_type, body, customer)

    with progress("searching", count(inbox, selection)) as steps:
        search = search_bodies(inbox, selection, search_parts(customer), examine, steps.advance)
    click.echo(f"searched {delivery_count(search.searched)}: {len(search.found)} of this customer", err=True)
    which = " ".join(filter(None, ["--customer …", describe(selection)]))
    return Selected([search.found], len(search.found), which), search.unsure


def _count(inbox: Inbox, ids: list[int], *, discard: bool, dry_run: bool) -> EraseResult:
    """Count what there is to erase. Raises CliError for what is not finished, unless it may be discarded."""
    from billhook.inbox.erase import EraseResult, erase

    result = EraseResult()
    unfinished: list[int] = []
    now = datetime.now(UTC)
    for batch in in_batches(ids, _BATCH):
        counted = erase(inbox, batch, now, discard_unfinished=discard, dry_run=True)
        result += counted
        if counted.unfinished and len(unfinished) < _MOST_NAMED:
            unfinished += [one for one in batch if erase(inbox, [one], now, dry_run=True).unfinished]
    if unfinished and not dry_run:
        raise CliError(
            f"{delivery_count(result.unfinished)} of {len(ids)} not finished ({_named(unfinished)}): nothing "
            "was erased; wait for the handlers, or give them up with --discard"
        )
    return result


def _erase(inbox: Inbox, chosen: Selected, *, discard: bool) -> tuple[EraseResult, bool]:
    """Erase them; return the counts, and whether the database's log holds nothing of them any more."""
    from billhook.inbox.erase import EraseResult, empty_log, erase

    result = EraseResult()
    now = datetime.now(UTC)

    def change(batch: list[int]) -> int:
        nonlocal result
        changed = erase(inbox, batch, now, discard_unfinished=discard)
        result += changed
        return changed.erased

    work_in_batches(inbox, "erase", chosen, change, dry_run=False)
    return result, empty_log(inbox)


def _question(planned: EraseResult) -> str:
    text = f"Erase {delivery_count(planned.erased)} for good"
    if planned.discarded:
        text += f", and give up {planned.discarded} of them that are not finished"
    return f"{text}?"


def _named(ids: list[int]) -> str:
    return ", ".join([*map(str, ids[:_MOST_NAMED]), *(["…"] if len(ids) > _MOST_NAMED else [])])


def _report(total: int, done: EraseResult, unsure: list[int], *, clean: bool, flags: Flags) -> None:
    if flags.as_json:
        counts = {"selected": total, "erased": done.erased, "discarded": done.discarded}
        counts |= {"unfinished": done.unfinished}
        print_json({**counts, "unreadable": unsure, "log_emptied": clean, "dry_run": flags.dry_run})
        return
    would = "would be " if flags.dry_run else ""
    discarded = f", {done.discarded} of them {would}discarded first" if done.discarded else ""
    click.echo(f"{done.erased} of {delivery_count(total)} {would}erased{discarded}")
    if done.unfinished:
        click.echo(f"{done.unfinished} not erased: not finished; --discard gives their handlers up")
    if unsure:
        click.echo(
            f"{delivery_count(len(unsure))} not erased: not readable, but with the id somewhere "
            f"({_named(unsure)}): look with `billhook deliveries show ID`, and erase by id",
            err=True,
        )
    if not clean:
        click.echo(
            "The inbox is being read all the time, so its log still has what was erased: run the command "
            "`billhook deliveries erase` again, or restart the processes that use the inbox",
            err=True,
        )
