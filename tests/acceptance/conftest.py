"""What these tests found, in one table at the end: python -m pytest tests/acceptance --long -q."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from support.acceptance.stack import Stack, stack_on

LONG_SECONDS = 1_800


@dataclass(slots=True)
class Figure:
    """`found` of `of`, where 0 is what billhook promises, over so many times of `what_was_done`."""

    what: str
    database: str
    found: int = 0
    of: int = 0
    times: int = 0
    what_was_done: str = ""
    seconds: float = 0.0


FIGURES = pytest.StashKey[dict[tuple[str, str], Figure]]()


class Figures:
    """Takes the figures of one test."""

    def __init__(self, config: pytest.Config, database: str) -> None:
        self._found = config.stash[FIGURES]
        self._database = database
        self._began = time.monotonic()

    def add(self, what: str, found: int, of: int, times: int, what_was_done: str) -> None:
        """To be called before the test judges it; those of the same words are added up."""
        figure = self._found.setdefault((what, self._database), Figure(what, self._database))
        figure.found += found
        figure.of += of
        figure.times += times
        figure.what_was_done = what_was_done
        figure.seconds = round(figure.seconds + time.monotonic() - self._began, 1)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FIGURES] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.timeout(LONG_SECONDS))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    figures = config.stash[FIGURES].values()
    if not figures:
        return
    terminalreporter.section("what acceptance found")
    for figure in figures:
        counted = f"{figure.found} of {figure.of:,}"
        done = f"over {figure.times:,} {figure.what_was_done}"
        line = f"{figure.what:<30} {figure.database:<10} {counted:>14}  {done:<34} {figure.seconds:>5.0f} s"
        terminalreporter.write_line(line)
    path = os.environ.get("BILLHOOK_TEST_FIGURES")
    if path:
        Path(path).write_text(json.dumps([asdict(figure) for figure in figures], indent=1) + "\n")


@pytest.fixture
def long(request: pytest.FixtureRequest) -> bool:
    """Whether to work with the numbers that the README tells, or with few."""
    return bool(request.config.getoption("--long"))


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Figures:
    """Where a test leaves what it counted. One that does not ask for `inbox_url` is about SQLite."""
    both = "inbox_url" in request.fixturenames
    url = request.getfixturevalue("inbox_url") if both else "sqlite:"
    return Figures(request.config, re.split(r"[+:]", url)[0])


@pytest.fixture
def stack(tmp_path: Path, inbox_url: str) -> Iterator[Stack]:
    """Processes over a new inbox, none of them started yet."""
    with stack_on(tmp_path, inbox_url) as made:
        yield made
