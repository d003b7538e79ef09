"""`billhook reconcile`: compare the service's API with the inbox, and report events without a delivery."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from billhook.basics.printable import counted
from billhook.cli.api_calls import open_client
from billhook.cli.context import load_settings, open_inbox
from billhook.cli.output import CliError, UsageConfigError, print_json, print_table, printable, progress, say
from billhook.cli.params import TIME, as_json, flag, moment, option
from billhook.clock import format_time
from billhook.inbox import DeliveryFilter, Inbox
from billhook.inbox.reading.deliveries import count, page

if TYPE_CHECKING:
    from billhook.reconcile import DeliveredEvents, MissingEvent, Reconciliation

_ON_THEIR_WAY = timedelta(minutes=15)
"""Events as new as this are left out by default: their deliveries may be on their way."""
_CLOCKS = timedelta(hours=1)
"""How far the service's clock may be ahead: a delivery may seem to be older than its object."""
TYPES = (
    "InvoiceApproved",
    "InvoicePaymentStatusChanged",
    "ContractCreated",
    "ContractExpired",
    "CustomerCreated",
    "CreditPoolIncreased",
    "CreditPoolDepleted",
)
"""The event types that can be missing; AnonymousCustomer reports a customer as well as CustomerCreated."""


@click.command()
@moment("--since", "Start of the range", "; not before the retention", required=True)
@option(
    "--until",
    "End of the range: an age or ISO 8601. Default: 15 minutes ago. For a sandbox whose clock was "
    "moved, a time after its clock's.",
    TIME,
)
@option(
    "--type TYPE event_types",
    f"Check only this event type. May be repeated. Default: all of these: {', '.join(TYPES)}.",
    click.Choice(TYPES),
    multiple=True,
)
@flag(
    "--read-customers",
    "Read customers that no delivery tells of, by an update with no fields: the API has no other way.",
)
@flag("--inject", "Store what is missing as deliveries of the source `reconcile`, for the handlers.")
@as_json
def reconcile(
    since: datetime,
    until: datetime | None,
    event_types: tuple[str, ...],
    read_customers: bool,
    inject: bool,
    as_json: bool,
) -> None:
    """Report events that the service's API shows and no delivery tells of. Exit code 1 if any is missing.

    Goes through the contracts created or ended, the invoices issued, and the credits changed in the range.
    Needs the options BILLHOOK_API_URL, BILLHOOK_API_CLIENT_ID and BILLHOOK_API_REFRESH_TOKEN (or its _FILE).
    With --inject the exit code is 0 if everything missing could be stored; a second time stores nothing new.

    \b
    Examples:
      billhook reconcile --since 1d
      billhook reconcile --since 7d --type InvoiceApproved --json
      billhook reconcile --since 2026-01-15T08:00 --until 2026-01-15T12:00 --inject
    """
    from billhook.reconcile import DeliveredEvents, Reconciliation, TimeRange
    from billhook.reconcile import inject as store

    now = datetime.now(UTC)
    period = TimeRange(since, now - _ON_THEIR_WAY if until is None else until)
    _check_period(period, now)
    with open_inbox() as inbox, open_client() as client:
        _check_what_is_left(inbox, period, event_types or TYPES, inject=inject)
        with progress("reading deliveries", None) as steps:
            delivered = DeliveredEvents.read(inbox, since - _CLOCKS, steps)
        with progress("comparing", None) as steps:
            comparison = Reconciliation(
                client, inbox, delivered, period,
                event_types=event_types or TYPES, read_customers=read_customers,
                progress=steps,
            )  # fmt: skip
            missing = list(comparison.missing())
        stored = None
        if inject:
            with progress("storing", len(missing)) as steps:
                stored = 0
                for new in store(inbox, missing, inbox.now()):
                    steps(new)
                    stored += new
    if as_json:
        print_json(_to_json(period, comparison, missing, stored or 0))
    else:
        _print(comparison, missing, stored)
        notes = [*_notes(delivered, missing, comparison.unchecked)]
        local = urlsplit(load_settings().api_url or "").hostname in ("localhost", "127.0.0.1", "::1")
        if local and until is None and not comparison.checked:
            notes.append(
                f"the range ends at {format_time(period.until)} UTC; in a sandbox whose clock was "
                "moved everything is later: give its time as --until"
            )
        for note in notes:
            say(f"note: {note}")
    if any(one.event is None or stored is None for one in missing):
        sys.exit(1)


def _check_period(period: Any, now: datetime) -> None:
    if period.since >= period.until:
        raise click.UsageError(
            f"--since is {period.since:%Y-%m-%d %H:%M} UTC, not before the end of the range, "
            f"{period.until:%Y-%m-%d %H:%M}: give an earlier --since, or a later --until"
        )
    days = load_settings().retention_days
    if period.since < now - timedelta(days=days):
        raise UsageConfigError(
            f"--since is before the retention: deliveries older than {days:g} days (BILLHOOK_RETENTION_DAYS) "
            f"are pruned, and cannot tell of anything; give --since {int(days)}d or later"
        )


def _check_what_is_left(inbox: Inbox, period: Any, event_types: Sequence[str], *, inject: bool) -> None:
    """Raise CliError if deliveries of the range were pruned: what they told is not known any more.

    If some of these types were erased, --inject would store them anew, and is refused; else they are listed
    as missing. Until now, not until the end of the range: an event of the range may have come later.
    """
    for newest in page(inbox, DeliveryFilter(state="pruned", since=period.since), 1):
        raise CliError(
            f"deliveries of this range were pruned, up to delivery {newest.id} of "
            f"{format_time(newest.received_at)} UTC: give a --since after that"
        )
    # "": of one that was erased unread the type is not known.
    erased = DeliveryFilter(state="erased", since=period.since, event_type=(*event_types, ""))
    number = count(inbox, erased)
    if not number:
        return
    said = f"{counted(number, 'delivery')} of this range {'was' if number == 1 else 'were'} erased"
    if inject:
        (newest,) = page(inbox, erased, 1)
        raise CliError(
            f"{said}, the last received {format_time(newest.received_at)} UTC: --inject would store what the "
            "service still has of them; give a --since after that, name other types with --type, or leave "
            "--inject out"
        )
    say(f"{said}: what the service still has of them is listed as missing")


def _to_json(period: Any, comparison: Reconciliation, missing: Sequence[MissingEvent], stored: int) -> Any:
    same = ("event_type", "customer_id", "at", "detail", "obstacle", "quarantined_as")
    events = [
        {name: getattr(one, name) for name in same}
        | {"object": one.kind, "id": one.resource_id, "injectable": one.event is not None}
        for one in missing
    ]
    return {
        "since": period.since,
        "until": period.until,
        "checked": comparison.checked,
        "unchecked": comparison.unchecked,
        "missing": len(missing),
        "injected": stored,
        "by_type": Counter(one.event_type for one in missing),
        "events": events,
    }


def _print(comparison: Reconciliation, missing: Sequence[MissingEvent], stored: int | None) -> None:
    """Print the missing events, and a summary; `stored` is None without --inject."""
    if missing:
        columns = ("missing event", "object", "id", "customer", "at (UTC)", "because")
        rows = [
            (one.event_type, one.kind, one.resource_id, one.customer_id, f"{one.at:%F %T}", one.detail)
            for one in missing
        ]
        print_table(columns, rows, whole=columns[:5])
    checked = ", ".join(counted(number, kind[:-1]) for kind, number in sorted(comparison.checked.items()))
    have = "has" if len(missing) == 1 else "have"
    compared = checked or "nothing in this range"
    click.echo(f"{counted(len(missing), 'event')} {have} no delivery; compared: {compared}")
    for event_type, number in sorted(Counter(one.event_type for one in missing).items()):
        click.echo(f"  {event_type}: {number}")
    makeable = sum(one.event is not None for one in missing)
    if stored is not None:
        text = f"{stored} stored as deliveries of the source reconcile"
        click.echo(text + (f"; {makeable - stored} were stored before" if makeable > stored else ""))
    for obstacle, number in Counter(one.obstacle for one in missing if one.obstacle).items():
        click.echo(f"{number} cannot be injected: {printable(obstacle)}")


def _notes(
    delivered: DeliveredEvents, missing: Sequence[MissingEvent], unchecked: Mapping[str, int]
) -> Iterator[str]:
    """Yield what limits the result."""
    if never := sorted({one.event_type for one in missing if not delivered.counts[one.event_type]}):
        yield (
            f"there is no {', '.join(never)} at all in this range; for types that you do not subscribe "
            "to, name the others with --type"
        )
    if number := unchecked["invoices"]:
        yield f"not compared, changed after the range: {counted(number, 'invoice')}"
    if number := unchecked["credits"]:
        yield f"not compared: credits of {counted(number, 'customer')}, which the service refuses"
    if number := unchecked["customers"]:
        yield (
            f"not compared: {counted(number, 'customer')} that no delivery tells of; --read-customers reads "
            "when they were created"
        )
