"""The command line: `billhook …` on its own, `flask billhook …` inside a user's app.

Each command imports what it needs when it runs: `flask` loads this package for every command of its own.
"""

from __future__ import annotations

import click

from billhook.cli.api import api
from billhook.cli.check import check
from billhook.cli.db import db
from billhook.cli.deliveries import deliveries
from billhook.cli.demo import demo
from billhook.cli.events import events
from billhook.cli.faults import FaultGroup
from billhook.cli.handlers import handlers
from billhook.cli.options import options
from billhook.cli.sandbox import sandbox
from billhook.cli.send import send
from billhook.cli.serve import serve
from billhook.cli.subscribe import subscribe
from billhook.cli.worker import worker

__all__ = ["flask_group", "main"]


@click.group(cls=FaultGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="billhook", prog_name="billhook")
def main() -> None:
    """Receive the signed webhooks of a usage-billing service: verified, stored, answered, handled.

    Options come from BILLHOOK_… variables (`billhook options` lists them), and so do secrets: they are
    never given on the command line.

    \b
    Examples:
      billhook demo                                      see it work, here and now
      billhook serve myshop/billing.py                   receive and handle
      billhook sandbox --allow-private --seed demo       the billing service itself, here
      billhook send InvoiceApproved                      play the service
      billhook deliveries list --state retrying          what goes wrong; dead: what went wrong
    """


@click.group("billhook", cls=FaultGroup)
def flask_group() -> None:
    """Webhook deliveries: handle, look at and replay them, with this app's own configuration.

    \b
    Examples:
      flask --app myshop billhook worker
      flask --app myshop billhook deliveries list --state dead
    """


# What a user's own app is served by is the user's choice, and the demo has an app of its own.
_EVERYWHERE: tuple[click.Command, ...] = (
    api,
    check,
    db,
    deliveries,
    events,
    handlers,
    options,
    send,
    subscribe,
    worker,
)
for _command in _EVERYWHERE:
    main.add_command(_command)
    flask_group.add_command(_command)
for _command in (demo, sandbox, serve):
    main.add_command(_command)
