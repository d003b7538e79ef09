"""The table of the client's operations in its chapter: group, method, arguments, result.

usage: python tests/meta/operations_table.py [--write]     prints it, or writes it into the chapter
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import billhook
from billhook.client.operations import GROUPS

CHAPTER = Path(billhook.__file__).parent / "client" / "README.md"
BEGIN, END = (
    "<!-- operations: python tests/meta/operations_table.py --write -->",
    "<!-- end of operations -->",
)


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


def rows() -> Iterator[str]:
    """The lines of the table; a method that calls several operations has one row, too."""
    yield "| group | method | arguments, in brackets those that may be left out | result |"
    yield "|---|---|---|---|"
    for group, owner in GROUPS.items():
        for name, method in vars(owner).items():
            if not name.startswith("_") and inspect.isfunction(method):
                result = described(str(method.__annotations__["return"]))
                yield f"| `{group}` | `{name}` | {', '.join(arguments(method))} | {result} |"


def with_table(text: str) -> str:
    """The chapter with the table as the code has it."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join([f"{before}{BEGIN}", *rows(), f"{END}{after}"])


def main() -> None:
    """Print or write the table."""
    if sys.argv[1:] == ["--write"]:
        CHAPTER.write_text(with_table(CHAPTER.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        sys.stdout.write("\n".join(rows()) + "\n")


if __name__ == "__main__":
    main()
