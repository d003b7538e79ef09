"""`billhook doctor` and `billhook check`: find out what is wrong, and say what to do about it."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

import click

from billhook.cli.context import (
    environment,
    load_app,
    load_settings,
    open_inbox,
    reject_handlers_argument,
    user_app,
)
from billhook.cli.handlers import load_subscribers
from billhook.cli.output import CliError, print_json, print_table, printable
from billhook.cli.params import DefaultGroup, as_json, handlers_argument, integer, string
from billhook.cli.signature import signature
from billhook.doctor.checks import examine, run_checks
from billhook.doctor.finding import Finding
from billhook.doctor.setup import Setup, finding_of
from billhook.errors import BillhookError
from billhook.extension import default_source


@click.group(
    cls=DefaultGroup,
    default="examine",
    subcommand_metavar="[HANDLERS]... | signature [ARGS]...",
)
def doctor() -> None:
    """Examine options, secrets, inbox, handlers, gunicorn's settings and a sample of stored deliveries.

    HANDLERS are modules or .py files, as `worker` takes them; the default is BILLHOOK_HANDLERS. Each finding
    says why it matters and what to do. It changes nothing, and sends nothing. Exit code 1 if a finding is an
    error, 0 for warnings and notes. `billhook check` sends a probe through the app.

    \b
    Examples:
      billhook doctor billing.py
      flask --app myshop billhook doctor --gunicorn deploy/gunicorn.conf.py --json
      billhook doctor signature --request request.http --secret-file secret.txt
    """


@doctor.command("examine", hidden=True)
@handlers_argument
@click.option(
    "--gunicorn", "gunicorn_file", metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="gunicorn's settings file, which is executed. Default: ./gunicorn.conf.py, if there is one.",
)  # fmt: skip
@integer(
    "--sample", 0, 100_000, 1_000,
    "How many of the newest deliveries to look at for what the models do not list.",
)  # fmt: skip
@as_json
def examine_(handlers: Sequence[str], gunicorn_file: Path | None, sample: int, as_json: bool) -> None:
    """Examine everything: what `billhook doctor` does.

    \b
    Example:
      billhook doctor billing.py --sample 5000
    """
    with ExitStack() as closing:
        try:
            found, _ = examine(_setup(handlers, gunicorn_file, sample, closing), "doctor")
        except (BillhookError, CliError) as error:
            found = [finding_of(error)]
    findings = [each.in_program() for each in found]
    if as_json:
        well = all(each.level != "error" for each in findings)
        print_json({"ok": well, "findings": [asdict(each) for each in findings]})
    else:
        _print(findings)
    if any(each.level == "error" for each in findings):
        sys.exit(1)


def _setup(
    handlers: Sequence[str], gunicorn_file: Path | None, sample_size: int, closing: ExitStack
) -> Setup:
    """Return the set-up of the user's app, or that of the environment. Raises ConfigError and CliError."""
    reject_handlers_argument(handlers)
    app = user_app()
    if app is not None:
        return Setup.of_app(app, sample_size=sample_size, gunicorn_file=gunicorn_file)
    settings = load_settings()
    settings = replace(settings, handlers=tuple(handlers) or settings.handlers)
    return Setup(
        settings, os.environ, lambda: [default_source(settings)],
        lambda: closing.enter_context(open_inbox(missing_ok=True)), lambda: load_subscribers(handlers),
        sample_size=sample_size, gunicorn_file=gunicorn_file,
    )  # fmt: skip


def _print(findings: Sequence[Finding]) -> None:
    if not findings:
        click.echo("Nothing was found.")
        return
    for each in findings:
        click.echo(f"{each.level.upper()}: {printable(each.what)}")
        click.echo(f"  why it matters: {printable(each.why)}")
        click.echo(f"  what to do: {printable(each.remedy)}")
        if each.file:
            click.echo("\n" + printable(each.file, keep="\n"))
    counted = Counter(each.level for each in findings)
    click.echo(", ".join(f"{count} {level}{'s' if count > 1 else ''}" for level, count in counted.items()))


doctor.add_command(signature)


@click.command()
@handlers_argument
@string("--path", "PATH", "The path that the service posts to. Default: every receiver path of the app.")
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
