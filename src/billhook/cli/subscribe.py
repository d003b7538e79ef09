"""`billhook subscribe`: subscribe a URL to the event types that the handlers handle."""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any

import click

from billhook.cli.api_calls import as_usage_errors, open_client
from billhook.cli.context import handlers_argument
from billhook.cli.events import event_class
from billhook.cli.handlers import load_subscribers
from billhook.cli.output import CliError, print_json, print_table, printable, progress, say
from billhook.cli.params import Parsed, as_json, flag, option, parse_http_url
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
@flag("--dry-run", "Show the subscriptions without sending anything.")
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
    if not dry_run:
        _subscribe_all(callback_url, requests, planned)
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
    say(_NO_LIST)
    if not dry_run and any(each["result"] != "subscribed" for each in planned):
        sys.exit(1)


def _handled_types(handlers: Sequence[str]) -> list[str]:
    connected = load_subscribers(handlers)
    handled = [event_type for event_type in EVENT_TYPES if connected.by_name(event_type)]
    if not handled:
        raise CliError(
            "no event type has a handler: name HANDLERS, set BILLHOOK_HANDLERS, or give --type TYPE"
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
    callback_url: str, requests: Sequence[Mapping[str, Any]], planned: Iterable[dict[str, Any]]
) -> None:
    """Send the requests, and note in `planned` what became of each."""
    # Errors that the next request would meet too. Any other is of one type, and the others are tried.
    fatal = (AuthenticationFailed, RateLimitExceeded, ServiceUnavailable)
    with open_client() as client, progress("subscribing", len(requests)) as steps:
        for request, each in zip(requests, planned, strict=True):
            steps()
            try:
                client.webhooks.subscribe(callback_url, **request)
                each["result"] = "subscribed"
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
