"""`billhook api`: the read operations of the service's API."""

from __future__ import annotations

import click

from billhook.cli.api_billing import credits_, events, invoices
from billhook.cli.api_entities import catalog_products, contracts, custom_fields, customers, plans
from billhook.cli.calling import open_client

__all__ = ["api"]


@click.group(short_help="Read from the service's API.")
def api() -> None:
    """Read from the service's API: customers, contracts, plans, products, invoices, credits, events.

    Needs the options BILLHOOK_API_URL, BILLHOOK_API_CLIENT_ID and BILLHOOK_API_REFRESH_TOKEN (or its _FILE),
    and the extra billhook[client]. Whatever changes something is for programs: billhook.client.

    \b
    Examples:
      billhook api login
      billhook api invoices list --status Overdue
      billhook api invoices get inv_3007 --json
    """


@api.command()
def login() -> None:
    """See whether the credentials are good; prints when the token ends, and not the token.

    \b
    Example:
      billhook api login
    """
    with open_client() as client:
        ends_at = client.auth.login()
    click.echo(f"the service knows us; its token ends at {ends_at:%Y-%m-%d %H:%M:%S} UTC")


for _group in (catalog_products, contracts, credits_, custom_fields, customers, events, invoices, plans):
    api.add_command(_group)
