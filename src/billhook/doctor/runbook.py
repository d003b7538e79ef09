"""The runbook: what to do about an alert or an issue, by the sections of cli/RUNBOOK.md."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "cli" / "RUNBOOK.md"
_LINK = re.compile(r"\[\w+\]\(#([\w-]+)\)")
_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def read_runbook() -> dict[str, tuple[str, str]]:
    """Return the title and the text of each section, by the name that links use.

    A link to another section is the command that prints it, since a section is shown alone.
    """
    text = _LINK.sub(r"`billhook runbook \1`", PAGE.read_text(encoding="utf-8"))
    found = _SECTION.findall(text)
    return {title.lower().replace(" ", "-"): (title, text.strip()) for title, text in found}
