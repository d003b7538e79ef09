"""Each commit has a version of its own, by which pip knows one from another, and replaces billhook alone."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.version import Version

from billhook.basics import version as own
from billhook.doctor.configuration import about_version
from support.pages import ROOT
from support.processes import output_of

GIT = ("git", "-c", "user.name=Ann", "-c", "user.email=ann@example.com")


@pytest.fixture(autouse=True)
def no_build_version(monkeypatch):
    monkeypatch.delenv("BILLHOOK_BUILD_VERSION", raising=False)


def commit(folder: Path, moment: str) -> str:
    """Commit all of a folder at a time; returns the commit."""
    environ = {**os.environ, "GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment}
    for command in (
        ("init", "--quiet"),
        ("add", "--all"),
        ("commit", "--quiet", "--allow-empty", "-m", "one"),
    ):
        subprocess.run([*GIT, *command], cwd=folder, env=environ, check=True)
    return output_of("git", "rev-parse", "HEAD", cwd=folder).strip()


def version_of(folder: Path, **environ: str) -> str:
    return output_of(
        sys.executable, str(folder / "src" / "billhook_version.py"), env={**os.environ, **environ}
    ).strip()


@pytest.fixture
def checkout(tmp_path) -> Path:
    folder = tmp_path / "checkout"
    (folder / "src").mkdir(parents=True)
    shutil.copy(ROOT / "src" / "billhook_version.py", folder / "src")
    return folder


def test_each_commit_has_a_version_above_the_one_before_and_above_the_release(checkout):
    first = commit(checkout, "2026-01-15T13:00:00+0100")
    versions = [version_of(checkout)]
    commit(checkout, "2026-01-15T12:00:01+0000")
    versions.append(version_of(checkout))

    assert versions[0] == f"0.1.0.post20260115120000+g{first[:10]}"
    assert Version("0.1.0") < Version(versions[0]) < Version(versions[1])


def test_a_shallow_clone_and_one_of_another_owner_have_the_same(checkout, tmp_path):
    commit(checkout, "2026-01-15T12:00:00+0000")
    commit(checkout, "2026-01-15T13:00:00+0000")
    subprocess.run(
        ["git", "clone", "-q", "--depth=1", checkout.as_uri(), str(tmp_path / "shallow")], check=True
    )
    if os.geteuid() == 0:
        other = pwd.getpwnam("nobody")
        for path in (checkout, *checkout.rglob("*")):
            os.chown(path, other.pw_uid, other.pw_gid)

    assert version_of(tmp_path / "shallow") == version_of(checkout)


@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a repository of its user's"])
def test_a_copy_without_its_history_says_so(checkout, tmp_path, inside):
    if inside:
        commit(tmp_path, "2026-01-15T12:00:00+0000")

    assert version_of(checkout) == "0.1.0+unknown"
    assert version_of(checkout, BILLHOOK_BUILD_VERSION="0.1.0.post5+gabc") == "0.1.0.post5+gabc"
    assert version_of(checkout, PATH="/nowhere") == "0.1.0+unknown"


@pytest.mark.parametrize(
    ("found", "text"),
    [("0.1.0.post5+gabc", "billhook 0.1.0.post5+gabc"), ("0.1.0+unknown", "billhook, version unknown")],
)
def test_it_is_said_in_words(monkeypatch, found, text):
    monkeypatch.setattr("importlib.metadata.version", lambda _: found)
    own.installed_version.cache_clear()
    try:
        assert own.version_text() == text
    finally:
        own.installed_version.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("pip", ["pip==25.1.1", "pip"], ids=["of Debian 13", "of today"])
def test_an_upgrade_replaces_billhook_alone(tmp_path, pip):
    source = tmp_path / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    python = tmp_path / "venv" / "bin" / "python"
    output_of(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    install = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    output_of(*install, "--upgrade", pip)
    requirements = tmp_path / "requirements.txt"

    def installed(number: int, others: str) -> dict[str, str]:
        """Install the next commit; return the version of each package."""
        sha = commit(source, f"2026-01-15T12:00:0{number}+0000")
        requirements.write_text(f"{others}\nbillhook @ git+{source.as_uri()}@{sha}\n")
        output_of(*install, "--requirement", str(requirements))
        listed = output_of(str(python), "-m", "pip", "list", "--format=freeze")
        return dict(re.findall(r"(?m)^([^=\s]+)==(\S+)$", listed))

    # Older than what an index has today, so that one that is replaced is seen.
    pinned = "flask==3.1.3\nsqlalchemy==2.0.40\nwerkzeug==3.1.3"
    first = installed(0, pinned)
    second = installed(1, pinned)
    third = installed(2, "flask\nsqlalchemy\nwerkzeug")

    versions = [each.pop("billhook") for each in (first, second, third)]
    assert len(set(versions)) == 3
    assert first == second == third
    assert first["SQLAlchemy" if "SQLAlchemy" in first else "sqlalchemy"] == "2.0.40"


def test_doctor_has_a_note_where_it_is_unknown(monkeypatch):
    monkeypatch.setattr("billhook.doctor.configuration.installed_version", lambda: None)
    monkeypatch.setattr("billhook.doctor.configuration.version_text", lambda: "billhook, version unknown")

    (note,) = about_version(None)

    assert (note.level, note.what) == ("note", "billhook, version unknown")
    assert "python3 src/billhook_version.py" in note.remedy
