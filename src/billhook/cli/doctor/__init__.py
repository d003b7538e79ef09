"""`billhook doctor`: find out what is wrong, and say what to do about it."""

from __future__ import annotations

import click

from billhook.cli.doctor.signature import signature

__all__ = ["doctor"]


@click.group(short_help="Find out what is wrong.")
def doctor() -> None:
    """Find out what is wrong, and what to do about it.

    \b
    Example:
      billhook doctor signature --request request.http --secret-file secret.txt
    """


doctor.add_command(signature)
