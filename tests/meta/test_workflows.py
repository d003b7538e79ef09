"""The workflow runs every test in exactly one of its parts."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "tests.yml"


@cache
def jobs() -> dict[str, Any]:
    """Return the jobs of the workflow by their names."""
    return yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]


@cache
def parts() -> dict[str, tuple[list[str], list[str]]]:
    """Return the paths of each part, and those that it leaves out."""
    found = {}
    for row in jobs()["part"]["strategy"]["matrix"]["include"]:
        words = row["paths"].split()
        left_out = [word.removeprefix("--ignore=") for word in words if word.startswith("--ignore=")]
        found[row["part"]] = ([word for word in words if not word.startswith("--")], left_out)
    return found


def parts_of(file: str) -> list[str]:
    def within(folders: list[str]) -> bool:
        return any(file.startswith(f"{folder}/") for folder in folders)

    return [name for name, (paths, left_out) in parts().items() if within(paths) and not within(left_out)]


def test_every_test_is_in_one_part():
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")]

    assert {file: parts_of(file) for file in files if len(parts_of(file)) != 1} == {}


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("tests/unit/signing/test_search.py", ["core"]),
        ("tests/unit/pages/test_text.py", ["pages"]),
        ("tests/somewhere/test_new.py", []),
    ],
)
def test_control_the_part_of_a_file(file, part):
    assert parts_of(file) == part


def test_the_job_on_macos_runs_whole_folders_on_sqlite_alone():
    (command,) = [step["run"] for step in jobs()["macos"]["steps"] if "pytest" in step.get("run", "")]
    folders = [word for word in command.split() if word.startswith("tests/")]

    assert folders == ["tests/unit", "tests/component", "tests/contract"]
    assert all((ROOT / folder).is_dir() for folder in folders)
    assert '-k "not postgres"' in command


def test_the_parser_in_c_is_tested_where_nothing_may_be_skipped():
    workflow = [step.get("run", "") for step in jobs()["part"]["steps"]]

    assert "'.[fast,test]'" in "\n".join(workflow)
    assert "'.[fast,test]'" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_each_folder_that_a_part_names_exists():
    named = [folder for paths, left_out in parts().values() for folder in (*paths, *left_out)]

    assert [folder for folder in named if not (ROOT / folder).is_dir()] == []
