"""A machine with nothing but Python, its venv and git: the README's commands, and the build of the image.

Each of Debian's suites has another Python. mmdebstrap makes the roots; apt and pip fetch what they need.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.acceptance.bare_root import BareRoot
from support.dockerfile import of, stages
from support.pages import ROOT, block
from support.timeouts import scaled

pytestmark = pytest.mark.long
MACHINES = [("bookworm", "3.11"), ("bookworm", "3.12"), ("trixie", "3.13"), ("sid", "3.14")]
"""Debian 12, 13 and the next, each with its Python; none has 3.12."""


@pytest.fixture
def bare_root(tmp_path: Path) -> Iterator[Callable[[str], BareRoot]]:
    """Makes roots, and removes them: each takes some hundred megabytes."""
    made: list[BareRoot] = []

    def make(suite: str) -> BareRoot:
        made.append(BareRoot(tmp_path, suite))
        return made[-1]

    yield make
    for root in made:
        root.remove()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("suite", "python"), MACHINES)
def test_the_readmes_commands_work_word_for_word(bare_root, suite, python):
    root = bare_root(suite)
    if python == "3.12":
        root.add_python(python)
    folder = root.clone(ROOT, "billhook")

    version = root.as_user("python3 --version; ! command -v cc", folder, 60)
    root.as_user(block("command: install"), folder, scaled(600))
    demo = root.as_user(block("command: demo"), folder, scaled(600))
    tests = root.as_user(block("command: test"), folder, scaled(2400))

    assert version.startswith(f"Python {python}.")
    assert "28 of 28 as expected" in demo
    assert re.search(r"\n\d{4} passed, \d+ skipped", tests), tests[-2000:]


def test_the_image_builds_on_a_base_whose_python_has_no_headers(bare_root):
    root = bare_root("trixie")
    root.clone(ROOT, "billhook")
    build, _ = stages()
    (copied,) = of(build, "COPY")
    assert copied == ". /source"
    (root.path / "home/newcomer/billhook").rename(root.path / "source")

    for command in of(build, "RUN"):
        root.run(["sh", "-c", command], scaled(600))

    programs = Path("/opt/billhook/bin")
    parser = [str(programs / "python"), "-c", "import gunicorn_h1c"]
    root.run(parser, 60)
    assert root.run([str(programs / "billhook"), "--version"], 60).startswith("billhook, version")
