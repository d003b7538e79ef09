"""Build the site with Sphinx: the chapters from where they are, and a reference of names that they import.

The command is in .github/CONTRIBUTING.md. A page's links to files of the source are downloads.
"""

from __future__ import annotations

import re
import shutil
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from typing import Any

from billhook.events import EVENT_TYPES
from billhook.events.inspection import event_json_schema, event_summary, schema_fields

ROOT = Path(__file__).resolve().parents[2]
SURFACE = ROOT / "tests" / "meta" / "surface.txt"

project = "billhook"
html_title = "billhook"
html_theme = "furo"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "README"
include_patterns = ["README.md", "CHANGELOG.md", ".github/*.md", "*/**.md"]
exclude_patterns = [".venv", ".git", ".[a-fh-z]*", "build", "site", ".github/PULL_REQUEST_TEMPLATE.md"]
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["site.css"]
myst_heading_anchors = 4
default_role = "code"  # a docstring's `name` is a name
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
maximum_signature_line_length = 100
autodoc_default_options = {"members": True}

PARTS = {
    "Begin": ["deploy/site/TUTORIAL", "deploy/LAPTOP", "examples/README"],
    "Chapters": [
        "src/billhook/handlers/README",
        "src/billhook/events/README",
        "src/billhook/testing/README",
        "src/billhook/receiver/README",
        "src/billhook/signing/README",
        "src/billhook/inbox/README",
        "src/billhook/dashboard/README",
        "src/billhook/engines/README",
        "src/billhook/client/README",
        "src/billhook/reconcile/README",
        "src/billhook/sandbox/README",
    ],
    "Production": [
        "deploy/FLASK",
        "deploy/README",
        "deploy/SETTINGS",
        "src/billhook/cli/RUNBOOK",
        "deploy/CAPACITY",
        "deploy/DATA",
    ],
    "Reference": ["src/billhook/cli/README", "deploy/site/REFERENCE", "CHANGELOG"],
    "Development": [".github/CONTRIBUTING", ".github/SECURITY", "src/billhook/README", "tests/README"],
}
"""The table of contents, which is beside every page. What is not in it follows by its folder."""


def prepare(app: Any, docname: str, source: list[str]) -> None:
    """Append the table of contents to the first page, and the reference to its own; unlink folders."""
    here = (ROOT / docname).parent

    def without_folder(link: re.Match[str]) -> str:
        return link[1] if (here / link[2]).is_dir() else link[0]

    source[0] = re.sub(r"\[([^]\n]+)\]\(([\w./]+)\)", without_folder, source[0])
    if docname == "README":
        for caption, pages in PARTS.items():
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n" + "\n".join(pages) + "\n```\n"
    elif docname == "deploy/site/REFERENCE":
        source[0] += "".join((*_names(), "\n## Event types\n", *map(_event_type, EVENT_TYPES)))
    else:
        named = {page for pages in PARTS.values() for page in pages}
        folder = docname.removesuffix("README")
        below = [
            page
            for page in sorted(app.env.found_docs)
            if page.startswith(folder) and page not in {*named, docname}
        ]
        if docname in named and docname.endswith("/README") and below:
            source[0] += "\n```{toctree}\n:hidden:\n" + "\n".join(f"/{page}" for page in below) + "\n```\n"


def _names() -> list[str]:
    """Return a section for each module of which pages import names: what autodoc says of them."""
    by_module: dict[str, list[str]] = {}
    for module, name in re.findall(
        r"^from (\S+) import (\w+)$", SURFACE.read_text(encoding="utf-8"), re.MULTILINE
    ):
        if name not in EVENT_TYPES:
            by_module.setdefault(module, []).append(name)
    sections = []
    for module, names in by_module.items():
        lines = [f".. auto{_kind(module, name)}:: {module}.{name}" for name in names]
        sections.append(f"\n## {module}\n\n```{{eval-rst}}\n" + "\n\n".join(lines) + "\n```\n")
    return sections


def _kind(module: str, name: str) -> str:
    value = getattr(import_module(module), name, None)
    if isinstance(value, type):
        return "class"
    if isfunction(value):
        return "function"
    return "data" if value is not None else "module"


def _event_type(name: str) -> str:
    model = EVENT_TYPES[name]
    cells = [
        (f"`{row['name']}`", row["type"], "" if row["required"] else "no", row["meaning"])
        for row in schema_fields(event_json_schema(model))
    ]
    head = [("field", "type", "required", "meaning"), ("---",) * 4] if cells else []
    table = "".join(f"| {' | '.join(row)} |\n" for row in (*head, *cells))
    return f"\n### {name}\n\n{event_summary(model)} Signal: `{model.signal_name}`.\n\n{table}"


def add_pictures(app: Any, error: Exception | None) -> None:
    """Add the pictures that the first page names in HTML, and that page once more, as the index."""
    if error is None:
        out = Path(app.outdir)
        shutil.copytree(ROOT / "deploy" / "pictures", out / "deploy" / "pictures", dirs_exist_ok=True)
        shutil.copy(out / "README.html", out / "index.html")


def setup(app: Any) -> None:
    """Connect the steps above to Sphinx."""
    app.connect("source-read", prepare)
    app.connect("build-finished", add_pictures)
