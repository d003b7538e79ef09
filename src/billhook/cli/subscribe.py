"""`billhook subscribe`: subscribe a URL to the event types that the handlers handle."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from decimal import Decimal, InvalidOperation

import click

from billhook.cli.api_calls import as_usage_errors, open_client
from billhook.cli.events import event_class
from billhook.cli.handlers import load_subscribers
from billhook.cli.output import CliError, print_json, print_table, printable, progress
from billhook.cli.params import Parsed, as_json, flag, handlers_argument, parse_http_url, string, strings
from billhook.errors import (
    ApiError,
    AuthenticationFailed,
    RateLimitExceeded,
    ServiceUnavailable,
    UnexpectedResponse,
)
from billhook.events import EVENT_TYPES
from billhook.resources import WebhookSubscription

# Source: spec, "Webhooks": it has an operation to subscribe, and none to list or remove subscriptions.
_NO_LIST = (
    "Note: the service's API can neither list nor remove subscriptions, and its specification does not say "
    "what a second subscription of the same type and URL does. Check the service's dashboard before you run "
    "this again."
)


@dataclass(frozen=True, slots=True)
class _Subscription:
    """An event type to subscribe to, and the result of the request for it."""

    event_type: str
    threshold: Decimal | None
    recurring_threshold: Decimal | None = None
    result: str = "not tried"
    error: str | None = None

    @property
    def thresholds(self) -> dict[str, Decimal]:
        """The thresholds that are set, by the names of the request's fields."""
        both = {"threshold": self.threshold, "recurring_threshold": self.recurring_threshold}
        return {name: number for name, number in both.items() if number is not None}


def _parse_threshold(text: str) -> tuple[str, Decimal]:
    """Parse TYPE=NUMBER: an event type and its percentage."""
    event_type, _, number = text.partition("=")
    with suppress(InvalidOperation):
        if event_type and Decimal(number).is_finite():
            return event_type, Decimal(number)
    raise ValueError(f"{text!r} is not TYPE=NUMBER, such as CommitmentUsageCrossed=80")


_THRESHOLD = Parsed("threshold", _parse_threshold)


@click.command()
@handlers_argument
@string("--callback-url", "URL", "The URL that the service sends events to.", required=True)
@strings("--type", "event_types", "TYPE", "Subscribe to this type only, not to every handled one.")
@click.option(
    "--threshold", "thresholds", type=_THRESHOLD, multiple=True, metavar="TYPE=NUMBER",
    help="Send events of TYPE from this percentage on, if it has a threshold. May be repeated.",
)  # fmt: skip
@click.option(
    "--recurring-threshold", "recurring", type=_THRESHOLD, multiple=True, metavar="TYPE=NUMBER",
    help="Send them again after every further NUMBER percent. May be repeated.",
)  # fmt: skip
@flag("--dry-run", told="Show the subscriptions without sending anything.")
@as_json
def subscribe(
    handlers: Sequence[str],
    callback_url: str,
    event_types: tuple[str, ...],
    thresholds: tuple[tuple[str, Decimal], ...],
    recurring: tuple[tuple[str, Decimal], ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Subscribe a URL to every event type that has a handler. Exit code 1 unless all of them succeed.

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
    planned = _plan(event_types or _handled_types(handlers), thresholds, recurring)
    with as_usage_errors():  # every request is validated before the first is sent
        for each in planned:
            WebhookSubscription(callback_url=callback_url, event_type=each.event_type, **each.thresholds)
    done = planned if dry_run else _subscribe_all(callback_url, planned)
    _report(callback_url, done, dry_run, as_json)
    if not dry_run and any(each.result != "subscribed" for each in done):
        sys.exit(1)


def _handled_types(handlers: Sequence[str]) -> list[str]:
    connected = load_subscribers(handlers)
    handled = [event_type for event_type in EVENT_TYPES if connected.by_name(event_type)]
    if not handled:
        raise CliError(
            "no event type has a handler: name HANDLERS, set BILLHOOK_HANDLERS, or give --type TYPE"
        )
    return handled


def _plan(
    event_types: Iterable[str],
    thresholds: Iterable[tuple[str, Decimal]],
    recurring: Iterable[tuple[str, Decimal]],
) -> list[_Subscription]:
    """Raise UsageError for a threshold of a type that is not subscribed to, or for two of one type."""
    names = dict.fromkeys(event_class(event_type).type for event_type in event_types)
    chosen: dict[str, dict[str, Decimal]] = {"--threshold": {}, "--recurring-threshold": {}}
    for (option, numbers), given in zip(chosen.items(), (thresholds, recurring), strict=True):
        for event_type, number in given:
            if numbers.setdefault(event_type, number) != number:
                raise click.UsageError(
                    f"{option} names {event_type!r} twice, with different numbers: give one"
                )
            if event_type not in names:  # it would be ignored, and nothing would show it later
                raise click.UsageError(
                    f"{option} names {event_type!r}, which is not subscribed to here: add --type {event_type}"
                )
    first, again = chosen.values()
    return [_Subscription(name, first.get(name), again.get(name)) for name in names]


def _subscribe_all(callback_url: str, planned: Sequence[_Subscription]) -> list[_Subscription]:
    # Errors that the next request would meet too. Any other is of one type, and the others are tried.
    fatal = (AuthenticationFailed, RateLimitExceeded, ServiceUnavailable)
    done: list[_Subscription] = []
    with open_client() as client, progress("subscribing", len(planned)) as steps:
        for each in planned:
            steps()
            try:
                client.webhooks.subscribe(callback_url, each.event_type, **each.thresholds)
                done.append(replace(each, result="subscribed"))
                continue
            except KeyboardInterrupt:
                # Not raised: the results so far must be printed, because the service cannot be asked for them
                # later.
                done.append(replace(each, result="unknown", error="interrupted"))
            except ApiError as error:
                result = "unknown" if _may_be_done(error) else "failed"
                done.append(replace(each, result=result, error=str(error)))
                if not isinstance(error, fatal):
                    continue
            break
    return [*done, *planned[len(done) :]]


def _may_be_done(error: Exception) -> bool:
    """Return whether the service may have subscribed although the request failed.

    Without a readable answer only a 3xx or 4xx status is surely a refusal.
    """
    if isinstance(error, UnexpectedResponse):
        return not 300 <= error.status < 500
    return isinstance(error, ServiceUnavailable) and error.sent


def _report(callback_url: str, done: Sequence[_Subscription], dry_run: bool, as_json: bool) -> None:
    if dry_run:
        done = [replace(each, result="would be subscribed") for each in done]
    if as_json:
        subscriptions = [asdict(each) for each in done]
        print_json({"callback_url": callback_url, "dry_run": dry_run, "subscriptions": subscriptions})
    else:
        rows = [(each.event_type, each.threshold, each.recurring_threshold, each.result) for each in done]
        columns = ("event type", "threshold", "recurring", "result")
        print_table("", columns, rows, whole=("event type", "result"))
        for each in done:
            if each.error is not None:
                click.echo(f"{each.event_type}: {printable(each.error)}", err=True)
    # Always, and on stderr: after a failure the reader is about to run the command again.
    click.echo(_NO_LIST, err=True)
