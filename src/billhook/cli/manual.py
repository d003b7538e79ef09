"""`billhook options`: the table of options; `billhook runbook`: what an alert or an issue means."""

from __future__ import annotations

import textwrap

import click

from billhook.cli.output import UsageConfigError, print_json, print_markdown, print_table, terminal_width
from billhook.cli.params import as_json
from billhook.doctor.runbook import read_runbook
from billhook.errors.program import in_program
from billhook.settings import OPTIONS

_TABLE_WIDTH = 120


@click.command()
@as_json
def options(as_json: bool) -> None:
    """List every option with its default and its meaning.

    Set options as environment variables by these names, for `billhook` and for Flask apps. An app's own
    config takes precedence, as does FLASK_BILLHOOK_… with app.config.from_prefixed_env().

    \b
    Examples:
      billhook options
      billhook options --json | jq '.[].name'
    """
    if as_json:
        same = ("default", "unit", "help", "secret")
        print_json([{"name": o.key} | {name: getattr(o, name) for name in same} for o in OPTIONS])
    elif (width := terminal_width() or _TABLE_WIDTH) < _TABLE_WIDTH:
        # The name and the default on one line, the meaning below.
        for option in OPTIONS:
            click.echo("  ".join(filter(None, (option.key, option.default_text, option.unit))))
            text = textwrap.fill(option.help, width - 4, break_on_hyphens=False)
            click.echo(textwrap.indent(text, "    "))
    else:
        rows = [(option.key, option.default_text, option.unit, option.help) for option in OPTIONS]
        print_table(("option", "default", "unit", "meaning"), rows, whole=("option", "default", "unit"))


@click.command()
@click.argument("section", required=False)
def runbook(section: str | None) -> None:
    """Print what to do about an alert or an issue: SECTION, or the one of this alert or kind of issue.

    Without SECTION the names of the sections are listed. A terminal gets the text formatted, a pipe or a file
    gets Markdown.

    \b
    Examples:
      billhook runbook
      billhook runbook runs-are-dead
      billhook runbook BillhookWorkerGone
    """
    known = read_runbook()
    if section is None:
        for name, (title, _) in known.items():
            click.echo(f"{name:35} {title}")
        return
    # Alerts and kinds of issues are in the first paragraph of their section, as code.
    named = [
        name
        for name, (_, text) in known.items()
        if section == name or f"`{section}`" in text.split("\n\n")[0]
    ]
    if not named:
        raise UsageConfigError(f"there is no section {section}: {', '.join(known)}")
    for name in named:
        title, text = known[name]
        print_markdown(title, in_program(text))
