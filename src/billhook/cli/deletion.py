"""`billhook deliveries discard`, `prune`, `erase`: end deliveries, delete them, or only their content."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from shlex import quote

import click

from billhook.basics.printable import counted
from billhook.cli.context import load_settings, open_inbox
from billhook.cli.output import CliError, UsageConfigError, print_json, print_table, printable, progress, say
from billhook.cli.params import FiniteNumber, flag, option
from billhook.cli.selection import Found, Selection, confirm, confirming, recording, selecting
from billhook.errors.program import in_program
from billhook.events.inspection import names_customer, search_parts
from billhook.inbox import DeliveryFilter, DeliveryState, Inbox
from billhook.inbox.counting.retention import PRUNABLE, Cutoffs, PruneResult
from billhook.inbox.operating.operations import DiscardResult, EraseResult, empty_log
from billhook.inbox.operating.operations import discard as discard_these
from billhook.inbox.operating.operations import erase as erase_these
from billhook.inbox.reading.deliveries import count, in_batches, page
from billhook.inbox.reading.searches import search_bodies

_STATES = ("done", "dead", "quarantined")
_ALL_STATES = (*_STATES, "pruned", "erased")
_LONGEST_PAUSE_SECONDS = 0.2
_MOST_NAMED = 20
_LONGEST_REASON = 500


@click.command(short_help="Discard deliveries that can never succeed.")
@selecting(ids=True)
@option("--reason TEXT", "The reason; it is stored as the last error.", required=True)
@confirming
def discard(selection: Selection, reason: str) -> None:
    """Discard deliveries: those given by ID, or those that the options select.

    Handlers that have not succeeded are not called again, and the deliveries are done, with the reason as
    their last error: all handlers of a delivery, also if --handler selected it by one. Quarantined deliveries
    and those not yet parsed can be discarded, too. A handler that is running continues, but its result is
    ignored. `replay` undoes a discard.

    \b
    Examples:
      billhook deliveries discard 42 --reason 'the customer is gone'
      billhook deliveries discard --state dead --handler shop.chase --reason 'done by hand' --dry-run
    """
    reason = " ".join(reason.split())[:_LONGEST_REASON]  # one line: it is a cell of the table of deliveries
    if not reason:
        raise UsageConfigError("--reason is empty: give a reason, which is stored with the delivery")
    with open_inbox() as inbox:
        now = inbox.now()
        found = selection.find(inbox, "Discard {}?")
        change = partial(discard_these, inbox, reason=reason, now=now)
        done = selection.apply(inbox, found, change, DiscardResult())
    selection.report(
        {"selected": found.total, "discarded": done.deliveries, "runs": done.runs, "reason": reason},
        f"{done.deliveries} of {counted(found.total, 'delivery')} {selection.would}discarded, "
        f"with {counted(done.runs, 'run')}",
        "" if done.deliveries else "Nothing to do: they are already done, or past their retention.",
    )


@click.command(short_help="Delete old finished deliveries.")
@option(
    "--older-than DAYS days",
    "Received more than DAYS ago. Default: BILLHOOK_RETENTION_DAYS.",
    FiniteNumber(0, 36_500),
)
@option(
    "--state states",
    "Only deliveries in this state. May be repeated. Default: all three, and kept keys.",
    click.Choice(_STATES),
    multiple=True,
)
@confirming
def prune(days: float | None, states: Sequence[str], dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete old finished deliveries: their bodies, headers, runs and errors.

    A delivery younger than 7 days keeps its key (state pruned), so that a duplicate is still detected; an
    older one is deleted completely. A delivery whose scheme signs no time (body-hmac) could be sent again at
    any time: its key is kept for ever, or for BILLHOOK_KEY_DAYS. Unfinished deliveries are never deleted. The
    engines do the same once an hour with BILLHOOK_RETENTION_DAYS.

    \b
    Examples:
      billhook deliveries prune --dry-run
      billhook deliveries prune --older-than 1 --state done --yes
    """
    settings = load_settings()
    days = settings.retention_days if days is None else days
    which = " ".join([f"--older-than {days:g}", *(f"--state {state}" for state in states)])
    with open_inbox() as inbox:
        limits = Cutoffs.of(inbox.now(), days, settings.key_days)
        # Counted first, so that the question says what an answer of yes deletes.
        asks = not (yes or dry_run or as_json)
        done = _pass(inbox, limits, states, which, dry_run=dry_run or asks)
        if asks and done.total:
            what = f"{done.deleted.total()} completely, {done.emptied.total()} except for their keys"
            confirm(f"Prune deliveries older than {_in_days(days)}: {what}?")
            done = _pass(inbox, limits, states, which, dry_run=False)
    emptied, deleted, both = done.emptied, done.deleted, done.emptied + done.deleted
    if as_json:
        by_state = {state: {"keys_kept": emptied[state], "deleted": deleted[state]} for state in _ALL_STATES}
        totals = {"pruned": both.total(), "keys_kept": emptied.total(), "deleted": deleted.total()}
        print_json({"older_than_days": days, "dry_run": dry_run, **totals, "by_state": by_state})
    elif not both:
        click.echo(f"no finished delivery is older than {_in_days(days)}")
    else:
        rows = [(state, both[state], emptied[state], deleted[state]) for state in _ALL_STATES if both[state]]
        rows.append(("all", both.total(), emptied.total(), deleted.total()))
        title = f"{'to be pruned' if dry_run else 'pruned'}, older than {_in_days(days)}"
        print_table(("state", "deliveries", "key kept", "deleted"), rows, title=title)


def _pass(inbox: Inbox, limits: Cutoffs, states: Sequence[str], which: str, *, dry_run: bool) -> PruneResult:
    """Prune from the oldest to the first that is too young, and record it."""
    chosen = [DeliveryState(state) for state in states] or PRUNABLE
    # Ids rise with time, so the newest one is the length of the way: the progress is in ids, not deliveries.
    newest = page(inbox, DeliveryFilter(), 1)
    done = PruneResult(after=0, over=False)
    label = "counting" if dry_run else "pruning"
    with (
        recording(inbox, "prune", which, dry_run=dry_run) as add,
        progress(label, newest[0].id if newest else 0) as steps,
    ):
        while not done.over:
            started = time.monotonic()
            batch = inbox.prune(limits, done.after, states=chosen, dry_run=dry_run)
            add(batch.total, ())
            steps(batch.after - done.after)
            done = replace(batch, emptied=done.emptied + batch.emptied, deleted=done.deleted + batch.deleted)
            # A pause as long as the batch took: SQLite has one writer at a time, and receivers must get half.
            if not (dry_run or done.over):
                time.sleep(min(time.monotonic() - started, _LONGEST_PAUSE_SECONDS))
    return done


def _in_days(days: float) -> str:
    return "1 day" if days == 1 else f"{days:g} days"


@click.command(
    short_help="Remove the content of deliveries for good.",
    epilog="Copies elsewhere are not erased: backups, exports, logs, your own database; nor, until VACUUM, "
    "dead rows on PostgreSQL and traces of rows that moved on SQLite. The page of the inbox says more.",
)
@selecting(ids=True, other="customer")
@option(
    "--customer ID", "Whose body names this customer: exactly this id, in a field that identifies a customer."
)
@flag("--discard", "Discard those that are not finished: their handlers are not called again.")
@confirming
def erase(selection: Selection, customer: str | None, discard: bool) -> None:
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
    if customer is not None and not customer.strip():
        raise UsageConfigError("--customer is empty: give the customer's id, as deliveries have it")
    if customer and selection.ids:
        raise click.UsageError("give ids or --customer, not both")
    with open_inbox() as inbox:
        now = inbox.now()
        # Not asked here: the question says what an answer of yes does, which is counted first.
        found, unsure = (
            (selection.find(inbox), []) if customer is None else _of_customer(inbox, customer, selection)
        )
        ids = [one for batch in found.batches for one in batch]
        found = found._replace(batches=[*in_batches(ids)])
        change = partial(erase_these, inbox, now=now, discard_unfinished=discard)
        count = partial(change, dry_run=True)
        done, clean = replace(selection, dry_run=True).apply(inbox, found, change, EraseResult()), True
        if done.unfinished and not selection.dry_run:
            each = (one for batch in found.batches if count(batch).unfinished for one in batch)
            unfinished = islice((one for one in each if count([one]).unfinished), _MOST_NAMED + 1)
            raise CliError(
                f"{counted(done.unfinished, 'delivery')} of {len(ids)} not finished "
                f"({_named([*unfinished])}): "
                "nothing was erased; wait for the handlers, or give them up with --discard"
            )
        if done.deliveries and not selection.dry_run:
            if selection.asks:
                more = f", and give up {done.discarded} of them that are not finished"
                question = f"Erase {counted(done.deliveries, 'delivery')} for good"
                confirm(f"{question}{more if done.discarded else ''}?")
            done = selection.apply(inbox, found, change, EraseResult())
            clean = empty_log(inbox)
    _report_erased(len(ids), done, unsure, selection, clean=clean)
    if customer is not None and not (ids or unsure):
        contains = in_program(f"`billhook deliveries list --contains {quote(printable(customer))}`")
        click.echo(
            "no stored delivery names this customer: compare the id with one of the customer's deliveries, "
            f"for it must be the same to the letter. {contains} finds it in any field of a body",
            err=True,
        )
    if unsure or (done.unfinished and not selection.dry_run):
        sys.exit(1)


def _of_customer(inbox: Inbox, customer: str, selection: Selection) -> tuple[Found, list[int]]:
    """Return the deliveries that name the customer, and those that cannot be read and have the id in them."""

    def examine(event_type: str, body: bytes) -> bool | None:
        return names_customer(event_type, body, customer)

    bounded = selection.bounded(inbox)
    if bounded.search is None:
        indexed = count(inbox, replace(bounded, search=customer))
        say(f"the index finds {counted(indexed, 'delivery')} with this id; reading all bodies")
    # All, even of types whose customer the index has: any body may name another in a field that its type does
    # not list, and the value in the index may be the id of something else.
    with progress("searching", count(inbox, bounded)) as steps:
        search = search_bodies(inbox, bounded, search_parts(customer), examine, steps)
    say(f"searched {counted(search.searched, 'delivery')}: {len(search.found)} of this customer")
    which = " ".join(filter(None, ["--customer …", selection.filter.as_options]))
    return Found([search.found], len(search.found), which), search.unsure


def _named(ids: list[int]) -> str:
    return ", ".join([*map(str, ids[:_MOST_NAMED]), *(["…"] if len(ids) > _MOST_NAMED else [])])


def _report_erased(
    total: int, done: EraseResult, unsure: list[int], selection: Selection, *, clean: bool
) -> None:
    would, left = selection.would, done.unfinished
    discarded = f", {done.discarded} of them {would}discarded first" if done.discarded else ""
    figures = {"selected": total, "erased": done.deliveries, "discarded": done.discarded, "unfinished": left}
    selection.report(
        {**figures, "unreadable": unsure, "log_emptied": clean},
        f"{done.deliveries} of {counted(total, 'delivery')} {would}erased{discarded}",
        f"{left} not erased: not finished; --discard gives their handlers up" if left else "",
    )
    if selection.as_json:
        return
    if unsure:
        say(
            f"{counted(len(unsure), 'delivery')} not erased: not readable or without a type, but with the id "
            f"({_named(unsure)}): look with {in_program('`billhook deliveries show ID`')}, and erase by id"
        )
    if not clean:
        say(
            "The inbox is being read all the time, so its log still has what was erased: run the command "
            f"{in_program('`billhook deliveries erase`')} again, or restart the processes that use the inbox"
        )
