"""`billhook api`: the read operations of the service's API."""

from __future__ import annotations

import click

from billhook.cli.api.calls import open_client
from billhook.cli.api.commands import (
    catalog_products,
    contracts,
    credits_,
    custom_fields,
    customers,
    events,
    invoices,
    plans,
)

__all__ = ["api"]


@click.group(short_help="Read from the service's API.")
def api() -> None:
    """Read from the service's API: customers, contracts, plans, products, invoices, credits, events.

    The commands need the options BILLHOOK_API_URL, BILLHOOK_API_CLIENT_ID and BILLHOOK_API_REFRESH_TOKEN (or
    its _FILE), and the extra billhook[client]. To change data, use billhook.client in a program.

    \b
    Examples:
      billhook api login
      billhook api invoices list --status Overdue
      billhook api invoices get inv_3007 --json
    """


@api.command()
def login() -> None:
    """Check the credentials. Prints when the access token expires, and never the token.

    \b
    Example:
      billhook api login
    """
    with open_client() as client:
        ends_at = client.auth.login()
    click.echo(f"the credentials are valid; the access token expires at {ends_at:%Y-%m-%d %H:%M:%S} UTC")


for _group in (catalog_products, contracts, credits_, custom_fields, customers, events, invoices, plans):
    api.add_command(_group)
