"""`billhook deliveries resend`: edit the body of a delivery, and have one handler called with it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import BinaryIO

import click

from billhook.cli.context import open_inbox, say_missing_worker
from billhook.cli.handlers import load_subscribers
from billhook.cli.output import CliError, print_json, printable
from billhook.cli.params import DELIVERY_ID, as_json, handlers_argument, string
from billhook.cli.selection import recording
from billhook.engines.resend import find_handler
from billhook.engines.resend import resend as resend_this
from billhook.errors import BillhookError, PayloadError
from billhook.fields.model import describe_details
from billhook.inbox.deliveries import details


@click.command()
@click.argument("delivery_id", type=DELIVERY_ID, metavar="ID")
@handlers_argument
@string("--handler", "NAME", "The handler that is called.", required=True)
@click.option(
    "--file",
    "file",
    type=click.File("rb"),
    help="The edited body; - reads stdin. Default: your editor opens.",
)
@as_json
def resend(
    delivery_id: int, handlers: Sequence[str], handler: str, file: BinaryIO | None, as_json: bool
) -> None:
    """Edit the body of a delivery, and have one handler called with it.

    The edited delivery is a new one, marked as edited from this one: it has a key of its own, is a duplicate
    of nothing, and goes to this handler only. The effects that the handler had before are made again.
    HANDLERS are modules or .py files; the default is BILLHOOK_HANDLERS.

    \b
    Examples:
      billhook deliveries resend 42 shop.py --handler shop.chase
      billhook deliveries show 42 --body > body.json
      billhook deliveries resend 42 --handler shop.chase --file body.json
    """
    with open_inbox() as inbox:
        original = next(iter(details(inbox, [delivery_id])), None)
        if original is None or original.summary.state in ("pruned", "erased"):
            raise CliError(f"there is no delivery {delivery_id} with a body: see `billhook deliveries list`")
        connected = load_subscribers(handlers)
        find_handler(connected, original.summary, handler)  # before the editor: no edit is lost
        body = _edited(original.body) if file is None else file.read()
        try:
            with recording(inbox, "resend", f"{delivery_id} edited, handler {printable(handler)}") as add:
                try:
                    new_id = resend_this(inbox, connected, original, handler, body, datetime.now(UTC))
                except BillhookError:
                    add(0, ())  # refused, and nothing was stored
                    raise
                add(1, (new_id,))
        except PayloadError as error:
            wrong = f" ({describe_details(error.details)})" if error.details else ""
            raise CliError(f"{error}{wrong}; nothing was stored") from None
        inbox.waker.wake()
        if as_json:
            print_json({"id": new_id, "edited_from": delivery_id, "handler": handler})
            return
        told = f"delivery {new_id} is delivery {delivery_id} with the edited body, for {printable(handler)}"
        click.echo(told)
        say_missing_worker(inbox)


def _edited(body: bytes) -> bytes:
    try:
        text = click.edit(body.decode(), extension=".json")
    except UnicodeDecodeError:
        raise CliError("the body is not UTF-8: give the edited one with --file") from None
    if text is None:
        raise CliError("the body was not edited; nothing was stored")
    return text.encode()
