"""`billhook runbook`: what an alert or an issue means, the first command, and what never to do."""

from __future__ import annotations

import re
from pathlib import Path

import click

from billhook.cli.output import UsageConfigError
from billhook.program import in_program

PAGE = Path(__file__).with_name("RUNBOOK.md")
_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def sections() -> dict[str, tuple[str, str]]:
    """Return the title and the text of each section, by the name that links use."""
    found = _SECTION.findall(PAGE.read_text(encoding="utf-8"))
    return {title.lower().replace(" ", "-"): (title, text.strip()) for title, text in found}


@click.command()
@click.argument("section", required=False)
def runbook(section: str | None) -> None:
    """Print what to do about an alert or an issue: SECTION, or the one of this alert or kind of issue.

    Without SECTION the names of the sections are listed.

    \b
    Examples:
      billhook runbook
      billhook runbook runs-are-dead
      billhook runbook BillhookWorkerGone
    """
    known = sections()
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
        click.echo(in_program(f"{title}\n\n{text}\n"))
