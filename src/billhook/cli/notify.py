"""`billhook notify`: try the addresses that are notified of issues."""

from __future__ import annotations

import socket

import click

from billhook.cli.context import load_settings
from billhook.cli.output import CliError
from billhook.notify import read_addresses
from billhook.program import in_program


@click.group()
def notify() -> None:
    """Notifications of issues, to the addresses in BILLHOOK_NOTIFY_FILE.

    A worker sends one message when an issue opens, and one when all is well again: see `billhook failures`.

    \b
    Example:
      billhook notify test
    """


@notify.command()
def test() -> None:
    """Send a test message to each address. Exit code 1 if one of them did not take it.

    \b
    Example:
      BILLHOOK_NOTIFY_FILE=notify.txt billhook notify test
    """
    path = load_settings().notify_file
    if path is None:
        raise CliError(
            "BILLHOOK_NOTIFY_FILE is not set: name a file with an address on each line, such as "
            "mailto://USER:PASSWORD@example.com, slack://TOKEN/#channel or json://example.com/hook"
        )
    addresses, errors = read_addresses(path)
    failed = len(errors)
    for error in errors:
        click.echo(f"NOT sent: {error}")
    for address in addresses:
        why = address.send(
            "[billhook] a test message",
            in_program(f"Sent by `billhook notify test` on {socket.gethostname()}."),
        )
        failed += why is not None
        result = "sent" if why is None else f"NOT sent: {why}"
        click.echo(f"line {address.number}, {address.name}: {result}")
    if failed:
        raise CliError(f"{failed} of the addresses did not take the message")
