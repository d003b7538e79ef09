"""The tables of the pages that the code makes: each stands between `<!-- NAME -->` and `<!-- /NAME -->`.

The files of deploy/ that are made from templates are written, too.

usage: python tests/meta/tables.py [--write]     prints them, or writes them into their pages
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import billhook
from billhook.client.operations import GROUPS
from billhook.deployment.rendering import repository_files
from billhook.handlers.options import OPTIONS as HANDLER_OPTIONS
from billhook.inbox.watching.judgement import CONDITIONS
from billhook.settings import OPTIONS

PACKAGE = Path(billhook.__file__).parent
DEPLOY = Path(__file__).parents[2] / "deploy"
"""Its units, its options and its site of nginx are made from the templates of `billhook deploy`."""


def options() -> Iterator[str]:
    """Yield a row for each option."""
    yield "| Option | Default | Unit | Meaning |"
    yield "|---|---|---|---|"
    for option in OPTIONS:
        default = f"`{option.default_text}`" if option.default_text else ""
        yield _row(f"`{option.key}`", default, option.unit, option.help)


def handler_options() -> Iterator[str]:
    """Yield a row for each option of a handler."""
    yield "| Option | Meaning |"
    yield "|---|---|"
    for name, option in HANDLER_OPTIONS.items():
        yield _row(f"`{name}`", option.help)


def conditions() -> Iterator[str]:
    """Yield a row for each condition."""
    yield "| condition | severity | holds when | message | first command | runbook | alert |"
    yield "|---|---|---|---|---|---|---|"
    for one in CONDITIONS:
        notified = "yes" if one.is_notified else "no"
        command = f"`billhook {one.first_command('HANDLER')}`"
        alert = f"`{one.alert}`" if one.alert else ""
        yield _row(f"`{one.name}`", one.severity, one.holds, notified, command, f"`{one.runbook}`", alert)


def operations() -> Iterator[str]:
    """Yield a row for each method of the client; one that calls several operations has one row, too."""
    yield "| group | method | arguments, in brackets those that may be left out | result |"
    yield "|---|---|---|---|"
    for group, owner in GROUPS.items():
        for name, method in vars(owner).items():
            if not name.startswith("_") and inspect.isfunction(method):
                result = described(str(method.__annotations__["return"]))
                yield _row(f"`{group}`", f"`{name}`", ", ".join(arguments(method)), result)


def described(annotation: str) -> str:
    """A type as a reader writes it: models by their names, without null."""
    text = annotation.replace("r.", "").replace(" | None", "").replace(" | Fields", " or its fields")
    text = re.sub(r"Callable\[\[Progress\], object\]", "a function", text)
    return (
        text.replace("type[Event]", "its class")
        .replace(" | ", " or ")
        .replace("BillingStatusWord", "BillingStatus")
    )


def arguments(method: object) -> Iterator[str]:
    """The arguments of a method: those that may be left out in brackets."""
    for name, one in list(inspect.signature(method).parameters.items())[1:]:  # type: ignore[arg-type]
        text = f"`{name}`: {described(one.annotation)}"
        yield text if one.default is one.empty else f"[{text}]"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


TABLES = {
    "options": (PACKAGE / "cli" / "README.md", options),
    "handler-options": (PACKAGE / "handlers" / "README.md", handler_options),
    "conditions": (PACKAGE / "inbox" / "README.md", conditions),
    "operations": (PACKAGE / "client" / "README.md", operations),
}
"""Each by its mark: its page, and what makes its lines."""


def with_table(name: str, text: str) -> str:
    """Return the text of a page with a table as the code has it."""
    before, begin, rest = text.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    assert end, f"no part is marked {name}"
    return "".join([before, begin, *(f"{line}\n" for line in TABLES[name][1]()), end, after])


def main() -> None:
    """Print or write the tables."""
    for name, (page, lines) in TABLES.items():
        if sys.argv[1:] == ["--write"]:
            page.write_text(with_table(name, page.read_text(encoding="utf-8")), encoding="utf-8")
        else:
            sys.stdout.write(f"# {page}\n" + "".join(f"{line}\n" for line in lines()))
    for name, text in repository_files().items():
        if sys.argv[1:] == ["--write"]:
            (DEPLOY / name).write_text(text, encoding="utf-8")
        else:
            sys.stdout.write(f"# {DEPLOY / name}\n{text}")


if __name__ == "__main__":
    main()
