"""A folder with the files of a deployment: write it, and compare it with what is installed."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from billhook.basics.file_modes import open_new
from billhook.deployment.options_file import parse_options
from billhook.deployment.plan import DeploymentPlan
from billhook.deployment.rendering import DeployFile, files_of
from billhook.errors import ConfigError

PLAN_FILE = "deploy.json"


@dataclass(frozen=True)
class Deployment:
    """A plan, with the files of the app's own that went into it."""

    plan: DeploymentPlan
    own_gunicorn: str | None = None
    own_dockerignore: str = ""

    def files(self) -> list[DeployFile]:
        """Return its files, as this version of billhook makes them."""
        return [*files_of(self.plan, self.own_gunicorn, self.own_dockerignore)]

    def as_file(self) -> DeployFile:
        """Return the file from which `read_deployment` makes it."""
        own = {"own_gunicorn": self.own_gunicorn, "own_dockerignore": self.own_dockerignore}
        return DeployFile(
            PLAN_FILE, json.dumps({"plan": self.plan.to_json(), **own}, indent=1) + "\n", mode=0o640
        )


def read_deployment(folder: Path) -> Deployment | None:
    """Return what a folder was written from; None if it has no such file. Raises ConfigError."""
    try:
        text = (folder / PLAN_FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{folder / PLAN_FILE} cannot be read: {error}") from None
    wrong = ConfigError(f"{folder / PLAN_FILE} was changed or is damaged: remove it, and run deploy init")
    try:
        values: Any = json.loads(text)
    except ValueError:
        raise wrong from None
    if not isinstance(values, dict) or values.keys() != {"plan", "own_gunicorn", "own_dockerignore"}:
        raise wrong
    gunicorn, ignored = values["own_gunicorn"], values["own_dockerignore"]
    if not isinstance(gunicorn, str | None) or not isinstance(ignored, str):
        raise wrong
    return Deployment(DeploymentPlan.from_json(values["plan"]), gunicorn, ignored)


@dataclass(frozen=True)
class Written:
    """A file, and whether it was written, was there, or is another one that was kept."""

    name: str
    what: str


def write_files(folder: Path, files: Iterable[DeployFile]) -> Iterator[Written]:
    """Write the files that are not there yet into a folder. Raises ConfigError; overwrites nothing."""
    try:
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        for file in files:
            yield Written(file.name, _write(folder / file.name, file))
    except OSError as error:
        raise ConfigError(f"{error.filename or folder} cannot be written: {error.strerror}") from None


def _write(path: Path, file: DeployFile) -> str:
    try:
        descriptor = open_new(path, file.mode)
    except FileExistsError:
        return "as it was" if _text(path) == file.text else "kept, and differs"
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        os.fchmod(stream.fileno(), file.mode)  # but for the umask, which may have taken what a wrapper needs
        stream.write(file.text)
    return "written"


@dataclass(frozen=True)
class Compared:
    """A file of a deployment, compared with what this version makes and with what is installed."""

    name: str
    place: str | None
    upgrade: str
    """How the folder's file differs from what this version of billhook makes: "", "new" or "differs"."""
    installed: str
    """How the installed one differs from the folder's: "", "missing", "differs" or "unreadable"."""
    lines: Sequence[str]


def compare(folder: Path, deployment: Deployment, root: Path) -> Iterator[Compared]:
    """Compare a folder with what this version makes, and with what is installed below `root`."""
    for file in deployment.files():
        there = _text(folder / file.name)
        upgrade = "new" if there is None else "differs" if there != file.text else ""
        mine = file.text if there is None else there
        lines = [] if there is None else _differences(file, there, file.text, "folder", "this version")
        installed = ""
        if file.place is not None:
            place = root / file.place.lstrip("/")
            try:
                other: str | None = place.read_text(encoding="utf-8")
            except FileNotFoundError:
                installed, other = "missing", None
            except (OSError, UnicodeDecodeError):
                installed, other = "unreadable", None
            if other is not None and other != mine:
                installed = "differs"
                lines += _differences(file, other, mine, "installed", "folder")
        yield Compared(file.name, file.place, upgrade, installed, lines)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _differences(file: DeployFile, old: str, new: str, before: str, after: str) -> list[str]:
    """Return the lines that differ; of options the names alone, for the installed file may have secrets."""
    if not file.is_options:
        lines = difflib.unified_diff(
            old.splitlines(),
            new.splitlines(),
            f"{file.name} ({before})",
            f"{file.name} ({after})",
            lineterm="",
        )
        return list(lines)
    a, b = parse_options(old), parse_options(new)
    said = {
        "lacks": sorted(b.keys() - a.keys()),
        "alone has": sorted(a.keys() - b.keys()),
        "has another value of": sorted(name for name in a.keys() & b.keys() if a[name] != b[name]),
    }
    return [f"{file.name}: the one that is {before} {verb} {', '.join(names)}"
            for verb, names in said.items() if names]  # fmt: skip
