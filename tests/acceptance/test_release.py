"""What a release consists of: a wheel and an sdist that the index takes, that install and run the demo."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from functools import partial
from pathlib import Path

import pytest

from support.processes import output_of, strangers_environment

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


call = partial(output_of, timeout=600)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with both, made from what git has."""
    folder = tmp_path_factory.mktemp("release")
    call("git", "clone", "--quiet", str(ROOT), str(folder / "source"))
    call(sys.executable, "-m", "venv", str(folder / "tools"))
    tools = folder / "tools" / "bin" / "python"
    call(tools, "-m", "pip", "install", "--quiet", "build", "twine")
    call(tools, "-m", "build", "--outdir", str(folder / "dist"), cwd=folder / "source")
    call(tools, "-m", "twine", "check", "--strict", *map(str, (folder / "dist").iterdir()))
    return folder / "dist"


def lowest(*extras):
    """The lowest versions that the project allows, as pip's constraints."""
    wanted = [*PROJECT["dependencies"]]
    for extra in extras:
        wanted += PROJECT["optional-dependencies"][extra]
    others = [re.sub(r"\[[^]]*\]", "", each) for each in wanted if not each.startswith("billhook[")]
    by_name = dict(each.split(">=") for each in others)  # an extra may want more than the dependencies
    return [f"{name}=={version}" for name, version in by_name.items()]


@pytest.mark.parametrize(
    ("kind", "extras", "at_lowest"),
    [
        ("whl", ("serve",), False),
        ("tar.gz", ("postgres", "client", "metrics", "jwt", "sandbox"), False),
        ("whl", ("serve",), True),
    ],
)
def test_it_installs_and_runs_its_demo(built, tmp_path, kind, extras, at_lowest):
    (package,) = built.glob(f"*.{kind}")
    call(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    programs = tmp_path / "venv" / "bin"
    wanted = f"billhook[{','.join(extras)}] @ {package.as_uri()}" if extras else str(package)
    constraints = tmp_path / "lowest.txt"
    constraints.write_text("\n".join(lowest(*extras)) if at_lowest else "")
    call(programs / "pip", "install", "--quiet", "--constraint", str(constraints), wanted)
    environ = strangers_environment(PATH=f"{programs}:{os.environ['PATH']}")

    version = call(programs / "billhook", "--version", env=environ, cwd=tmp_path)
    demo = call(programs / "billhook", "demo", env=environ, cwd=tmp_path)

    assert version == f"billhook, version {PROJECT['version']}\n"
    assert "28 of 28" in demo
    assert Path(re.search(r"manual: (\S+),", call(programs / "billhook", "--help", env=environ))[1]).is_file()
