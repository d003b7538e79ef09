"""Who may import whom: import-linter's contracts in pyproject.toml, and that they would notice."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINT = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"


def lint(source: Path) -> subprocess.CompletedProcess[str]:
    """Lint the billhook found in `source` by the contracts of this project."""
    command = [sys.executable, "-c", LINT, "--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    environ = {**os.environ, "PYTHONPATH": str(source)}
    return subprocess.run(command, cwd=source, env=environ, capture_output=True, text=True, check=False)


def contracted_layers() -> list[set[str]]:
    """Return the layers of the package in pyproject.toml, top to bottom."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["id"] == "layers"]
    return [set(layer.split(" | ")) for layer in layers]


def test_imports_follow_the_layers():
    result = lint(ROOT / "src")

    assert result.returncode == 0, result.stdout
    assert "10 kept, 0 broken" in result.stdout


def test_the_architecture_page_names_the_layers_and_every_top_level_module():
    page = (ROOT / "src" / "billhook" / "README.md").read_text()
    (paragraph,) = re.findall(r"^Layers, top to bottom: (.+?)\.\n\n", page, re.DOTALL | re.MULTILINE)
    described = set(re.findall(r"`(\w+)/?`", page.partition("Layers, top to bottom")[0]))

    assert [set(re.findall(r"`(\w+)`", layer)) for layer in paragraph.split("·")] == contracted_layers()
    assert set.union(*contracted_layers()) - described == set()


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("events/base.py", "from billhook.inbox import Inbox", "Imports go down"),
        ("inbox/inbox.py", "from billhook.events import parse_event", "The inbox stores bytes"),
        ("receiver/intake.py", "import billhook.dispatch", "The receiver knows no handlers"),
        ("signing/scheme.py", "from billhook import events", "Imports go down"),
        ("errors/receiving.py", "import billhook.clock", "Imports go down"),
        ("client/session.py", "import billhook.dispatch", "The client knows the service"),
        ("dispatch/delivery.py", "import billhook.engines", "Imports go down"),
        ("effects.py", "import billhook.inbox", "Imports go down"),
        ("dispatch/call.py", "import sqlalchemy", "Only the inbox speaks SQL"),
        ("engines/dispatcher.py", "import sqlite3", "Only the inbox speaks SQL"),
        ("dispatch/call.py", "from flask import current_app", "Only the receiver and the top level"),
        ("sandbox/operations.py", "from billhook.sandbox.sandbox import Sandbox", "In the sandbox imports"),
        ("sandbox/storage/columns.py", "import billhook.sandbox.webhooks.outbox", "In the sandbox imports"),
        (
            "sandbox/webhooks/outbox.py",
            "import billhook.sandbox.webhooks.sender",
            "No circles between siblings",
        ),
        (
            "sandbox/billing/contracts/contracts.py",
            "import billhook.sandbox.billing.month_end",
            "No circles between siblings",
        ),
        ("pages/charts.py", "import billhook.inbox", "The base of all pages knows nothing"),
        ("wire/model.py", "import billhook.wire.fields", "No circles between siblings"),
        ("inbox/records.py", "import billhook.inbox.planning", "No circles between siblings"),
        (
            "client/transport.py",
            "if TYPE_CHECKING: import billhook.client.session",
            "No circles between siblings",
        ),
    ],
)
def test_control_an_upward_import_inside_a_function_is_noticed(tmp_path, module, line, contract):
    shutil.copytree(
        ROOT / "src" / "billhook", tmp_path / "billhook", ignore=shutil.ignore_patterns("__pycache__")
    )
    with (tmp_path / "billhook" / module).open("a") as stream:
        stream.write(f"\n\ndef _hidden():\n    {line}\n")

    result = lint(tmp_path)

    assert result.returncode == 1
    assert contract in result.stdout[result.stdout.index("Broken contracts") :]
