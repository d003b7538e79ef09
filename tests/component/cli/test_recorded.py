"""What each command prints of a prepared inbox, and each help text, compared with the texts in `recorded/`.

The files name the commands, each behind `$ billhook`: a new one is a line with which it begins.

    BILLHOOK_TEST_RECORD=1 python -m pytest tests/component/cli/test_recorded.py

records what they print, anew after a change that is meant; what changed is then read in `git diff`. The
clock stands still, ids and keys are given, and what depends on the machine is replaced: paths, ports,
durations.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shlex
import sys
from collections.abc import Iterator
from itertools import dropwhile, takewhile
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import Result

from billhook.cli import main
from billhook.clock import SystemClock
from billhook.inbox import Deliveries
from support.commands import commands
from support.inbox_view import NOON
from support.recorded_inbox import HANDLERS, NOW, answer_reads, fill
from support.signing import APPROVED, OTHER_SECRET, SECRET, signed

FOLDER = Path(__file__).with_name("recorded")
CHECKOUT = Path(__file__).parents[3]
RECORDING = os.environ.get("BILLHOOK_TEST_RECORD") == "1"
OPTION = re.compile("[A-Z_]+=")
COMMANDS = {
    file.stem: re.findall(r"(?m)^\$ billhook (.*)$", file.read_text())
    for file in sorted(FOLDER.glob("*.txt"))
}
"""The command lines of each file, which run one after the other on a copy of the inbox.

A word such as ENGINE=inline before the command is an option; `{failure}` is the id of an issue. An inbox in
/nowhere cannot be used: of it `doctor` tells nothing of the machine.
"""
UNTIL_STOPPED = {
    "capture",
    "demo",
    "deploy diff",
    "deploy init",
    "sandbox",
    "sandbox call",
    "serve",
    "worker",
}
"""Of these the help alone is recorded: they run servers and workers, or call one, or look at the machine."""


# --- the prepared inbox -----------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def fixed(monkeypatch) -> Iterator[None]:
    """The time, the user and the width are the same everywhere; other tests have a module `shop` too."""
    monkeypatch.setattr(SystemClock, "now", staticmethod(lambda: NOW))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="alice"))
    monkeypatch.delenv("SUDO_USER", raising=False)
    monkeypatch.setattr("billhook.cli.context.LOGIN_ID", Path("/dev/null"))

    def follow(*_: object, **__: object) -> None:
        raise KeyboardInterrupt  # `tail` ends where it would wait

    monkeypatch.setattr(Deliveries, "follow", follow)
    yield
    sys.modules.pop("shop", None)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> dict[str, bytes]:
    """The files of a folder with handlers, secrets and an inbox that has a delivery of every kind."""
    folder, before = tmp_path_factory.mktemp("prepared"), Path.cwd()
    (folder / "shop.py").write_text(HANDLERS)
    sys.modules.pop("shop", None)  # of another test
    os.chdir(folder)
    try:
        fill(folder)
    finally:
        os.chdir(before)
    request = [
        f"{name}: {text}"
        for name, text in signed(APPROVED, "InvoiceApproved", at=NOON, message_id="m2").items()
    ]
    texts = {
        "shop.py": HANDLERS,
        "renamed.py": HANDLERS.replace('name="send", aliases=["mail"]', 'name="mailer"'),
        "body.json": APPROVED.decode(),
        "secret.txt": SECRET,
        "other.txt": OTHER_SECRET,
        "notify.txt": "no address\n",
        ".hooks.py": "",
        "request.http": "\n".join(["POST / HTTP/1.1", *request, "", APPROVED.decode()]),
    }
    assert not (folder / "billhook.db-wal").exists()  # all of it is in the file
    return {"billhook.db": (folder / "billhook.db").read_bytes()} | {
        name: text.encode() for name, text in texts.items()
    }


@pytest.fixture
def shop_folder(tmp_path, prepared, credentials) -> dict[str, str]:
    """A copy of it, and the options with which the commands work on it."""
    for name, content in prepared.items():
        (tmp_path / name).touch(0o600)
        (tmp_path / name).write_bytes(content)
        os.utime(tmp_path / name, (NOON.timestamp(), NOON.timestamp()))
    return {
        "INBOX_URL": f"sqlite:///{tmp_path / 'billhook.db'}",
        "HANDLERS": "shop.py",
        "SECRETS_FILE": "secret.txt",
        "NOTIFY_FILE": "notify.txt",
        "ENGINE": "worker",
        **credentials,
    }


# --- recording and comparing ------------------------------------------------------------------------------


def transcript(line: str, result: Result, folder: Path) -> str:
    """A command line with what it printed, as it is recorded."""
    told = [f"$ billhook {line}", *result.stdout.splitlines()]
    told += [f"stderr: {each}" for each in result.stderr.splitlines()]
    if result.exit_code:
        told.append(f"exit code: {result.exit_code}")
    text = "\n".join(each.rstrip() for each in told)
    for path, name in ((str(folder), "/shop"), (str(CHECKOUT), "/billhook")):
        text = text.replace(path, name)
    text = re.sub("─{3,}", "───", text)  # as wide as the widest path
    text = re.sub(r"(?<=127\.0\.0\.1:)[0-9]{4,5}|(?<=//localhost:)[0-9]{4,5}", "PORT", text)
    text = re.sub(r"(?<=webhook-timestamp: )[0-9]+", "SECONDS", text)
    text = re.sub(r'(?<=_ms": )[0-9.]+|(?<=\()[0-9.]+(?= ms\))', "MS", text)
    text = text.replace("[COMMAND] [ARGS]", "COMMAND [ARGS]")  # as older releases of click have it
    text = re.sub("(?m)^stderr: Try .* for help[.]$", "", text)
    text = re.sub(r"\b00[0-9]{2}\b", "REVISION", text)  # of the inbox's schema
    of_build = r"(, version unknown| [0-9.]+(post[0-9]+\+g[0-9a-f]+)?)"
    text = re.sub(rf"\bbillhook{of_build}(?=$|\")", "billhook VERSION", text, flags=re.MULTILINE)
    text = re.sub(r'(?<="version": )(null|"[^"]+")', '"VERSION"', text)
    text = re.sub(r"(?<=edited-2-)[0-9a-f]{16}", "RANDOM", text)
    text = re.sub(r"v1,[A-Za-z0-9+/=]{44}", "v1,SIGNATURE", text)
    return text + "\n\n"


def compare(name: str, found: str) -> None:
    file = FOLDER / f"{name}.txt"
    if RECORDING:
        file.write_text(found)
    recorded = file.read_text() if file.exists() else ""
    assert found.splitlines() == recorded.splitlines(), (
        f"{file.name} is not what is printed; if that is meant, record it anew with BILLHOOK_TEST_RECORD=1"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_what_is_recorded(name, run, shop_folder, service, tmp_path):
    answer_reads(service)
    issues = json.loads(run("failures", "list", "--json", **shop_folder).stdout)
    failure = next(one["id"] for one in issues if one["subject"] == "send")

    def call(line: str) -> str:
        words = shlex.split(line.replace("{failure}", failure))
        options = dict(word.split("=", 1) for word in takewhile(OPTION.match, words))
        return transcript(line, run(*words[len(options) :], **{**shop_folder, **options}), tmp_path)

    compare(name, "".join(map(call, COMMANDS[name])))


@pytest.mark.parametrize("name", ["", *main.commands])
def test_a_help_text_is_what_is_recorded(name, run, tmp_path, monkeypatch):
    for _, command in commands(main):  # click keeps -h, or its lack, from a call below `flask`
        monkeypatch.setattr(command, "_help_option", None, raising=False)
    group = main.commands[name] if name else None
    paths = [path for path, _ in commands(group, name)] if isinstance(group, click.Group) else [name]

    found = [transcript(f"{path} --help".strip(), run(*path.split(), "--help"), tmp_path) for path in paths]

    compare(f"help/{name or 'billhook'}", "".join(found))


def test_every_help_text_has_an_example_and_no_wide_line():
    recorded = "".join(file.read_text() for file in (FOLDER / "help").glob("*.txt"))
    texts = dict(re.findall(r"(?ms)^\$ billhook (.*?)--help$(.*?)(?=^\$|\Z)", recorded))
    without = {path.strip() for path, text in texts.items() if not re.search(r"Examples?:\n +\S", text)}

    assert {path.strip() for path in texts} == {path for path, _ in commands(main)}
    assert without == {"db", "deliveries"}
    assert [line for line in recorded.splitlines() if len(line) > 120] == []


def test_every_command_is_recorded_with_and_without_json():
    lines = [list(dropwhile(OPTION.match, line.split())) for lines in COMMANDS.values() for line in lines]
    missing = []
    for path, command in commands(main):
        words = path.split()
        with_json = any("--json" in param.opts for param in command.params)
        called = [line for line in lines if line[: len(words)] == words]
        if isinstance(command, click.Group) or path in UNTIL_STOPPED:
            continue
        missing += [path] if not [line for line in called if "--json" not in line] else []
        missing += (
            [f"{path} --json"] if with_json and not [line for line in called if "--json" in line] else []
        )

    assert missing == [], "a line `$ billhook …` in a file of recorded/ calls each"
