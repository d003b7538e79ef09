"""The command line: `billhook …` standalone, `flask billhook …` inside a Flask app.

Each command imports what it needs when it runs, because `flask` loads this package for all its commands.
"""

from __future__ import annotations

import click

from billhook.cli.actions import actions
from billhook.cli.api import api
from billhook.cli.capture import capture
from billhook.cli.db import db
from billhook.cli.deliveries import deliveries
from billhook.cli.demo import demo
from billhook.cli.doctor import check, doctor
from billhook.cli.events import events
from billhook.cli.handlers import handlers
from billhook.cli.options import options
from billhook.cli.output import BillhookGroup
from billhook.cli.reconcile import reconcile
from billhook.cli.sandbox import sandbox
from billhook.cli.send import send
from billhook.cli.serve import serve
from billhook.cli.status import metrics, status
from billhook.cli.subscribe import subscribe
from billhook.cli.worker import worker

__all__ = ["flask_group", "main"]


@click.group(cls=BillhookGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="billhook", prog_name="billhook")
def main() -> None:
    """Receive the signed webhooks of a usage-billing service: verify, store, answer and handle them.

    Options and secrets come from BILLHOOK_… environment variables; `billhook options` lists them. Secrets
    are never arguments, which other users of the machine can read.

    \b
    Examples:
      billhook demo                                      see it work on this machine
      billhook serve myshop/billing.py                   receive and handle deliveries
      billhook sandbox --allow-private --seed demo       run the billing service locally
      billhook send InvoiceApproved                      post a sample event
      billhook status                                    what waits, what failed, who is at work
      billhook deliveries list --state retrying          failed, to be retried; dead: given up
    """


@click.group("billhook", cls=BillhookGroup)
def flask_group() -> None:
    """Handle, inspect and replay webhook deliveries, with this app's configuration.

    \b
    Examples:
      flask --app myshop billhook worker
      flask --app myshop billhook deliveries list --state dead
    """


# Not `serve`: the user chooses what serves a Flask app. Not `demo` and `capture`, which have no use for one.
_EVERYWHERE: tuple[click.Command, ...] = (
    actions,
    api,
    check,
    db,
    deliveries,
    doctor,
    events,
    handlers,
    metrics,
    options,
    reconcile,
    send,
    status,
    subscribe,
    worker,
)
for _command in _EVERYWHERE:
    main.add_command(_command)
    flask_group.add_command(_command)
for _command in (capture, demo, sandbox, serve):
    main.add_command(_command)
