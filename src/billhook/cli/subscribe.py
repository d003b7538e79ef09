"""`billhook subscribe`: asks the service to send the events that somebody here handles."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from billhook.cli.calling import checked, open_client
from billhook.cli.faults import Fault
from billhook.cli.output import print_json, print_table, printable, progress
from billhook.cli.params import as_json, handlers_argument
from billhook.cli.thresholds import THRESHOLD, once_each

if TYPE_CHECKING:
    from billhook.client import BillingClient

__all__ = ["subscribe"]

_UNKNOWN = (
    "Note: the service's specification shows no way to list or remove subscriptions, and does not say what a "
    "second one of the same type and URL does; look in the service's dashboard before you repeat this."
)


@dataclass(frozen=True, slots=True)
class _Subscription:
    """One event type, and what became of it."""

    event_type: str
    threshold: Decimal | None
    recurring_threshold: Decimal | None = None
    result: str = "not tried"
    error: str | None = None
    answer: dict[str, Any] | None = None

    @property
    def thresholds(self) -> dict[str, Decimal]:
        """Those that are set."""
        both = {"threshold": self.threshold, "recurring_threshold": self.recurring_threshold}
        return {name: number for name, number in both.items() if number is not None}


@click.command()
@handlers_argument
@click.option("--callback-url", required=True, metavar="URL", help="Where the service is to send events.")
@click.option(
    "--type", "event_types", multiple=True, metavar="TYPE",
    help="Subscribe to this type instead of all that are handled. May be repeated.",
)  # fmt: skip
@click.option(
    "--threshold", "thresholds", type=THRESHOLD, multiple=True, metavar="TYPE=NUMBER",
    help="The percentage from which events of TYPE are sent, where it has one. May be repeated.",
)  # fmt: skip
@click.option(
    "--recurring-threshold", "recurring", type=THRESHOLD, multiple=True, metavar="TYPE=NUMBER",
    help="After how many percent more each they are sent again. May be repeated.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show what would be subscribed to, and send nothing.")
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
    """Subscribe a URL to every event type that the handlers handle. Exit code 1 unless all succeeded.

    HANDLERS are modules or .py files; without any, those of BILLHOOK_HANDLERS. Needs the options
    BILLHOOK_API_URL, BILLHOOK_API_CLIENT_ID and BILLHOOK_API_REFRESH_TOKEN (or its _FILE), and the extra
    billhook[client]; --dry-run needs none of them.

    \b
    Examples:
      billhook subscribe myshop/billing.py --callback-url https://shop.example/webhooks/billing --dry-run
      billhook subscribe --type CommitmentUsageCrossed --threshold CommitmentUsageCrossed=80 --callback-url …
      flask --app myshop billhook subscribe --callback-url https://shop.example/webhooks/billing
    """
    _check_url(callback_url)
    first, again = once_each("--threshold", thresholds), once_each("--recurring-threshold", recurring)
    planned = _planned(event_types or _handled(handlers), first, again)
    _check_rules(callback_url, planned)
    done = planned if dry_run else _subscribed(callback_url, planned)
    _report(callback_url, done, dry_run, as_json)
    if not dry_run and any(each.result != "subscribed" for each in done):
        sys.exit(1)


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not url.isascii() or not url.isprintable() or " " in url:
        raise click.UsageError("--callback-url is no URL that can be posted to: write https://HOST/PATH")


def _handled(handlers: Sequence[str]) -> list[str]:
    from billhook.cli.handlers import find_subscribers
    from billhook.events import EVENT_TYPES

    subscribers = find_subscribers(handlers)
    handled = [event_type for event_type in EVENT_TYPES if subscribers.of(event_type)]
    if not handled:
        raise Fault("no event type is handled here: name the HANDLERS, set BILLHOOK_HANDLERS, or give --type")
    return handled


def _planned(
    event_types: Iterable[str], thresholds: dict[str, Decimal], recurring: dict[str, Decimal]
) -> list[_Subscription]:
    from billhook.cli.wanted import event_class

    names = dict.fromkeys(event_class(event_type).type for event_type in event_types)
    for option, given in (("--threshold", thresholds), ("--recurring-threshold", recurring)):
        for event_type in given:
            if event_type not in names:
                raise click.UsageError(f"{option} names {event_type!r}, which is not subscribed to here")
    return [_Subscription(name, thresholds.get(name), recurring.get(name)) for name in names]


def _check_rules(callback_url: str, planned: Sequence[_Subscription]) -> None:
    """All of them before the first is sent."""
    from billhook.resources import WebhookSubscription

    with checked():
        for each in planned:
            WebhookSubscription(callback_url=callback_url, event_type=each.event_type, **each.thresholds)


def _subscribed(callback_url: str, planned: Sequence[_Subscription]) -> list[_Subscription]:
    from billhook.errors import AuthenticationFailed, RateLimitExceeded, ServiceUnavailable

    ends_it = (AuthenticationFailed, KeyboardInterrupt, RateLimitExceeded, ServiceUnavailable)
    done = []
    stopped = False
    with open_client() as client, progress("subscribing", len(planned)) as steps:
        for each in planned:
            if not stopped:
                each, error = _one(client, callback_url, each)
                stopped = isinstance(error, ends_it)
            done.append(each)
            steps.advance()
    return done


def _one(
    client: BillingClient, callback_url: str, planned: _Subscription
) -> tuple[_Subscription, BaseException | None]:
    from billhook.errors import ApiError

    try:
        answer = client.webhooks.subscribe(callback_url, planned.event_type, **planned.thresholds)
    except KeyboardInterrupt as error:
        # What was done before must be told: nobody can ask the service for it.
        return replace(planned, result="unknown", error="interrupted"), error
    except ApiError as error:
        result = "unknown" if _may_be_done(error) else "failed"
        return replace(planned, result=result, error=str(error)), error
    return replace(planned, result="subscribed", answer=answer), None


def _may_be_done(error: Exception) -> bool:
    """Without an answer that can be read nobody knows, unless it is surely a refusal."""
    from billhook.errors import ServiceUnavailable, UnexpectedResponse

    if isinstance(error, UnexpectedResponse):
        return not 300 <= error.status < 500
    return isinstance(error, ServiceUnavailable) and error.sent


def _report(callback_url: str, done: Sequence[_Subscription], dry_run: bool, as_json: bool) -> None:
    results = ["would be subscribed" if dry_run else each.result for each in done]
    if as_json:
        facts = [
            {
                "event_type": each.event_type,
                "threshold": None if each.threshold is None else str(each.threshold),
                "recurring_threshold": None
                if each.recurring_threshold is None
                else str(each.recurring_threshold),
                "result": result,
                "error": each.error,
            }
            for each, result in zip(done, results, strict=True)
        ]
        print_json({"callback_url": callback_url, "dry_run": dry_run, "subscriptions": facts})
    else:
        rows = [
            (each.event_type, each.threshold, each.recurring_threshold, result)
            for each, result in zip(done, results, strict=True)
        ]
        columns = ("event type", "threshold", "recurring", "result")
        print_table("", columns, rows, whole=("event type", "result"))
        for each in done:
            if each.error is not None:
                click.echo(f"{each.event_type}: {printable(each.error)}", err=True)
    click.echo(_UNKNOWN, err=True)
