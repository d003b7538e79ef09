"""`billhook subscribe`: subscribe a URL to the event types that are handled; `subscriptions`: what it did.

The service lists no subscriptions: what billhook has subscribed is remembered in its inbox.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import asdict, dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import click

from billhook.cli.api_calls import as_usage_errors, open_client
from billhook.cli.context import handlers_argument, load_settings, load_subscribers, open_inbox, operator
from billhook.cli.events import event_class
from billhook.cli.output import CliError, print_json, print_table, printable, progress, say
from billhook.cli.params import DefaultGroup, Parsed, as_json, flag, option, parse_http_url
from billhook.cli.selection import recording
from billhook.clock import format_time
from billhook.errors import (
    ApiError,
    AuthenticationFailed,
    BillhookError,
    RateLimitExceeded,
    ServiceUnavailable,
    UnexpectedResponse,
)
from billhook.errors.program import in_program, no_variables
from billhook.events import EVENT_TYPES
from billhook.inbox import Inbox
from billhook.inbox.operating.subscriptions import (
    forget,
    list_subscriptions,
    remember,
    shown_url,
    terms_of,
)
from billhook.resources import WebhookSubscription

# Source: spec, "Webhooks": it has an operation to subscribe, and none to list or remove subscriptions.
_NO_LIST = "Note: the service's API can neither list nor remove subscriptions"
_NOT_REMEMBERED = (
    f"{_NO_LIST}, and its specification does not say what a second subscription of the same type and URL "
    "does. Check the service's dashboard before you run this again."
)
_ALREADY = "subscribed already"


def _parse_threshold(text: str) -> tuple[str, Decimal]:
    """Parse TYPE=NUMBER: an event type and its percentage."""
    event_type, _, number = text.partition("=")
    with suppress(InvalidOperation):
        if event_type and Decimal(number).is_finite():
            return event_type, Decimal(number)
    raise ValueError(f"{text!r} is not TYPE=NUMBER, such as CommitmentUsageCrossed=80")


_THRESHOLD = Parsed("threshold", _parse_threshold)
_FIELDS = ("event_type", "threshold", "recurring_threshold")


@click.command()
@handlers_argument
@option("--callback-url URL", "The URL that the service sends events to.", required=True)
@option(
    "--type TYPE event_types",
    "Subscribe to this type only, not to every handled one. May be repeated.",
    multiple=True,
)
@option(
    "--threshold TYPE=NUMBER thresholds",
    "Send events of TYPE from this percentage on, if it has a threshold. May be repeated.",
    _THRESHOLD,
    multiple=True,
)
@option(
    "--recurring-threshold TYPE=NUMBER recurring",
    "Send them again after every further NUMBER percent. May be repeated.",
    _THRESHOLD,
    multiple=True,
)
@flag("--again send_again", "Send also what billhook has subscribed already, with this URL and thresholds.")
@flag("--dry-run", "Show the subscriptions without sending anything.")
@as_json
def subscribe(
    handlers: Sequence[str],
    callback_url: str,
    event_types: tuple[str, ...],
    thresholds: tuple[tuple[str, Decimal], ...],
    recurring: tuple[tuple[str, Decimal], ...],
    send_again: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Subscribe a URL to every event type that has a handler. Exit code 1 unless all of them succeed.

    What it has subscribed is remembered in the inbox, where that can be opened, and is not sent again.

    HANDLERS are modules or .py files; the default is BILLHOOK_HANDLERS. The command needs the options
    BILLHOOK_API_URL, BILLHOOK_API_CLIENT_ID and BILLHOOK_API_REFRESH_TOKEN (or its _FILE), and the extra
    billhook[client]; --dry-run needs none of them.

    \b
    Examples:
      billhook subscribe myshop/billing.py --callback-url https://shop.example/webhooks/billing --dry-run
      billhook subscribe --type CommitmentUsageCrossed --threshold CommitmentUsageCrossed=80 --callback-url …
      flask --app myshop billhook subscribe --callback-url https://shop.example/webhooks/billing
    """
    parse_http_url("--callback-url", callback_url, "https://HOST/PATH")
    names = dict.fromkeys(event_class(name).type for name in event_types or _handled_types(handlers))
    first, again = (
        _by_type("--threshold", thresholds, names),
        _by_type("--recurring-threshold", recurring, names),
    )
    planned: list[dict[str, Any]] = [
        {"event_type": name, "threshold": first.get(name), "recurring_threshold": again.get(name),
         "result": "would be subscribed" if dry_run else "not tried", "error": None}
        for name in names
    ]  # fmt: skip
    # Null and absent may differ for the service: only given thresholds are sent.
    requests = [{name: each[name] for name in _FIELDS if each[name] is not None} for each in planned]
    with as_usage_errors():  # every request is validated before the first is sent
        for request in requests:
            WebhookSubscription(callback_url=callback_url, **request)
    with ExitStack() as stack:
        memory = _open_memory(stack, callback_url, quiet=dry_run)
        to_send = []
        for request, each in zip(requests, planned, strict=True):
            if memory is not None and not send_again and memory.has(request):
                each["result"] = _ALREADY
            else:
                to_send.append((request, each))
        if to_send and not dry_run:
            _subscribe_all(callback_url, to_send, memory)
    if as_json:
        print_json({"callback_url": callback_url, "dry_run": dry_run, "subscriptions": planned})
    else:
        rows = [[each[name] for name in (*_FIELDS, "result")] for each in planned]
        columns = ("event type", "threshold", "recurring", "result")
        print_table(columns, rows, whole=("event type", "result"))
        for each in planned:
            if each["error"] is not None:
                say(f"{each['event_type']}: {printable(each['error'])}")
    # Always, and on stderr: after a failure the reader is about to run the command again.
    own = in_program("`billhook subscriptions` lists what billhook itself has subscribed")
    say(_NOT_REMEMBERED if memory is None else f"{_NO_LIST}; {own}.")
    if len(to_send) < len(planned):
        say("What was subscribed already is not sent; if the service has lost it, add --again.")
    if not dry_run and any(each["result"] not in ("subscribed", _ALREADY) for each in planned):
        sys.exit(1)


@dataclass(frozen=True, slots=True)
class _Memory:
    """What billhook has subscribed, in the inbox; `service` is None where no option names the service."""

    inbox: Inbox
    service: str | None
    callback_url: str
    known: Sequence[Mapping[str, str]]

    def has(self, request: Mapping[str, Any]) -> bool:
        """Return whether the same was subscribed already, with the same service if that is known."""
        terms = terms_of(self.service or "", self.callback_url, request)
        if self.service is None:
            return any({**one, "service": ""} == terms for one in self.known)
        return terms in self.known

    def note(self, request: Mapping[str, Any]) -> None:
        """Remember it; if that fails, say so: it is subscribed all the same."""
        terms = terms_of(self.service or "", self.callback_url, request)
        try:
            remember(self.inbox, operator(), terms, self.inbox.now())
        except BillhookError as error:
            say(f"{request['event_type']}: subscribed, and not remembered: {error}")


def _open_memory(stack: ExitStack, callback_url: str, *, quiet: bool) -> _Memory | None:
    """Open the inbox for its memory of subscriptions; None where it cannot be, which is said."""
    try:
        inbox = stack.enter_context(open_inbox())
        known = [one.terms for one in list_subscriptions(inbox)]
    except BillhookError as error:
        if not quiet:
            say(f"Note: what is subscribed is not remembered, as the inbox cannot be opened: {error}")
        return None
    return _Memory(inbox, load_settings().api_url, callback_url, known)


def _handled_types(handlers: Sequence[str]) -> list[str]:
    connected = load_subscribers(handlers)
    handled = [event_type for event_type in EVENT_TYPES if connected.by_name(event_type)]
    if not handled:
        raise CliError(
            "no event type has a handler: name HANDLERS, set BILLHOOK_HANDLERS, or give --type TYPE"
            f"{no_variables()}"
        )
    return handled


def _by_type(option: str, given: Iterable[tuple[str, Decimal]], names: Container[str]) -> dict[str, Decimal]:
    """Return an option's thresholds. Raises UsageError for two of one type, and of a type not in `names`."""
    numbers: dict[str, Decimal] = {}
    for event_type, number in given:
        if numbers.setdefault(event_type, number) != number:
            raise click.UsageError(f"{option} names {event_type!r} twice, with different numbers: give one")
        if event_type not in names:  # it would be ignored, and nothing would show it later
            raise click.UsageError(
                f"{option} names {event_type!r}, which is not subscribed to here: add --type {event_type}"
            )
    return numbers


def _subscribe_all(
    callback_url: str,
    to_send: Sequence[tuple[Mapping[str, Any], dict[str, Any]]],
    memory: _Memory | None,
) -> None:
    """Send the requests, note in the dict beside each what became of it, and remember what is subscribed."""
    # Errors that the next request would meet too. Any other is of one type, and the others are tried.
    fatal = (AuthenticationFailed, RateLimitExceeded, ServiceUnavailable)
    which = f"{', '.join(request['event_type'] for request, _ in to_send)} for {shown_url(callback_url)}"
    with (
        nullcontext() if memory is None else recording(memory.inbox, "subscribe", which),
        open_client() as client,
        progress("subscribing", len(to_send)) as steps,
    ):
        for request, each in to_send:
            steps()
            try:
                client.webhooks.subscribe(callback_url, **request)
                each["result"] = "subscribed"
                if memory is not None:
                    memory.note(request)
            except KeyboardInterrupt:
                # Not raised: the results so far must be printed, because the service cannot be asked for them
                # later.
                each |= {"result": "unknown", "error": "interrupted"}
                break
            except ApiError as error:
                each |= {"result": "unknown" if _may_be_done(error) else "failed", "error": str(error)}
                if isinstance(error, fatal):
                    break


def _may_be_done(error: Exception) -> bool:
    """Return whether the service may have subscribed although the request failed.

    Without a readable answer only a 3xx or 4xx status is surely a refusal.
    """
    if isinstance(error, UnexpectedResponse):
        return not 300 <= error.status < 500
    return isinstance(error, ServiceUnavailable) and error.sent


@click.group(cls=DefaultGroup, default="list", subcommand_metavar="| COMMAND [ARGS]...")
def subscriptions() -> None:
    """List what billhook has subscribed (the default), or forget one.

    It is billhook's own memory: the service can neither list nor remove subscriptions.

    \b
    Examples:
      billhook subscriptions
      billhook subscriptions forget 3
    """


@subscriptions.command("list", short_help="List what billhook has subscribed, when and by whom.")
@as_json
def list_(as_json: bool) -> None:
    """List what billhook has subscribed: type, thresholds, URL, when and by whom.

    What was subscribed elsewhere is not listed, and what was removed in the service's dashboard still is.

    \b
    Examples:
      billhook subscriptions list --json | jq '.[].event_type'
    """
    with open_inbox() as inbox:
        found = list_subscriptions(inbox)
    if as_json:
        shown = [{name: value or None for name, value in asdict(one).items()} for one in found]
        print_json([{name: value for name, value in one.items() if name != "digest"} for one in shown])
        return
    if not found:
        click.echo("billhook has subscribed nothing from this inbox")
        return
    columns = ("id", "event type", "threshold", "recurring", "url", "service", "at (UTC)", "who")
    rows = [
        (one.id, one.event_type, one.threshold, one.recurring_threshold, one.url, one.service,
         format_time(one.at), one.who)
        for one in found
    ]  # fmt: skip
    print_table(columns, rows, whole=columns[:2], optional=columns[2:4])


@subscriptions.command("forget", short_help="Forget what was subscribed, here alone.")
@click.argument("ids", metavar="ID...", nargs=-1, required=True, type=click.IntRange(1, 2**63 - 1))
def forget_(ids: tuple[int, ...]) -> None:
    """Forget what was subscribed, such as what you removed in the service's dashboard.

    It changes billhook's memory alone: the service goes on sending what it was asked for.

    \b
    Examples:
      billhook subscriptions forget 3 4
    """
    with open_inbox() as inbox:
        found = {one.id: one for one in list_subscriptions(inbox)}
        for one in ids:
            if one not in found:
                raise CliError(f"there is no subscription {one} here: see `billhook subscriptions list`")
        which = ", ".join(f"{found[one].event_type} for {found[one].url}" for one in dict.fromkeys(ids))
        with recording(inbox, "forget", which):
            forget(inbox, set(ids))
    click.echo(f"forgotten here, and not removed at the service: {which}")
