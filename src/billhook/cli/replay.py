"""`billhook deliveries replay`: handle deliveries again; `resend`: one handler, with an edited body."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from shlex import quote
from typing import BinaryIO

import click

from billhook.basics.printable import counted, first_line
from billhook.basics.type_names import is_path, is_reading
from billhook.cli.context import (
    handlers_argument,
    load_subscribers,
    open_inbox,
    say_missing_worker,
    user_app,
)
from billhook.cli.events import event_class
from billhook.cli.output import CliError, print_json, printable, say, say_paused
from billhook.cli.params import DELIVERY_ID, TIME, as_json, flag, option
from billhook.cli.postpone import check_far
from billhook.cli.selection import (
    MOST_FILTERS,
    RATE,
    Selection,
    confirming,
    no_match,
    not_loaded,
    recording,
    selecting,
)
from billhook.clock import format_time
from billhook.engines.first_runs import FirstRuns, backfill
from billhook.engines.resend import find_handler
from billhook.engines.resend import resend as resend_this
from billhook.errors import BillhookError, PayloadError
from billhook.errors.program import in_program
from billhook.fields.model import describe_details
from billhook.handlers import ConnectedHandlers
from billhook.handlers.registered import left_alone, missing_from, names_of, types_of
from billhook.inbox import DeliveryFilter, Inbox
from billhook.inbox.operating.operations import NO_RUN_YET, ReplayResult, later_option
from billhook.inbox.operating.operations import replay as replay_these
from billhook.inbox.operating.takeover import passed_over, take_over
from billhook.inbox.reading.deliveries import count, details
from billhook.inbox.watching.issues import RESOLVES_ITSELF, find_issue

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
@option("--to NEW", "With --handler: have this handler take over those runs, as if it had had them first.")
@option("--as TYPE as_type", "Read the delivery as this type; only before any handler has run.")
@option(
    "--type-field FIELD",
    "Read the type of deliveries without one in this field of their bodies, as type or event.type.",
)
@flag("--all-handlers", "Every handler, including those that succeeded.")
@option("--not-before TIME", "Have no run called before a time, in ISO 8601: 2026-01-31T18:45.", TIME)
@RATE
@confirming
def replay(
    selection: Selection, handler: str | None, to: str | None, as_type: str | None, type_field: str | None,
    all_handlers: bool, not_before: datetime | None,
) -> None:  # fmt: skip
    """Handle deliveries again: those given by ID, or those that the options select.

    Handlers that failed or wait for a retry run again with all their attempts; one that succeeded runs again
    only with --handler or --all-handlers, and never with --failed-since. A quarantined delivery is parsed
    again, as is one without runs. A delivery in conflict is selected only by its id, --conflicts or --as; one
    without a type only by --as or --type-field, or if its type is in its body.

    Name the modules of your handlers in BILLHOOK_HANDLERS: then a run whose handler is not there is left as
    it is, and a handler that is newer than a delivery can be given it.

    \b
    Examples:
      billhook deliveries replay --state dead --since 1d --dry-run
      billhook deliveries replay --failed-since 2h --handler shop.chase --type PaymentFailed
      billhook deliveries replay --handler shop.chase --without-handler shop.chase --since 7d
      billhook deliveries replay --state dead --handler shop.dun --to shop.chase
      billhook deliveries replay --handler shop.chase --handled-since 3h --handled-until 1h
      billhook deliveries replay --source stripe --state quarantined --type-field type
      billhook deliveries replay 44 --as PaymentFailed
      billhook deliveries replay 44 --not-before 2026-01-31T18:45
    """
    connected, filters = load_subscribers(), selection.filter
    _check_options(handler, to, as_type, type_field, all_handlers=all_handlers)
    if filters.failed_since is not None and all_handlers:
        raise click.UsageError("--failed-since selects runs that failed: leave out --all-handlers")
    first_run = _first_run(connected, filters, handler, to)
    if first_run is not None and handler in (filters.without_handler or ()) and filters.event_type is None:
        # Only these can be given to it, and the bodies of all others need not be read.
        filters = replace(filters, event_type=types_of(connected, handler or ""))
    # With filters, a new handler is to get deliveries without a run of it: those must not be filtered out,
    # unless only what a handler did in some time is asked for.
    is_given = first_run is not None and to is None
    wanted = None if is_given and not (filters.is_everything or filters.is_of_attempts) else handler
    # Deliveries that await an operator's decision are selected only if asked for.
    decided = as_type is None and type_field is None and not filters.conflicts
    selection = replace(selection, filter=replace(filters, handler=wanted, decided=decided))
    with open_inbox() as inbox:
        now = inbox.now()
        if not_before is not None:
            _check_time(not_before, now, selection, as_type or type_field)
        if selection.ids and handler is not None and not is_given:
            of_handler = DeliveryFilter(handler=handler)
            if not count(inbox, of_handler):
                raise CliError(no_match(inbox, of_handler))
        _check_ids(inbox, selection.ids, as_type, type_field)
        found = selection.find(inbox, _question(inbox, selection, handler, to, all_handlers))
        found = found._replace(which=found.which + later_option(not_before))
        change: Callable[..., ReplayResult]
        if handler is not None and to is not None and first_run is not None:
            of = f" --handler {quote(handler)}" if selection.ids else ""  # else it is among the filters
            found = found._replace(which=printable(f"{found.which}{of} --to {quote(to)}"))
            change = partial(
                take_over, inbox, now=now, handler=handler, to=to, to_names=names_of(connected, to),
                options=first_run, only_failed=bool(filters.issue or filters.failed_since),
                not_before=not_before,
            )  # fmt: skip
        else:
            failed = None
            if filters.issue and not (handler or all_handlers):
                # Of an issue its own handler alone: others of its deliveries may wait for a retry on purpose.
                one = find_issue(inbox, filters.issue)
                failed = None if one is None else one.handler
            change = partial(
                replay_these, inbox, now=now, handler=handler or failed,
                only_failed=bool(failed or filters.failed_since), failed_since=filters.failed_since,
                backfill=first_run, all_handlers=all_handlers, as_type=as_type, type_field=type_field,
                is_missing=missing_from(connected), not_before=not_before,
            )  # fmt: skip
        done = selection.apply(inbox, found, change, ReplayResult())
        failed_alone = filters.failed_since is not None or (handler is None and not all_handlers)
        nothing = _NOTHING_FAILED if failed_alone else _NOTHING_FINISHED
        unread = Counter[str]() if first_run is None else first_run.passed_over
        _report(selection, found.total, done, to, unread, nothing, not_before)
        _say_what_follows(inbox, connected, selection, done)
    if done.missing and not done.deliveries:
        raise click.exceptions.Exit(1)


def _first_run(
    connected: ConnectedHandlers, filters: DeliveryFilter, handler: str | None, to: str | None
) -> FirstRuns | None:
    """Return what makes a first run of the handler that is to have one; None if it is not registered here.

    Raises CliError where it has to be.
    """
    if handler is None:
        return None
    name = to or handler
    first_run = backfill(connected, name)
    if first_run is None and (to is not None or name in (filters.without_handler or ())):
        raise CliError(f"{not_loaded(connected, name)}; {_how_to_load()}")
    return first_run


def _report(
    selection: Selection, total: int, done: ReplayResult, to: str | None, unread: Counter[str], nothing: str,
    not_before: datetime | None,
) -> None:  # fmt: skip
    """Print what was done, or would be."""
    would = selection.would
    figures = {"selected": total, "replayed": done.deliveries, "reread": done.requeued, "runs": done.runs}
    figures |= {"added": done.added, "without_runs": done.without_runs}
    when = "again" if not_before is None else f"again, not before {format_time(not_before)} UTC"
    if to is None:
        told = [
            f"{counted(done.runs, 'run')} {would}due {when}",
            f"{counted(done.requeued, 'delivery')} {would}parsed again",
        ]
        more: dict[str, object] = {"missing": dict(done.missing)}
    else:
        told = [f"{counted(done.runs, 'run')} {would}taken over by {printable(to)}"]
        more = {"had_already": done.had_already, "unfit": done.unfit}
    if done.added:
        told.append(f"{counted(done.added, 'delivery')} {would}handled for the first time")
    passed = [*passed_over(done, to or ""), *_unread(unread)]
    if done.without_runs:
        passed.append(f"{counted(done.without_runs, 'delivery')} passed over: {NO_RUN_YET}")
    selection.report(
        {**figures, **more, "unread": dict(unread), "not_before": not_before},
        f"{done.deliveries} of {counted(total, 'delivery')} {would}replayed: {', '.join(told)}",
        *map(printable, passed),
        "" if done.deliveries or done.missing or passed else nothing,
    )


def _say_what_follows(
    inbox: Inbox, connected: ConnectedHandlers, selection: Selection, done: ReplayResult
) -> None:
    for text in left_alone(connected, done.missing):
        say(printable(text))
    if done.runs and not connected.count():
        say(f"No handler is loaded, so it is not known whether those of these runs exist: {_how_to_load()}")
    issue_id = selection.filter.issue
    if not selection.as_json:
        say_paused(inbox.paused_handlers())
        if issue_id and done.deliveries and not selection.dry_run:
            say(in_program(f"{RESOLVES_ITSELF}; or at once: `billhook failures resolve {issue_id}`"))
    if done.deliveries and not selection.dry_run:
        say_missing_worker(inbox)


def _how_to_load() -> str:
    if user_app() is not None:
        return "pass it to the app's extension, Billhook(handlers=[…])"
    return "name the modules or files of your handlers in BILLHOOK_HANDLERS"


def _unread(reasons: Counter[str]) -> Iterator[str]:
    """Yield how many deliveries cannot be read, and the reasons, the most frequent first."""
    if not reasons:
        return
    yield f"{counted(reasons.total(), 'delivery')} passed over, which cannot be read:"
    for reason, number in reasons.most_common(_MOST_TOLD):
        yield f"  {number:,}: {first_line(reason)}"
    if len(reasons) > _MOST_TOLD:
        yield f"  … for {counted(len(reasons) - _MOST_TOLD, 'more reason')}"


def _check_options(
    handler: str | None, to: str | None, as_type: str | None, type_field: str | None, *, all_handlers: bool
) -> None:
    """Raise UsageError for options that do not go together, ConfigError for an unknown type."""
    if to is not None and handler is None:
        raise click.UsageError("--to NEW is for the runs of one handler: add --handler OLD")
    if handler is not None and to is not None and is_reading(handler):
        raise click.UsageError(f"{handler} calls no handler, so no other can take its runs over")
    if to is not None and to == handler:
        raise click.UsageError("--handler and --to name the same handler: leave out --to")
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


def _check_time(not_before: datetime, now: datetime, selection: Selection, reading: str | None) -> None:
    """Raise UsageError for a time that cannot be kept, or with options that it does not go with."""
    if not_before <= now:
        raise click.UsageError("that time has passed: without --not-before they are due at once")
    check_far(not_before, now)
    if selection.rate is not None:
        raise click.UsageError("--rate is for runs that are due at once: leave out --not-before")
    if reading is not None:
        raise click.UsageError("a delivery that is read again has no run to put off: leave out --not-before")


def _question(
    inbox: Inbox, selection: Selection, handler: str | None, to: str | None, all_handlers: bool
) -> str:
    """Return the question before a replay, which names the handlers that succeeded and run again."""
    delivery_ids = selection.ids
    if (handler is None and not all_handlers) or (to is None and selection.filter.failed_since is not None):
        return "Replay {}?"
    if to is not None:
        lost = "delivery.once() knows nothing of what it did: its effects are made again"
        return (
            _literal(f"{to} takes over the runs of {handler}, those that succeeded too. {lost}. ")
            + "Replay {}?"
        )
    if handler in (selection.filter.without_handler or ()):
        return _literal(f"{handler} has not had these. ") + "Replay {}?"
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
        "".join(map(_literal, told[:_MOST_TOLD]))
        + left_out
        + "Effects of handlers that succeeded are made again, also with delivery.once(). Replay {}?"
    )


def _literal(text: str) -> str:
    """Escape a text within the question, which is a format."""
    return printable(text, keep="\n").replace("{", "{{").replace("}", "}}")


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
      (umask 077; billhook deliveries show 42 --body > body.json)
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
