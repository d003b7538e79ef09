"""What users can see of billhook and build on, as lines of text: `tests/meta/surface.txt`.

    python tests/meta/surface.py [--write]

Printed, or written to that file, which test_surface.py compares with the code. A change that takes a line
away takes something from users: say why where the change is described.
"""

from __future__ import annotations

import ast
import inspect
import json
import logging
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner
from flask import Flask

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
SOURCE = ROOT / "src" / "billhook"
FILE = Path(__file__).with_name("surface.txt")
if str(TESTS) not in sys.path:
    sys.path.insert(0, str(TESTS))

from billhook import signals, signing  # noqa: E402
from billhook.cli import flask_group, main  # noqa: E402
from billhook.cli.demo import report  # noqa: E402
from billhook.cli.demo_expectations import samples  # noqa: E402
from billhook.cli.output import CliError, UsageConfigError  # noqa: E402
from billhook.effects import metadata as effect_tables  # noqa: E402
from billhook.errors import ConfigError  # noqa: E402
from billhook.events import EVENT_TYPES  # noqa: E402
from billhook.events.inspection import event_json_schema, schema_fields  # noqa: E402
from billhook.handlers.options import OPTIONS as HANDLER_OPTIONS  # noqa: E402
from billhook.inbox.tables.schema import metadata as inbox_tables  # noqa: E402
from billhook.logs import Fields  # noqa: E402
from billhook.metrics import InboxCollector  # noqa: E402
from billhook.sandbox import Sandbox, SandboxOptions  # noqa: E402
from billhook.sandbox.pages.app import _create_app as pages_app  # noqa: E402
from billhook.settings import OPTIONS, Option  # noqa: E402
from billhook.signing.schemes import SCHEMES  # noqa: E402
from billhook.standalone import create_app  # noqa: E402
from support.commands import commands  # noqa: E402
from support.inbox_view import open_inbox  # noqa: E402
from support.pages import PAGES  # noqa: E402
from support.signing import SECRET  # noqa: E402

RECORDED = TESTS / "component" / "cli" / "recorded"
MAPS = {"refused", "by_type", "headers", "params", "addresses", "sample", "identifiers", "options"}
"""Keys of --json below which the keys are data, such as names of headers."""


# --- commands -----------------------------------------------------------------------------------------


def command_lines() -> Iterator[str]:
    """Yield a line for each command, and for each of its arguments and options."""
    for path, command in commands(main, "billhook"):
        yield path
        for param in command.params:
            default = None if callable(param.default) else param.default
            shown = "" if default in (None, False, (), "") or "UNSET" in str(default) else f" = {default}"
            kind = "" if getattr(param, "is_flag", False) else f" {_type_name(param.type)}"
            is_option = isinstance(param, click.Option)
            names = [*param.opts, *param.secondary_opts] if is_option else [param.human_readable_name]
            required = " required" if param.required else ""
            repeated = " repeated" if param.nargs == -1 or (is_option and param.multiple) else ""
            yield f"{path} {' / '.join(names)}{kind}{required}{repeated}{shown}"
    both = {path for path, _ in commands(flask_group)}
    for path, _ in commands(main):
        if path not in both:
            yield f"billhook {path}: not below `flask billhook`"


def _type_name(kind: click.ParamType) -> str:
    if isinstance(kind, click.Choice):
        return "|".join(str(choice) for choice in kind.choices)
    return kind.name.upper()


def exit_code_lines() -> Iterator[str]:
    """Yield the exit codes of errors, and each sentence of a help text or page that tells of one."""
    for error in (click.UsageError, UsageConfigError, CliError):
        yield f"{error.__name__}: {error.exit_code}"
    texts = {path: command.help or "" for path, command in commands(main, "billhook")}
    for place, text in {**texts, **PAGES}.items():
        for sentence in re.split(r"(?<=[.:|])\s", " ".join(text.split())):
            if re.search("exit code|exits? with", sentence, re.IGNORECASE) and place != "CHANGELOG.md":
                yield f"{place}: {sentence}"


# --- the keys of --json -------------------------------------------------------------------------------


def json_lines() -> Iterator[str]:
    """Yield a line for each key of what the commands print with --json, as it is recorded."""
    paths = [path for path, command in commands(main) if not isinstance(command, click.Group)]
    transcripts = "".join(file.read_text() for file in sorted(RECORDED.glob("*.txt")))
    found: set[str] = set()
    for line, printed in re.findall(r"\$ billhook (.+) --json(?! --).*\n((?:[\[\]{} ].*\n)+)", transcripts):
        words = re.sub(r"\b[A-Z_]+=\S* ", "", line)
        for path in paths:
            if f"{words} ".startswith(f"{path} ") and not path.startswith("api "):  # the service's own
                found |= {f"{path}: {key}" for key in _keys(_parsed(printed))}
    with CliRunner().isolation() as (out, *_):
        report(samples(SECRET, datetime.now(UTC))[:1], 1.0, as_json=True)
        found |= {f"demo: {key}" for key in _keys(json.loads(out.getvalue()))}
    yield from sorted(found)


def _parsed(printed: str) -> Any:
    try:
        return json.loads(printed.replace(": MS", ": 0"))
    except ValueError:  # one object on each line
        return [json.loads(line) for line in printed.splitlines()]


def _keys(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _keys(item, f"{path}[]")
    elif isinstance(value, dict) and path.rpartition(".")[2] in MAPS:
        yield f"{path}.*"
    elif isinstance(value, dict):
        for name, below in value.items():
            here = f"{path}.{name}" if path else name
            yield here
            yield from _keys(below, here)


def _write_secret(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


# --- the rest -----------------------------------------------------------------------------------------


def option_lines() -> Iterator[str]:
    """Yield each option with its unit and its default, and its values where it is a choice."""
    for option in OPTIONS:
        unit = f" {option.unit}" if option.unit else ""
        yield f"{option.key} = {option.default_text or '(none)'}{unit}{_choices(option)}"


def _choices(option: Option) -> str:
    try:
        option.parse(option.key, "no such value")
    except ConfigError as error:
        found = re.search("it must be one of (.*)", str(error))
        return f": {found[1]}" if found else ""
    return ""


def handler_option_lines() -> Iterator[str]:
    """Yield each option of a handler, with its key in the JSON of `billhook handlers` if that is another."""
    for name, option in HANDLER_OPTIONS.items():
        taken = "on" if option.for_types else "on, on_any, on_unknown"
        yield f"{name}: {taken}{f', {option.key}' if option.key else ''}"


def scheme_lines() -> Iterator[str]:
    """Yield each scheme of `billhook.signing` with its arguments, and its name if options describe it."""
    for name in signing.__all__:
        kind = getattr(signing, name)
        if isinstance(kind, type) and issubclass(kind, signing.Scheme) and kind is not signing.Scheme:
            arguments = ", ".join(inspect.signature(kind).parameters)
            yield f"{name}({arguments}){f' = {kind.name}' if kind.name in SCHEMES else ''}"


def event_lines() -> Iterator[str]:
    """Yield each field of each event type, by its name on the wire, with its type."""
    for name, model in EVENT_TYPES.items():
        yield name
        for row in schema_fields(event_json_schema(model)):
            yield f"{name}: {row['name']} {row['type']}"


def import_lines() -> Iterator[str]:
    """Yield each name of billhook that a page's example imports."""
    found: set[str] = set()
    for text in PAGES.values():
        for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            found |= _imported(code)
        for code in re.findall(r"`(from billhook[\w.]* import [^`]+)`", text):
            found |= _imported(code)
    yield from sorted(found)


def _imported(code: str) -> set[str]:
    try:
        tree = ast.parse(code)
    except SyntaxError:  # a part of a file
        lines = re.findall(r"^from billhook[\w.]* import [\w, ]+$", code, re.MULTILINE)
        tree = ast.parse("\n".join(lines))
    return {
        f"from {node.module} import {alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "billhook"
        for alias in node.names
    }


def signal_lines() -> Iterator[str]:
    """Yield each signal with the arguments of its subscribers, as the page of handlers has them."""
    (table,) = re.findall(
        r"\| signal of `billhook.signals` .*\n((?:\|.*\n)+)", PAGES["src/billhook/handlers/README.md"]
    )
    told = {}
    for line in table.splitlines()[1:]:
        name, arguments = line.strip("|").split("|")[:2]
        told[re.findall("`(.+?)`", name)[0]] = ", ".join(re.findall("`(.+?)`", arguments))
    for name in signals.__all__:
        if name not in ("emit", "event_signal"):
            yield f"{name}: {told[name]}"
    for model in EVENT_TYPES.values():
        yield f"{model.signal_name}: event, delivery"
    yield "unknown_event: event, delivery"


def metric_lines() -> Iterator[str]:
    """Yield each metric with its kind and its labels."""
    with tempfile.TemporaryDirectory() as name:
        inbox = open_inbox(Path(name) / "billhook.db")
        for family in InboxCollector(lambda: inbox).collect():
            yield f"{family.name} {family.type} {', '.join(family._labelnames)}".rstrip()
        inbox.close()


def logger_lines() -> Iterator[str]:
    """Yield the name of each logger, and each field of records."""
    names = set()
    for path in SOURCE.rglob("*.py"):
        names |= set(re.findall(r'getLogger\("(billhook[\w.]*)"\)', path.read_text()))
    yield from sorted(names)
    for name in Fields.__annotations__:
        yield f"field {name}"


def route_lines() -> Iterator[str]:
    """Yield each route of the standalone receiver with all it can serve, and of the sandbox."""
    with tempfile.TemporaryDirectory() as name:
        for file, text in (
            ("users", "ops:a-password-of-many-characters"),
            ("token", "a-token-of-many-characters"),
        ):
            _write_secret(Path(name) / file, text)
        receiver = create_app(
            {
                "BILLHOOK_SECRETS": SECRET,
                "BILLHOOK_ENGINE": "worker",
                "BILLHOOK_INBOX_URL": f"sqlite:///{name}/billhook.db",
                "BILLHOOK_DASHBOARD": f"{name}/users",
                "BILLHOOK_METRICS_TOKEN_FILE": f"{name}/token",
            }
        )
        yield from _routes("receiver", receiver)
        receiver.extensions["billhook"].close()
    yield from sandbox_routes()


def sandbox_routes() -> Iterator[str]:
    """Yield the routes of the sandbox: the service's API, the control API and the pages."""
    sandbox = Sandbox(SandboxOptions())
    try:
        yield from _routes("sandbox", sandbox.app())
        yield from _routes("sandbox", pages_app(lambda _: None, b"key"))
    finally:
        sandbox.close()


def _routes(of: str, app: Flask) -> Iterator[str]:
    rules = {
        f"{of} {method} {rule.rule}"
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    yield from sorted(rules)


def table_lines() -> Iterator[str]:
    """Yield each table with its columns."""
    for metadata in (inbox_tables, effect_tables):
        for table in metadata.sorted_tables:
            yield f"{table.name}: {', '.join(column.name for column in table.columns)}"


def package_lines() -> Iterator[str]:
    """Yield what the package installs: extras, commands, entry points, and pytest's fixtures."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name in project["optional-dependencies"]:
        yield f"extra {name}"
    for group, entries in {"scripts": project["scripts"], **project["entry-points"]}.items():
        for name, target in entries.items():
            yield f"{group} {name} = {target}"
    plugin = (ROOT / "src" / "billhook_pytest.py").read_text()
    for name in re.findall(r"(?:@pytest.fixture\n+def |\n)(\w+)(?: = _of_app)?\(", plugin):
        yield f"fixture {name}"


PARTS = {
    "commands and options": command_lines,
    "exit codes": exit_code_lines,
    "keys of --json": json_lines,
    "options": option_lines,
    "options of handlers": handler_option_lines,
    "schemes": scheme_lines,
    "fields of events": event_lines,
    "imports of the pages": import_lines,
    "signals": signal_lines,
    "metrics": metric_lines,
    "loggers": logger_lines,
    "routes": route_lines,
    "tables": table_lines,
    "package": package_lines,
}


def surface() -> str:
    """Return the whole surface: a heading for each part, a line for each thing."""
    return "\n".join(
        f"# {title}\n" + "".join(f"{line}\n" for line in lines()) for title, lines in PARTS.items()
    )


if __name__ == "__main__":
    logging.disable()  # the deliveries of the scenario fail on purpose
    if "--write" in sys.argv:
        FILE.write_text(surface())
    else:
        sys.stdout.write(surface())
