"""The README and its chapters: their texts, their marked blocks, their links."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MARKED = re.compile(r"<!-- (command|file|run): (\S+) -->\n```\w*\n(.*?)```", re.DOTALL)


def _paths() -> list[Path]:
    found = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / ".github").glob("*.md")]
    found += [*(ROOT / "deploy").glob("[A-Z]*.md"), *(ROOT / "deploy" / "site").glob("*.md")]
    for folder in ("deploy", "examples", "src", "tests"):
        found += (ROOT / folder).rglob("README.md")
    return [path for path in found if not any(part.startswith(".pytest") for part in path.parts)]


PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(_paths())}
"""Each page by its path in the checkout."""
README = PAGES["README.md"]
APART = {"deploy/FLASK.md", "deploy/LAPTOP.md"}
"""Pages that have a test file of their own in integration/; all others are read in one folder."""


def marked(pages: Iterable[str] = PAGES.keys() - APART) -> list[tuple[str, str, str]]:
    """Kind, name and text of each marked block of pages."""
    return [found for page in sorted(pages) for found in MARKED.findall(PAGES[page])]


def block(marker: str) -> str:
    """The code block that follows `<!-- marker -->`, on whichever page it is."""
    found = [text for kind, name, text in marked() if f"{kind}: {name}" == marker]
    assert len(found) == 1, f"{len(found)} blocks are marked {marker}"
    return found[0]


def links(text: str) -> list[str]:
    """The targets of a page's links to other files and to headings, code left out."""
    plain = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", plain) if "://" not in target]


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    plain = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", plain, re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()).strip() for heading in headings)
    return {heading.replace(" ", "-") for heading in kept}
