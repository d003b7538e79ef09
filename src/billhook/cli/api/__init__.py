"""`billhook api`: the read operations of the service's API."""

from __future__ import annotations

from collections.abc import MutableMapping
from functools import cached_property

import click

from billhook.cli.api.calls import open_client

__all__ = ["api"]


class _LazyGroup(click.Group):
    """Makes its commands when they are first asked for, because that imports the client."""

    @property
    def commands(self) -> MutableMapping[str, click.Command]:
        return self._made

    @commands.setter
    def commands(self, _: MutableMapping[str, click.Command]) -> None:
        """Ignore what click sets."""

    @cached_property
    def _made(self) -> MutableMapping[str, click.Command]:
        from billhook.cli.api.commands import read_commands

        return {**read_commands(), "login": login}


@click.group(cls=_LazyGroup, short_help="Read from the service's API.")
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


@click.command()
def login() -> None:
    """Check the credentials. Prints when the access token expires, and never the token.

    \b
    Example:
      billhook api login
    """
    with open_client() as client:
        ends_at = client.auth.login()
    click.echo(f"the credentials are valid; the access token expires at {ends_at:%Y-%m-%d %H:%M:%S} UTC")
