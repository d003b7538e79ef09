"""`billhook deliveries replay`: handle deliveries again; `resend`: one handler, with an edited body."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import BinaryIO

import click

from billhook.cli.context import handlers_argument, open_inbox, say_missing_worker
from billhook.cli.events import event_class
from billhook.cli.handlers import load_subscribers
from billhook.cli.output import CliError, print_json, printable, say, say_paused
from billhook.cli.params import DELIVERY_ID, as_json, flag, option
from billhook.cli.selection import MOST_FILTERS, RATE, Selection, confirming, no_match, recording, selecting
from billhook.engines.dispatcher import backfill
from billhook.engines.resend import find_handler
from billhook.engines.resend import resend as resend_this
from billhook.errors import BillhookError, PayloadError
from billhook.fields.model import describe_details
from billhook.inbox import DeliveryFilter, Inbox
from billhook.inbox.deliveries import count, details
from billhook.inbox.issues import RESOLVES_ITSELF, find_issue
from billhook.inbox.operations import ReplayResult
from billhook.inbox.operations import replay as replay_these
from billhook.printable import counted
from billhook.program import in_program
from billhook.type_names import is_path

_MOST_TOLD = 20
"""Runs that succeeded which the question names."""
_NOTHING_FINISHED = "Nothing to do: no such run is finished or waits for a retry."
_NOTHING_FAILED = (
    "Nothing to do: no handler failed. Use --all-handlers to run the succeeded handlers again, or "
    "--handler NAME for one of them."
)


@click.command(
    short_help="Handle deliveries again.",
    epilog="For delivery.once() a replayed run counts as a new occurrence, so its effect is made again; a "
    "run that only waited for a retry does not.",
)
@selecting(*(name for name in MOST_FILTERS if name != "handler"), ids=True, other="handler")
@option(
    "--handler NAME",
    "Only this handler's runs, with any result; with ids or filters also its first run for "
    "deliveries received before the handler existed.",
)
@option("--as TYPE as_type", "Read the delivery as this type; only before any handler has run.")
@option(
    "--type-field FIELD",
    "Read the type of deliveries without one in this field of their bodies, as type or event.type.",
)
@flag("--all-handlers", "Every handler, including those that succeeded.")
@RATE
@confirming
def replay(
    selection: Selection, handler: str | None, as_type: str | None, type_field: str | None, all_handlers: bool
) -> None:
    """Handle deliveries again: those given by ID, or those that the options select.

    Handlers that failed or wait for a retry run again with all their attempts; one that succeeded runs again
    only with --handler or --all-handlers. A quarantined delivery is parsed again, as is one without runs. To
    give deliveries to a handler that is newer than they are, name its module too (BILLHOOK_HANDLERS). A
    delivery in conflict is selected only by its id, --conflicts or --as; one without a type only by --as or
    --type-field, or if its type is in its body.

    \b
    Examples:
      billhook deliveries replay --state dead --since 1d --dry-run
      billhook deliveries replay --handler shop.chase --handled-since 3h --handled-until 1h
      billhook deliveries replay --source stripe --state quarantined --type-field type
      billhook deliveries replay 44 --as PaymentFailed
    """
    _check_options(handler, as_type, type_field, all_handlers=all_handlers)
    # What adds a run of the handler to deliveries without one; None if it is not registered here.
    added = None if handler is None else backfill(load_subscribers(), handler)
    filters = selection.filter
    # With filters, a new handler is to get deliveries without a run of it: those must not be filtered out,
    # unless only what a handler did in some time is asked for.
    wanted = None if added and not (filters.is_everything or filters.is_of_attempts) else handler
    # Deliveries that await an operator's decision are selected only if asked for.
    decided = as_type is None and type_field is None and not filters.conflicts
    selection = replace(selection, filter=replace(filters, handler=wanted, decided=decided))
    with open_inbox() as inbox:
        now = inbox.now()
        if selection.ids and handler is not None and added is None:
            of_handler = DeliveryFilter(handler=handler)
            if not count(inbox, of_handler):
                raise CliError(no_match(inbox, of_handler))
        _check_ids(inbox, selection.ids, as_type, type_field)
        found = selection.find(inbox, _question(inbox, selection.ids, handler, all_handlers))
        # Of an issue its own handler alone: others of the same deliveries may wait for a retry on purpose.
        one = find_issue(inbox, filters.issue) if filters.issue and not (handler or all_handlers) else None
        failed = None if one is None else one.handler
        change = partial(
            replay_these, inbox, now=now, handler=handler or failed, only_failed=failed is not None,
            backfill=added, all_handlers=all_handlers, as_type=as_type,
            type_field=type_field,
        )  # fmt: skip
        done, would = selection.apply(inbox, found, change, ReplayResult()), selection.would
        figures = {"selected": found.total, "replayed": done.deliveries, "reread": done.requeued}
        nothing = _NOTHING_FAILED if handler is None and not all_handlers else _NOTHING_FINISHED
        told = [
            f"{counted(done.runs, 'run')} {would}due again",
            f"{counted(done.requeued, 'delivery')} {would}parsed again",
        ]
        if done.added:
            told.append(f"{counted(done.added, 'delivery')} {would}handled for the first time")
        selection.report(
            {**figures, "runs": done.runs, "added": done.added},
            f"{done.deliveries} of {counted(found.total, 'delivery')} {would}replayed: {', '.join(told)}",
            "" if done.deliveries else nothing,
        )
        if not selection.as_json:
            say_paused(inbox.paused_handlers())
            if filters.issue and done.deliveries and not selection.dry_run:
                say(in_program(f"{RESOLVES_ITSELF}; or at once: `billhook failures resolve {filters.issue}`"))
        if done.deliveries and not selection.dry_run:
            say_missing_worker(inbox)


def _check_options(
    handler: str | None, as_type: str | None, type_field: str | None, *, all_handlers: bool
) -> None:
    """Raise UsageError for options that do not go together, ConfigError for an unknown type."""
    if handler is not None and all_handlers:
        raise click.UsageError("choose one of --handler and --all-handlers")
    if as_type is not None and type_field is not None:
        raise click.UsageError("choose one of --as and --type-field")
    for name, value in (("--as", as_type), ("--type-field", type_field)):
        if value is not None and (handler is not None or all_handlers):
            raise click.UsageError(
                f"{name} applies only before any handler has run: leave out --handler and --all-handlers"
            )
    if type_field is not None and not is_path(type_field):
        raise click.UsageError(
            f"--type-field is {type_field!r}: it must be the path of a field, as type or event.type"
        )
    if as_type is not None:
        event_class(as_type)  # refuses an unknown one


def _question(inbox: Inbox, delivery_ids: tuple[int, ...], handler: str | None, all_handlers: bool) -> str:
    """Return the question before a replay, which names the handlers that succeeded and run again."""
    if handler is None and not all_handlers:
        return "Replay {}?"
    told = [
        f"delivery {one.summary.id}: {printable(run.handler)} succeeded ({run.finished_at:%Y-%m-%d %H:%M})\n"
        for one in details(inbox, delivery_ids)
        for run in one.runs
        if run.state == "succeeded" and handler in (None, run.handler)
    ]
    if delivery_ids and not told:
        return "Replay {}?"
    left_out = f"… and {len(told) - _MOST_TOLD} more\n" if len(told) > _MOST_TOLD else ""
    return (
        "".join(told[:_MOST_TOLD]).replace("{", "{{").replace("}", "}}")
        + left_out
        + "Effects of handlers that succeeded are made again, also with delivery.once(). Replay {}?"
    )


def _check_ids(
    inbox: Inbox, delivery_ids: tuple[int, ...], as_type: str | None, type_field: str | None
) -> None:
    # All ids are checked before the first is replayed: the command does all of it, or nothing.
    for delivery in details(inbox, delivery_ids):
        has_type = delivery.summary.event_type or delivery.summary.type_field is not None
        if as_type is None and type_field is None and not has_type:
            raise CliError(
                f"delivery {delivery.summary.id} has no event type: give one with --as TYPE, or the field of "
                "its body that has it with --type-field FIELD"
            )
        if type_field is not None and delivery.summary.event_type:
            raise CliError(
                f"delivery {delivery.summary.id} is of the type {printable(delivery.summary.event_type)}: "
                "--type-field is for deliveries without a type; nothing was replayed"
            )
        if as_type is not None and delivery.runs:
            raise CliError(
                f"delivery {delivery.summary.id} was already handled as {delivery.summary.event_type}: --as "
                "applies only before any handler has run; nothing was replayed"
            )


@click.command()
@click.argument("delivery_id", type=DELIVERY_ID, metavar="ID")
@handlers_argument
@option("--handler NAME", "The handler that is called.", required=True)
@option("--file", "The edited body; - reads stdin. Default: your editor opens.", click.File("rb"))
@as_json
def resend(
    delivery_id: int, handlers: Sequence[str], handler: str, file: BinaryIO | None, as_json: bool
) -> None:
    """Edit the body of a delivery, and have one handler called with it.

    The edited delivery is a new one, marked as edited from this one: it has a key of its own, is a duplicate
    of nothing, and goes to this handler only. The effects that the handler had before are made again.
    HANDLERS are modules or .py files; the default is BILLHOOK_HANDLERS.

    \b
    Examples:
      billhook deliveries resend 42 shop.py --handler shop.chase
      billhook deliveries show 42 --body > body.json
      billhook deliveries resend 42 --handler shop.chase --file body.json
    """
    with open_inbox() as inbox:
        original = next(iter(details(inbox, [delivery_id])), None)
        if original is None or original.summary.state in ("pruned", "erased"):
            raise CliError(f"there is no delivery {delivery_id} with a body: see `billhook deliveries list`")
        connected = load_subscribers(handlers)
        find_handler(connected, original.summary, handler)  # before the editor: no edit is lost
        body = _edited(original.body) if file is None else file.read()
        try:
            with recording(inbox, "resend", f"{delivery_id} edited, handler {printable(handler)}") as add:
                try:
                    new_id = resend_this(inbox, connected, original, handler, body, inbox.now())
                except BillhookError:
                    add(0, ())  # refused, and nothing was stored
                    raise
                add(1, (new_id,))
        except PayloadError as error:
            wrong = f" ({describe_details(error.details)})" if error.details else ""
            raise CliError(f"{error}{wrong}; nothing was stored") from None
        inbox.waker.wake()
        if as_json:
            print_json({"id": new_id, "edited_from": delivery_id, "handler": handler})
            return
        told = f"delivery {new_id} is delivery {delivery_id} with the edited body, for {printable(handler)}"
        click.echo(told)
        say_missing_worker(inbox)


def _edited(body: bytes) -> bytes:
    try:
        text = click.edit(body.decode(), extension=".json")
    except UnicodeDecodeError:
        raise CliError("the body is not UTF-8: give the edited one with --file") from None
    if text is None:
        raise CliError("the body was not edited; nothing was stored")
    return text.encode()
