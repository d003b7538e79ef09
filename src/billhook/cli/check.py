"""`billhook check`: check the app's configuration, and send a signed probe through it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from billhook.cli.context import environment, load_app, reject_handlers_argument
from billhook.cli.output import print_json, print_table
from billhook.cli.params import as_json, handlers_argument


@click.command(short_help="Check the configuration; send a signed probe through the app.")
@handlers_argument
@click.option(
    "--path",
    metavar="PATH",
    help="The path that the service posts to. Default: every receiver path of the app.",
)
@as_json
def check(handlers: Sequence[str], path: str | None, as_json: bool) -> None:
    """Check this app's configuration: its inbox, its handlers, and whether deliveries reach the receiver.

    HANDLERS are modules or .py files, as `worker` takes them; the default is BILLHOOK_HANDLERS.

    A signed probe passes through all of the app's hooks and is not stored. If anything else answers in place
    of the receiver (a login hook, CSRF protection, a missing route), the command shows what to change. Exit
    code 1 if anything is wrong.

    \b
    Examples:
      flask --app myshop billhook check
      flask --app myshop billhook check --path /webhooks/billing
      billhook check billing.py --json
    """
    from billhook.doctor.checks import run_checks
    from billhook.doctor.setup import Setup

    reject_handlers_argument(handlers)
    setup = Setup.of_app(load_app(environment(handlers)))
    checks = [
        {"what": name, "ok": found.level in ("ok", "note"), "told": found.in_program().line}
        for name, found in run_checks(setup, "check", path)
    ]
    well = all(check["ok"] for check in checks)
    if as_json:
        print_json({"ok": well, "checks": checks})
    else:
        rows = [("ok" if check["ok"] else "WRONG", check["what"], check["told"]) for check in checks]
        print_table("", ("", "checked", "found"), rows, whole=["", "checked"])
    if not well:
        sys.exit(1)
