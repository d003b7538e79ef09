"""What the packages of senders sign: recordings, and how they are made.

`tests/contract/senders.json` has one request of each sender: its signature is what the sender's own package
made (`signed_by` is "package"), or what billhook made and that package verified ("billhook"), in the version
that it names. `PYTHONPATH=tests python -m support.sender_packages` has these versions play them again, and
prints what differs; with `--write` the newest versions play, and the file is written. It needs node, npm, and
connections to PyPI and npm. The secrets are sentences, or a published example, and open nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from support.processes import output_of

FILE = Path(__file__).parents[2] / "contract" / "senders.json"
HERE = Path(__file__).parent
INSTALL_SECONDS = 600


@dataclass(frozen=True)
class Recording:
    """One signed request of a sender. `event_type` and `prints` are what its recipe has to find in it."""

    name: str
    registry: str
    package: str
    version: str
    signed_by: str
    secret: str
    at: int
    event_type: str
    prints: str
    headers: Mapping[str, str]
    body: str

    @property
    def moment(self) -> datetime:
        """When it was signed."""
        return datetime.fromtimestamp(self.at, UTC)

    @property
    def changed(self) -> str:
        """The body with one other byte."""
        assert self.body.count("42") >= 1
        return self.body.replace("42", "43", 1)


def read() -> dict[str, Recording]:
    """The recordings by name."""
    recorded = json.loads(FILE.read_text(encoding="utf-8"))
    return {name: Recording(name=name, **facts) for name, facts in recorded.items()}


def write(recordings: Mapping[str, Recording]) -> None:
    """Write the file, whose diff shows which signature or version changed."""
    facts = {name: asdict(one) for name, one in recordings.items()}
    for each in facts.values():
        del each["name"]
    FILE.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def play(
    folder: Path, recordings: Mapping[str, Recording], *, newest: bool = False
) -> dict[str, dict[str, Any]]:
    """What the packages say of each: `version`, `signed` headers or None, `verified`, `verified_changed`.

    They are installed into `folder`, in the recordings' versions or in the newest ones.
    """
    players = {
        "pypi": (_install_from_pypi, folder / "venv" / "bin" / "python", HERE / "play.py"),
        "npm": (_install_from_npm, Path("node"), folder / "play.mjs"),
    }
    answers: dict[str, dict[str, Any]] = {}
    for registry, (install, program, script) in players.items():
        own = [one for one in recordings.values() if one.registry == registry]
        install(folder, {one.package: "" if newest else one.version for one in own})
        asked = json.dumps([{**asdict(one), "changed": one.changed} for one in own])
        answers |= json.loads(_run(program, script, cwd=folder, input=asked))
    return answers


def differences(recordings: Mapping[str, Recording], answers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Where a package does not say what is recorded."""
    found = []
    for name, one in recordings.items():
        said = answers[name]
        if said["signed"] is not None and not said["signed"].items() <= one.headers.items():
            found.append(f"{name}: {one.package} {said['version']} signs {said['signed']}")
        if (said["signed"] is None) != (one.signed_by == "billhook"):
            does = "signs nothing" if said["signed"] is None else "signs"
            found.append(
                f"{name}: {one.package} {said['version']} {does}, and it is signed by {one.signed_by}"
            )
        if said["verified"] is not True:
            found.append(f"{name}: {one.package} {said['version']} refuses what is recorded")
        if said["verified_changed"] is not False:
            found.append(f"{name}: {one.package} {said['version']} verifies a changed body")
    return found


def _install_from_pypi(folder: Path, versions: Mapping[str, str]) -> None:
    _run(sys.executable, "-m", "venv", folder / "venv")
    named = [f"{package}=={version}" if version else package for package, version in versions.items()]
    _run(folder / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet", *named)


def _install_from_npm(folder: Path, versions: Mapping[str, str]) -> None:
    named = [f"{package}@{version or 'latest'}" for package, version in versions.items()]
    options = ("--no-audit", "--no-fund", "--ignore-scripts", "--prefix", folder)
    _run("npm", "install", *options, *named, cwd=folder)
    # A module finds packages beside itself.
    (folder / "play.mjs").write_text((HERE / "play.mjs").read_text(encoding="utf-8"), encoding="utf-8")


def _run(*command: str | Path, **options: Any) -> str:
    return output_of(*command, timeout=INSTALL_SECONDS, **options)


def main(folder: Path, *, newest: bool) -> int:
    """Play the recordings; with `newest`, write what the newest versions sign."""
    recordings = read()
    answers = play(folder, recordings, newest=newest)
    if newest:
        for name, said in answers.items():
            signed = {**recordings[name].headers, **(said["signed"] or {})}
            recordings[name] = replace(recordings[name], version=said["version"], headers=signed)
        write(recordings)
    found = differences(recordings, answers)
    sys.stdout.writelines(f"{each}\n" for each in found)
    return int(bool(found))
