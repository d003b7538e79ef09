"""The statements that billhook executes on an inbox: who executes them, and the indexes that they use."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import billhook.inbox
from billhook.inbox import Inbox
from support.query_plans import listening

FOLDER = Path(billhook.inbox.__file__).parent
EXECUTING = {"execute", "exec_driver_sql", "execute_each", "fetch", "apply"}
OF_HELPERS = re.compile(r"(sqlite|postgres)/|tables/sql\.py|inbox\.py Inbox\.(fetch|apply)$")
"""They execute what another module asks for."""
OF_CONNECTIONS = re.compile(
    "(sqlite|postgres)/(backup|clock|database|driver|file|library|roles|waker).py|migrations/|tables/revision.py"
)
"""Not of deliveries and runs: how a connection is opened, a schema upgraded, a transaction begun."""


@dataclass
class Executed:
    """What was executed: for each statement the functions that did it, and the first parameters of it."""

    statements: dict[str, tuple[set[str], Any]] = field(default_factory=dict)
    lines: set[tuple[str, int]] = field(default_factory=set)
    """The modules of the inbox, with the lines at which a function was when it executed one."""


@contextmanager
def executed_on(inbox: Inbox) -> Iterator[Executed]:
    """Collect what is executed on an inbox while the block lasts."""
    found = Executed()
    schema = inbox.database.schema

    def record(_connection: Any, cursor: Any, text: str, parameters: Any, context: Any, many: bool) -> None:
        own = list(_frames())
        if not own or OF_CONNECTIONS.match(own[0].module):
            return
        found.lines.update((frame.module, frame.line) for frame in own)
        first = next((frame.name for frame in own if not OF_HELPERS.match(frame.name)), own[-1].name)
        text = text if schema is None else re.sub(rf'"?{schema}"?\.', "billhook.", text)
        by, _ = found.statements.setdefault(text, (set(), parameters[0] if many else parameters))
        by.add(first)

    with listening(record):
        yield found


class _Frame(NamedTuple):
    module: str
    function: str
    line: int

    @property
    def name(self) -> str:
        return f"{self.module} {self.function}"


def _frames() -> Iterator[_Frame]:
    """The functions of the inbox that are being executed, innermost first."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(FOLDER):
            function = frame.f_code.co_qualname.partition(".<locals>")[0]
            yield _Frame(path.relative_to(FOLDER).as_posix(), function, frame.f_lineno)
        frame = frame.f_back


def never_executed(lines: Set[tuple[str, int]]) -> list[str]:
    """The places of the inbox's source at which a statement is executed, but for these lines."""
    found = []
    for path in sorted(FOLDER.rglob("*.py")):
        module = path.relative_to(FOLDER).as_posix()
        for node in ast.walk(ast.parse(path.read_text())) if not OF_CONNECTIONS.match(module) else ():
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", None))
                its_lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                if name in EXECUTING and lines.isdisjoint((module, line) for line in its_lines):
                    found.append(f"{module}:{node.lineno}")
    return found


# --- as text ----------------------------------------------------------------------------------------------


def listed(inbox: Inbox, found: Executed) -> str:
    """All statements as a text, under the functions that execute them, with the indexes of their plans."""
    parts = []
    with inbox.database.read() as connection:
        if inbox.database.schema:
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
            connection.exec_driver_sql("SET LOCAL enable_bitmapscan = off")
        for text, (by, parameters) in sorted(
            found.statements.items(), key=lambda each: (sorted(each[1][0]), each[0])
        ):
            plan = _plan(inbox, connection, text, parameters)
            lines = [
                *(f"-- {name}" for name in sorted(by)),
                *(line.rstrip() for line in text.strip().splitlines()),
            ]
            parts.append("\n".join([*lines, *(f"--> {step}" for step in plan)]))
    return "\n\n".join(parts) + "\n"


def _plan(inbox: Inbox, connection: Any, text: str, parameters: Any) -> list[str]:
    if not text.lstrip().startswith(("SELECT", "WITH", "UPDATE", "DELETE", "INSERT")):
        return []
    if inbox.database.schema:
        text = text.replace("billhook.", f"{inbox.database.schema}.")
        plan = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {text}", parameters).scalar_one()
        return sorted(set(_accesses(plan[0]["Plan"])))
    steps = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", parameters).all()
    return [step[-1] for step in steps if re.match("SCAN|SEARCH", step[-1])]


def _accesses(node: Mapping[str, Any]) -> Iterator[str]:
    # The server's own tables have what other tests make in it.
    if "Index Name" in node and not node["Index Name"].startswith("pg_"):
        yield f"{node['Relation Name']}: {node['Index Name']}"
    elif node["Node Type"] == "Seq Scan" and not node["Relation Name"].startswith("pg_"):
        yield f"{node['Relation Name']}: all rows"
    for child in node.get("Plans", ()):
        yield from _accesses(child)


def without_plans(text: str) -> str:
    """The same without the plans, which another version of the database may make otherwise."""
    return re.sub("(?m)^--> .*\n", "", text)
