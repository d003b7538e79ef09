"""A command's calls of the billing service's API: the client, its errors as messages, its answers as output.

Resources are shown as tables, and as JSON with unchanged digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
from pydantic import ValidationError

from billhook.cli.context import load_settings
from billhook.cli.output import CliError, print_table, print_wire, progress, say
from billhook.cli.params import integer
from billhook.clock import format_time
from billhook.errors import AuthenticationFailed, RuleBroken
from billhook.fields import strict_json
from billhook.fields.model import describe_invalid
from billhook.resources import Resource

if TYPE_CHECKING:
    from billhook.client import BillingClient

_CREDENTIALS = (
    "check BILLHOOK_API_CLIENT_ID, and BILLHOOK_API_REFRESH_TOKEN or BILLHOOK_API_REFRESH_TOKEN_FILE"
)
limit_option = integer(
    "--limit", 1, 100_000, 50, "The highest number of items, over as many pages as needed."
)
_COLUMNS = {
    "catalog_products": ("id", "name", "product_code", "external_id", "description"),
    "consumptions": (
        "product_id",
        "product_name",
        "consumed_amount",
        "provisioned_amount",
        "usage_percentage",
    ),
    "contracts": ("id", "customer_id", "name", "status", "start_date", "end_date", "external_id"),
    "credits": ("id", "created_at", "type", "amount", "balance_after_entry", "invoice_id"),
    "custom_fields": ("id", "entity", "custom_field_name", "value_type", "default_value"),
    "events": ("timestamp", "name", "customer_alias", "ref", "data"),
    "invoices": ("id", "customer_id", "name", "billing_status", "amount", "due_date"),
}
"""The columns of each kind's table. The JSON has every field."""


@contextmanager
def open_client(once_seconds: float | None = None) -> Iterator[BillingClient]:
    """Open the client that the BILLHOOK_API_ options describe.

    With `once_seconds` it sends each request once, with this time-out: a fault that a sandbox injects is to
    be seen. Raises ConfigError for options that are missing, CliError if the service refuses the credentials,
    and UsageError for arguments that cannot be sent.
    """
    from billhook.client import BillingClient, RetryPolicy

    options: dict[str, Any] = {}
    if once_seconds is not None:
        import httpx2

        options["timeout_seconds"] = once_seconds
        options["retries"] = RetryPolicy(attempts=1, total_seconds=once_seconds)
        # A transport of its own, because a proxy from the environment cannot reach a local sandbox.
        options["transport"] = httpx2.HTTPTransport()
    try:
        # Around building the client, too, which can fail as well.
        with as_usage_errors(), BillingClient.from_settings(load_settings(), **options) as client:
            yield client
    except AuthenticationFailed as error:
        raise CliError(f"{error}: {_CREDENTIALS}") from None


@contextmanager
def as_usage_errors() -> Iterator[None]:
    """Turn an argument that cannot be sent into click's UsageError: exit code 2."""
    try:
        yield
    except ValidationError as error:
        raise click.UsageError(describe_invalid(error)) from None
    except (RuleBroken, ValueError) as error:
        raise click.UsageError(str(error)) from None


def print_items(kind: str, items: Iterator[Resource], limit: int, as_json: bool) -> None:
    """Print the first `limit` items, and a note on stderr if there are more."""
    # One more than the limit tells whether there are others.
    fetched: list[Resource] = []
    with progress(f"fetching {kind.replace('_', ' ')}", None) as steps:
        for item in islice(items, limit + 1):
            fetched.append(item)
            steps()
    more, fetched = len(fetched) > limit, fetched[:limit]
    if as_json:
        print_wire(b"[" + b",".join(item.to_json() for item in fetched) + b"]")
    elif fetched:
        columns = _COLUMNS[kind]
        rows = [[_cell(getattr(item, column)) for column in columns] for item in fetched]
        print_table([column.replace("_", " ") for column in columns], rows, whole=(columns[0],))
    else:
        click.echo("nothing found")
    if more:
        say(f"More items exist: raise --limit, which is {limit}")


def print_one(item: Resource, as_json: bool) -> None:
    """Print all fields of an item by their JSON names."""
    if as_json:
        print_wire(item.to_json())
        return
    # By the wire, not by attributes: the table has the names and the digits that the service sent.
    fields = strict_json.loads(item.to_json())
    rows = [(name, _cell(value)) for name, value in fields.items()] if isinstance(fields, dict) else []
    print_table(("field", "value"), rows, whole=("field",))


def _cell(value: Any) -> object:
    if isinstance(value, datetime):
        return format_time(value)
    return strict_json.dumps(value).decode() if isinstance(value, dict | list) else value
