"""The command line: `billhook …` standalone, `flask billhook …` inside a Flask app.

A command's module is imported when the command is used, because `flask` loads this package for all its own.
"""

from __future__ import annotations

from collections.abc import Collection, MutableMapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from billhook.cli.output import BillhookGroup

__all__ = ["flask_group", "main"]

_COMMANDS = {
    "actions": "List what operators did: who, what, which, when.",
    "api": "Read from the service's API.",
    "capture": "Record raw requests to files, to look at their signatures.",
    "check": "Check the configuration; send a signed probe through the app.",
    "db": "Show and upgrade the inbox's schema; back up and restore the inbox.",
    "deliveries": "List, follow, show, replay, postpone, forward, discard, prune and erase deliveries.",
    "demo": "See it work on this machine.",
    "deploy": "Write the files that bring this app to production, for review.",
    "doctor": "Find out what is wrong, and what to do about it.",
    "events": "List the event types; with TYPE, its fields and a sample.",
    "failures": "List what is wrong, by its bug; acknowledge, snooze and resolve issues.",
    "handlers": "List, pause and resume handlers.",
    "metrics": "Print the metrics of the inbox in Prometheus' text format.",
    "notify": "Send what is due, or a test message, to the addresses notified of issues.",
    "options": "List every option with its default and its meaning.",
    "reconcile": "Report events that the service's API shows and no delivery tells of.",
    "runbook": "Print what to do about an alert or an issue, and what never to do.",
    "sandbox": "Run the billing service here.",
    "send": "Sign a sample event of TYPE and post it, as the service does.",
    "serve": "Receive and handle deliveries: gunicorn and a worker.",
    "status": "Show what needs attention, what waits, what was refused; with --details types and handlers.",
    "subscribe": "Subscribe a URL to every event type that has a handler.",
    "subscriptions": "List what billhook has subscribed; forget one.",
    "worker": "Call the handlers of received deliveries.",
    "workers": "List the workers of the last day, and what each runs now; hold and resume them.",
}
"""Each command, and what the list of commands says of it."""
_MODULES = {
    "actions": "failures",
    "check": "doctor",
    "metrics": "status",
    "notify": "failures",
    "options": "manual",
    "runbook": "manual",
    "subscriptions": "subscribe",
    "worker": "serve",
}
"""Of the commands that share a module with another."""
_OFTEN_LEFT_OUT = ("deliveries", "failures", "handlers", "db")
"""Groups in which an unknown command is looked for: `replay` is `deliveries replay`."""
# The user chooses what serves a Flask app; the others have no use for one.
_STANDALONE = ("capture", "demo", "sandbox", "serve")


class _CommandLine(BillhookGroup):
    """A group of the commands `names`, which imports their modules when they are used."""

    def __init__(self, *args: Any, names: Collection[str], **more: Any) -> None:
        self._names = sorted(names)
        super().__init__(*args, **more)

    @property
    def commands(self) -> MutableMapping[str, click.Command]:
        """All commands by name."""
        return {name: self._load(name) for name in self._names}

    @commands.setter
    def commands(self, _: MutableMapping[str, click.Command]) -> None:
        """Ignore what click sets."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return self._names

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._load(cmd_name) if cmd_name in self._names else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # click looks for similar names among all commands: their modules may lack an extra.
        if args and args[0] not in self._names and not args[0].startswith("-"):
            groups = [name for name in _OFTEN_LEFT_OUT if name in self._names]
            within = [f"{name} {args[0]}" for name in groups if _has_command(self._load(name), args[0])]
            close = within[:1] or get_close_matches(args[0], self._names, n=1)
            ctx.fail(f"No such command {args[0]!r}." + "".join(f" Did you mean {name!r}?" for name in close))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name]) for name in self._names])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            # As other servers call it.
            command = error.ctx.command if error.ctx is not None else self
            if error.option_name in ("--host", "--port") and any(
                one.name == "bind" for one in command.params
            ):
                # In words: newer releases of click name only what is spelt alike.
                text = f"No such option {error.option_name!r}. Did you mean '--bind'?"
                raise click.NoSuchOption(error.option_name, text, ctx=error.ctx) from None
            raise

    def _load(self, name: str) -> click.Command:
        command: click.Command = getattr(import_module(f"billhook.cli.{_MODULES.get(name, name)}"), name)
        return command


def _has_command(group: click.Command, name: str) -> bool:
    return isinstance(group, click.Group) and name in group.commands


_MANUAL = f"The manual: {Path(__file__).with_name('README.md')}, and the README.md of each folder beside it."


@click.group(
    "billhook",
    cls=_CommandLine,
    names=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"\b\n{_MANUAL}",
)
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


@click.group("billhook", cls=_CommandLine, names=[name for name in _COMMANDS if name not in _STANDALONE])
def flask_group() -> None:
    """Handle, inspect and replay webhook deliveries, with this app's configuration.

    \b
    Examples:
      flask --app myshop billhook worker
      flask --app myshop billhook deliveries list --state dead
    """
