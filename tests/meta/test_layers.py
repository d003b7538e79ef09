"""Who may import whom: import-linter's contracts in pyproject.toml, and that they would notice."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from support.processes import run_command

ROOT = Path(__file__).parents[2]
LINT = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"


def lint(source: Path) -> subprocess.CompletedProcess[str]:
    """Lint the billhook found in `source` by the contracts of this project."""
    command = [sys.executable, "-c", LINT, "--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    environ = {**os.environ, "PYTHONPATH": str(source)}
    return run_command(command, cwd=source, env=environ)


def contracts() -> list[dict[str, Any]]:
    """Return the contracts in pyproject.toml."""
    found: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
        "importlinter"
    ]["contracts"]
    return found


def contracted_layers() -> list[set[str]]:
    """Return the layers of the package in pyproject.toml, top to bottom."""
    (layers,) = [contract["layers"] for contract in contracts() if contract["id"] == "layers"]
    return [set(layer.split(" | ")) for layer in layers]


def test_imports_follow_the_layers():
    result = lint(ROOT / "src")

    assert result.returncode == 0, result.stdout
    assert f"{len(contracts())} kept, 0 broken" in result.stdout


def test_the_architecture_page_names_the_layers_and_every_top_level_module():
    page = (ROOT / "src" / "billhook" / "README.md").read_text()
    (paragraph,) = re.findall(r"^Layers, top to bottom: (.+?)\.\n\n", page, re.DOTALL | re.MULTILINE)
    described = set(re.findall(r"`(\w+)/?`", page.partition("Layers, top to bottom")[0]))

    assert [set(re.findall(r"`(\w+)`", layer)) for layer in paragraph.split("·")] == contracted_layers()
    assert set.union(*contracted_layers()) - described == set()


HIDDEN = {
    "layers": ("effects.py", "import billhook.inbox"),
    "sql": ("engines/dispatcher.py", "import psycopg"),
    "sqlite-library": ("inbox/counting/retention.py", "import sqlite3"),
    "http": ("handlers/handler.py", "from flask import current_app"),
    "bytes": ("inbox/inbox.py", "from billhook.events import parse_event"),
    "receiver": ("receiver/delivery_rules.py", "import billhook.handlers"),
    "inbox-layers": ("inbox/running/leases.py", "import billhook.inbox.watching.issues"),
    "receiver-inbox": ("receiver/wsgi.py", "from billhook.inbox.reading import deliveries"),
    "client": ("client/session.py", "import billhook.handlers"),
    "witness": ("sandbox/storage/database.py", "import billhook.inbox"),
    "sandbox-layers": ("sandbox/operations.py", "from billhook.sandbox.sandbox import Sandbox"),
    "pages": ("pages/charts.py", "import billhook.inbox"),
    "circles": ("client/transport.py", "if TYPE_CHECKING: import billhook.client.session"),
}
"""For each contract an import that breaks it: the module that has it inside a function, and the line."""


def test_control_a_hidden_import_against_each_contract_is_noticed(tmp_path):
    shutil.copytree(
        ROOT / "src" / "billhook", tmp_path / "billhook", ignore=shutil.ignore_patterns("__pycache__")
    )
    for module, line in HIDDEN.values():
        with (tmp_path / "billhook" / module).open("a") as stream:
            stream.write(f"\n\ndef _hidden():\n    {line}\n")

    _, *parts = re.split(r"\n(.+)\n-{10,}\n", lint(tmp_path).stdout.partition("Broken contracts")[2])
    broken = dict(zip(parts[::2], parts[1::2], strict=True))
    unnoticed = [
        contract["name"]
        for contract in contracts()
        if f".{Path(HIDDEN[contract['id']][0]).stem} ->" not in broken.get(contract["name"], "")
    ]
    assert unnoticed == []
