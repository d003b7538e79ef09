"""Output of `billhook api`: resources as tables, and as JSON with unchanged digits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from billhook.cli.output import print_table, progress
from billhook.wire import strict_json

if TYPE_CHECKING:
    from billhook.resources import Resource

__all__ = ["limit_option", "print_items", "print_one", "print_wire"]

limit_option = click.option(
    "--limit", type=click.IntRange(1, 100_000), default=50, show_default=True,
    help="The highest number of items, over as many pages as needed.",
)  # fmt: skip

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


def print_items(kind: str, items: Iterator[Resource], limit: int, as_json: bool) -> None:
    """Print the first `limit` items, and a note on stderr if there are more."""
    # One more than the limit tells whether there are others.
    fetched: list[Resource] = []
    with progress(f"fetching {kind.replace('_', ' ')}", None) as steps:
        for item in islice(items, limit + 1):
            fetched.append(item)
            steps.advance()
    more, fetched = len(fetched) > limit, fetched[:limit]
    if as_json:
        print_wire(b"[" + b",".join(item.to_json() for item in fetched) + b"]")
    elif fetched:
        columns = _COLUMNS[kind]
        rows = [[_cell(getattr(item, column)) for column in columns] for item in fetched]
        print_table("", [column.replace("_", " ") for column in columns], rows, whole=(columns[0],))
    else:
        click.echo("nothing found")
    if more:
        click.echo(f"More items exist: raise --limit, which is {limit}", err=True)


def print_one(item: Resource, as_json: bool) -> None:
    """Print all fields of an item by their JSON names."""
    if as_json:
        print_wire(item.to_json())
        return
    # By the wire, not by attributes: the table has the names and the digits that the service sent.
    fields = strict_json.loads(item.to_json())
    rows = [(name, _cell(value)) for name, value in fields.items()] if isinstance(fields, dict) else []
    print_table("", ("field", "value"), rows, whole=("field",))


def _cell(value: Any) -> object:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return strict_json.dumps(value).decode() if isinstance(value, dict | list) else value


def print_wire(body: bytes) -> None:
    """Print one JSON document in ASCII, with each number's digits unchanged."""
    mark = uuid4().hex  # random, so it occurs in no text from outside
    marked = json.dumps(json.loads(body, parse_float=lambda digits: f"{mark}{digits}{mark}"), indent=2)
    click.echo(marked.replace(f'"{mark}', "").replace(f'{mark}"', ""))
