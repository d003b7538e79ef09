"""`billhook handlers`: the handlers, the event types of each, and which are paused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict

import click

from billhook.cli.context import handlers_argument, load_subscribers, open_inbox, user_app
from billhook.cli.events import suggest
from billhook.cli.output import CliError, print_json, print_table, printable, say, say_paused
from billhook.cli.params import TEXT, DefaultGroup, as_json, flag, option, require_all
from billhook.cli.selection import recording
from billhook.clock import format_time
from billhook.doctor.deliveries import missing_handler
from billhook.doctor.status_texts import backlog_text
from billhook.engines.dispatcher import handler_limits
from billhook.errors import BillhookError
from billhook.events import EVENT_TYPES
from billhook.handlers import ConnectedHandlers, Handler, RetrySchedule
from billhook.handlers.options import HEADINGS, OPTIONS, Rate, function_or_field, in_words, values_of
from billhook.handlers.registered import missing_names, types_by_handler
from billhook.inbox import Inbox, PausedHandler
from billhook.inbox.reading.deliveries import handler_names
from billhook.inbox.running.limits import find_paused
from billhook.inbox.watching.disagreements import LeftOut, read_not_called
from billhook.inbox.watching.handler_backlogs import HandlerBacklog, read_handler_backlogs
from billhook.inbox.watching.success import SuccessOverTime, read_success

UNKNOWN = "(unknown types)"


@click.group(cls=DefaultGroup, default="list", subcommand_metavar="[HANDLERS]... | COMMAND [ARGS]...")
def handlers() -> None:
    """List the handlers (the default), pause one, or resume it.

    \b
    Examples:
      billhook handlers myshop/billing.py
      billhook handlers pause myshop.billing.book --reason "the ledger is closed"
      billhook handlers resume myshop.billing.book
    """


@handlers.command("list", short_help="List the handlers and their event types.")
@handlers_argument
@require_all
@as_json
def list_(handlers: Sequence[str], require_all: bool, as_json: bool) -> None:
    """List the handlers, the event types of each, and the event types without a handler.

    HANDLERS are modules or .py files; the default is BILLHOOK_HANDLERS. Standalone it needs no secrets; under
    `flask --app` it builds the app, which may need them. Which handlers are paused, what waits for each, and
    how large a part succeeded, is read from the inbox, if there is one.

    \b
    Examples:
      billhook handlers myshop/billing.py
      billhook handlers myshop/billing.py --require-all
      flask --app myshop billhook handlers --json
    """
    connected = load_subscribers(handlers)
    connected.check_names()
    paused: dict[str, PausedHandler] = {}
    backlogs: dict[str, HandlerBacklog] = {}
    waiting: dict[str, str] = {}
    success: dict[str, SuccessOverTime] = {}
    not_called: Sequence[LeftOut] = ()
    with suppress(BillhookError), open_inbox() as inbox, inbox.database.read() as connection:
        now = inbox.now()
        found = read_handler_backlogs(connection, now, handler_limits(connected))
        paused = {handler.name: handler for handler in find_paused(connection)}
        backlogs = {one.name: one for one in found}
        waiting = {one.name: backlog_text(one, now) for one in found}
        success = read_success(inbox, now)
        not_called = read_not_called(connection, now)
    by_name, unhandled = types_by_handler(connected, UNKNOWN)
    concerned = [name for name, one in backlogs.items() if one.unfinished or one.dead]
    missing = missing_names(connected, concerned) if by_name else []
    if as_json:
        described = [
            _to_json(handler, types, paused.get(name), backlogs.get(name), success.get(name))
            for name, (handler, types) in by_name.items()
        ]
        print_json({"handlers": described, "unhandled": unhandled, "missing": missing})
    elif by_name:
        _print_table(by_name, paused, waiting, success)
        if unhandled:
            click.echo(f"Stored, but without a handler: {', '.join(unhandled)}")
    else:
        say(
            "No handler is registered: name your modules or files as arguments or in BILLHOOK_HANDLERS"
            if user_app() is None
            else "No handler is registered: pass them to the app's extension, Billhook(handlers=[…])"
        )
    if not as_json:
        say_paused(paused.values())
        for one in not_called:
            say(printable(one.text))
        for name in missing:
            say(printable(missing_handler(backlogs[name]).line))
    if require_all:
        require_all_handled(connected)


@handlers.command(short_help="Have the deliveries of a handler wait.")
@click.argument("name", type=TEXT, metavar="NAME")
@option("--reason TEXT", "The reason, shown wherever the handler is.")
def pause(name: str, reason: str | None) -> None:
    """Pause the handler NAME in all workers: its deliveries wait, and lose no attempt.

    Attempts under way finish. Deliveries are received, and other handlers are called, as before.

    \b
    Example:
      billhook handlers pause myshop.billing.book --reason "the ledger is closed until Monday"
    """
    with open_inbox() as inbox:
        _require_known(name, inbox)
        before = next(iter(inbox.paused_handlers(name)), None)
        with recording(inbox, "pause", name):
            inbox.pause_handler(name, reason, inbox.now())
    if before is None:
        click.echo(f"{printable(name)} is PAUSED: its deliveries wait until you resume it")
        return
    former = f"for: {printable(before.why)}" if before.why else "without a reason"
    click.echo(
        f"{printable(name)} was paused already, since {format_time(before.since)} UTC, {former}\n"
        + (f"the reason is now: {printable(reason)}" if reason else "nothing has changed")
    )


@handlers.command(short_help="Have paused handlers go on.")
@click.argument("names", type=TEXT, nargs=-1, metavar="[NAME]...")
@flag("--all every", "Every handler that is paused.")
def resume(names: tuple[str, ...], every: bool) -> None:
    """Have paused handlers go on with the deliveries that waited, the oldest first.

    \b
    Examples:
      billhook handlers resume myshop.billing.book
      billhook handlers resume --all
    """
    if bool(names) == every:
        raise click.UsageError("give the names of paused handlers, or --all")
    with open_inbox() as inbox:
        paused = [handler.name for handler in inbox.paused_handlers()]
        # All names are checked before the first is resumed.
        for name in names:
            if not inbox.paused_handlers(name):
                hint = suggest(name, paused, most=1) or f"paused handlers: {', '.join(paused) or 'none'}"
                raise CliError(f"{printable(name)} is not paused; {printable(hint)}")
        for name in dict.fromkeys(names) if names else paused:
            with recording(inbox, "resume", name):
                inbox.resume_handler(name)
            click.echo(f"{printable(name)} is resumed")
    if not (names or paused):
        click.echo("no handler is paused")


def _require_known(name: str, inbox: Inbox) -> None:
    """Raise CliError for a name that no handler has: pausing it would do nothing."""
    loaded = {handler.name for handler in load_subscribers().every()}
    known = loaded or set(handler_names(inbox))
    hint = printable(suggest(name, known, most=1) or f"there are {', '.join(sorted(known)) or 'none'}")
    if loaded and name not in known:
        raise CliError(f"no handler is named {printable(name)}: {hint}")
    if name not in known:  # without the code a handler is known by its runs only
        raise CliError(
            f"no delivery has had a run of {printable(name)} yet: {hint}; name the modules of your "
            "handlers in BILLHOOK_HANDLERS, or use `flask --app …`, for one that is new"
        )


def require_all_handled(connected: ConnectedHandlers) -> None:
    """Raise CliError if an event type has no handler. Unknown types need none."""
    unhandled = [event_type for event_type in EVENT_TYPES if not connected.names(event_type)]
    if unhandled:
        raise CliError(
            f"no handler for {', '.join(unhandled)}: register one for each (on_any() handles every type), or "
            "leave out --require-all"
        )


def _print_table(
    by_name: Mapping[str, tuple[Handler, list[str]]],
    paused: Mapping[str, PausedHandler],
    waiting: Mapping[str, str],
    success: Mapping[str, SuccessOverTime],
) -> None:
    every = len(EVENT_TYPES) + 1
    told = {name: in_words(handler) for name, (handler, _) in by_name.items()}
    # Most apps use few options: the column of one appears with the first handler that sets it.
    used = [heading for heading in HEADINGS if any(each[heading] for each in told.values())]
    rows = [
        (
            name,
            "all" if len(types) == every else "\n".join(types),
            "PAUSED" if name in paused else None,
            waiting.get(name),
            success[name].text.replace(", ", "\n") if name in success else None,
            *(told[name][heading] or HEADINGS[heading] for heading in used),
        )
        for name, (_, types) in by_name.items()
    ]
    columns = ("handler", "event types", "state", "runs", "success", *used)
    print_table(columns, rows, whole=["event types"], keep="\n", optional=("state", "runs", "success"))


def _to_json(
    handler: Handler,
    types: list[str],
    paused: PausedHandler | None,
    backlog: HandlerBacklog | None,
    success: SuccessOverTime | None,
) -> dict[str, object]:
    options = {OPTIONS[name].key or name: _plain(value) for name, value in values_of(handler).items()}
    return options | {
        "event_types": types,
        "paused": paused and {"since": paused.since, "why": paused.why},
        "runs": backlog and asdict(backlog),
        "success": success
        and {name: {**one._asdict(), "rate": one.rate} for name, one in success._asdict().items()},
    }


def _plain(value: object) -> object:
    if isinstance(value, RetrySchedule):
        return value.delays_seconds
    if callable(value):
        return function_or_field(value)
    return value._asdict() if isinstance(value, Rate) else value
