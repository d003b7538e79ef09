"""What each command prints of a prepared inbox, and each help text, compared with the texts in `recorded/`.

    BILLHOOK_TEST_RECORD=1 python -m pytest tests/component/cli/test_recorded.py

records them anew after a change that is meant; what it changed is then read in `git diff`. The clock stands
still, ids and keys are given, and what depends on the machine is replaced: paths, ports, durations.
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
from support.inbox_view import NOON
from support.recorded_inbox import HANDLERS, NOW, answer_reads, fill
from support.signing import APPROVED, OTHER_SECRET, SECRET, signed

FOLDER = Path(__file__).with_name("recorded")
CHECKOUT = Path(__file__).parents[3]
RECORDING = os.environ.get("BILLHOOK_TEST_RECORD") == "1"
OPTION = re.compile("[A-Z_]+=")
RANGE = "RETENTION_DAYS=36500 reconcile --since 2026-01-01 --until 2026-01-31"
UNUSABLE = "INBOX_URL=sqlite:////nowhere/billhook.db"
"""Of an inbox that cannot be used `doctor` tells nothing of the machine."""
NOWHERE = "http://127.0.0.1:9/webhooks/billing"

COMMANDS: dict[str, list[str]] = {
    "actions": [
        "deliveries discard 2 --reason lost --yes",
        "deliveries export --type InvoiceApproved --contains inv_1",
        "handlers pause send",
        "actions",
        "actions --json",
    ],
    "api": [
        "api login",
        "api customers get crm a/1",
        "api customers get crm a/1 --json",
        "api customers consumptions cus_1",
        "api customers consumptions --alias acme --json",
        "api plans get p",
        "api plans get p --json",
        "api catalog-products get prd_55",
        "api catalog-products get prd_55 --json",
        "api catalog-products list",
        "api catalog-products list --json",
        "api custom-fields get cfd_4",
        "api custom-fields get cfd_4 --json",
        "api custom-fields list",
        "api custom-fields list --json",
        "api invoices get inv_3007",
        "api invoices get inv_3007 --json",
        "api invoices list --status Overdue",
        "api invoices list --json",
        "api contracts list --customer-id cus_1",
        "api contracts list --json",
        "api credits list cus_1",
        "api credits list cus_1 --json",
        "api events query --since 2026-01-01 --alias acme",
        "api events query --since 2026-01-01 --json",
        "api events aggregate cus_1 --since 2026-01-01 --meter calls=api_call --group-by day",
        "api events aggregate cus_1 --since 2026-01-01 --meter calls=api_call --group-by day --json",
    ],
    "check": ["check", "check --json", "check --path /elsewhere"],
    "db": ["db current", "db current --json", "db upgrade", "db backup copy.db", "db restore copy.db --yes"],
    "deliveries.change": [
        "deliveries replay 2 3 --dry-run",
        "deliveries replay --state dead --type InvoiceApproved --yes",
        "deliveries replay 2 --handler send --yes",
        "deliveries replay 1 --yes",
        "deliveries replay 2 --handler send --all-handlers",
        "deliveries replay --handler sned --yes",
        "HANDLERS= deliveries replay --handler send --type PingTest",
        "deliveries replay --issue {failure} --json",
        "deliveries replay --state dead --handler send --since 2026-01-01 --json",
        "deliveries replay --yes",
        "deliveries replay 2 --state dead",
        "deliveries replay 99",
        "deliveries discard --state quarantined --error type --reason lost --dry-run",
        "deliveries discard --search inv_1 --contains inv_1 --reason lost --json",
        "deliveries discard --yes --reason lost",
        "deliveries discard 2 --yes",
        "deliveries discard 2 --yes --reason ' '",
        "deliveries discard 4 --yes --reason lost",
        "deliveries resend 2 --handler book --file body.json",
        "deliveries resend 2 --handler book --file body.json --json",
        "deliveries prune",
        "deliveries prune --older-than 0 --dry-run",
        "deliveries prune --older-than 0 --json",
        "deliveries erase --customer cus_1042 --dry-run",
        "deliveries erase --source eu --until 2027-01-01 --discard --json",
        "deliveries erase --key m2 --yes",
        "deliveries erase --yes",
        "deliveries list",
        "actions",
    ],
    "deliveries.forward": [
        f"deliveries forward 2 --to {NOWHERE} --secret-file secret.txt --curl",
        f"deliveries forward --type PaymentFailed --to {NOWHERE} --secret-file secret.txt --dry-run",
        f"deliveries forward 2 --to {NOWHERE} --secret-file secret.txt --yes",
        f"deliveries forward 2 --to {NOWHERE} --secret-file secret.txt --json",
        f"deliveries forward 2 --to {NOWHERE} --secret-file secret.txt --scheme none",
        f"deliveries forward --to {NOWHERE} --secret-file secret.txt",
    ],
    "deliveries.list": [
        "deliveries list",
        "deliveries list --json",
        "deliveries list --limit 2",
        "deliveries list --after 3",
        "deliveries list --type PingTest --type PaymentFailed",
        "deliveries list --state dead",
        "deliveries list --state nowhere",
        "deliveries list --error invoice",
        "deliveries list --source eu",
        "deliveries list --key m2",
        "deliveries list --search inv_1",
        "deliveries list --issue {failure}",
        "deliveries list --issue 000000000000",
        "deliveries list --since 2026-01-15T12:05 --until 2026-01-15T12:07",
        "deliveries list --since yesterday",
        "deliveries list --contains inv_1",
        "deliveries list --contains inv_1 --search-limit 2",
        "deliveries list --search-limit 2",
        "deliveries list --handler sned",
        "deliveries list --twins",
        "deliveries list --conflicts",
        "deliveries list --type InvoiceAproved",
        "deliveries list --type InvoiceAproved --handler sned",
        "deliveries list --type Overage",
        "deliveries list --type Overage --json",
        "deliveries list --contains inv_1 --type Overage",
    ],
    "deliveries.show": [
        *(f"deliveries show {number}" for number in range(1, 10)),
        "deliveries show 2 --json",
        "deliveries show 3 --json",
        "deliveries show 2 --body",
        "deliveries show 99",
    ],
    "deliveries.tail": [
        "deliveries tail -n 3",
        "deliveries tail --conflicts --json",
        "deliveries tail --since 2026-01-15T12:07",
    ],
    "deliveries.export": ["deliveries export --state dead", "deliveries export --conflicts"],
    "doctor": [
        f"{UNUSABLE} doctor",
        f"{UNUSABLE} doctor examine",
        f"{UNUSABLE} SIGNATURE=body-hmac REPLAY_PROTECTION=dedupe-only doctor examine --json",
        "TOLERANCE=1 doctor",
        "doctor signature --request request.http --secret-file secret.txt",
        "doctor signature --request request.http --secret-file secret.txt --json",
        "doctor signature --request request.http --secret-file other.txt",
    ],
    "events": [
        "events",
        "events --json",
        "events --json --json-schema",
        "events PaymentFailed",
        "events PaymentFailed --json",
        "events ContractCreated",
        "events PingTest",
        "events pingtest",
        "events qqqqqq",
    ],
    "failures": [
        "failures",
        "failures list",
        "failures list --json",
        "failures show {failure}",
        "failures show {failure} --json",
        "failures show {failure}",
        "failures ack {failure}",
        "failures ignore {failure} --for 7d",
        "failures resolve {failure}",
        "failures",
        "failures show 000000000000",
    ],
    "handlers": [
        "handlers",
        "handlers list",
        "handlers list --json",
        "handlers --require-all",
        "handlers --require-all --json",
        "HANDLERS= handlers",
        "HANDLERS= handlers --json",
        "handlers resume archive",
        "handlers resume archive",
        "handlers pause sned",
        'handlers pause send --reason "no mail"',
        "handlers resume --all",
        "handlers resume --all",
        "handlers resume",
        "handlers resume send --all",
    ],
    "metrics": ["metrics"],
    "notify": ["notify test", "notify send"],
    "options": ["options", "options --json", "options --markdown", "options --json --markdown"],
    "reconcile": [
        "reconcile --since 2026-01-01",
        f"{RANGE}",
        f"{RANGE} --json",
        f"{RANGE} --inject",
    ],
    "refusals.handlers": [
        *(
            f"handlers {name}"
            for name in (".", "..", ".hooks", "./hooks", ".hooks.py", "nomodule", "no/such.py", "a,b.py")
        ),
        "events order.placed",
        "events A B",
        "events missing.py",
        "TOLERENCE=3 deliveries list",
        "SECRET=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa serve",
        "ENGINE=threads serve",
        "ENGINE=threads worker",
        "HANDLERS= worker",
        "worker --grace nan",
    ],
    "refusals.deliveries": [
        *(f"deliveries list --since '{moment}'" for moment in ("2h30", "2026-13-01", "", "999999w")),
        *(f"deliveries show -- {text}" for text in ("abc", "0", "-1", "1.5", "m2", "9" * 30)),
        "deliveries replay 1 --rate NaN",
        *(f"deliveries prune --older-than {days}" for days in ("-1", "36501", "soon", "nan")),
        "deliveries forward 1 --to 127.0.0.1:8001/hooks --secret-file secret.txt",
        f"deliveries forward 1 --to {NOWHERE} --secret-file secret.txt --curl --json",
        *(
            f"deliveries forward --to {NOWHERE} --secret-file secret.txt --follow {more}"
            for more in ("1", "--dry-run", "--since 1h", "--state dead", "--rate 5", "--curl", "--search m1")
        ),
        "failures ignore {failure} --for soon",
        "failures ignore {failure} --for 999999w",
        "status --max-age 5",
        "status --max-silence InvoiceApproved",
        "status --max-silence InvoiceApproved=x",
        "status --max-refused 10",
        "status --max-refused 10/9d",
        "status --max-dead -1",
        "status --watch --json",
    ],
    "refusals.service": [
        "api contracts list --customer-id a --customer-external-id b",
        "api customers consumptions",
        "api customers consumptions a --alias b",
        "api plans get ..",
        "api events query",
        "api events aggregate c --since 1d --group-by day --meter =x",
        "api invoices list --limit 0",
        *(f"{name}= api login" for name in ("API_URL", "API_CLIENT_ID", "API_REFRESH_TOKEN")),
        *(
            f"send {arguments} --to {NOWHERE}"
            for arguments in (
                "PaymentFail",
                "PingTest --set nothing",
                "PaymentFailed --set amount.deep=1",
                "CustomerCreated --set aliases.99=x",
                "PingTest --id a.b",
                "PingTest --secret-file missing.txt",
                "PingTest --count 0",
                "PingTest --timeout nan",
            )
        ),
        f"SECRETS_FILE= send PingTest --to {NOWHERE}",
        "HANDLERS= subscribe --callback-url https://shop.example/hooks",
        *(
            f"subscribe --callback-url '{url}'"
            for url in (
                "",
                "shop.example",
                "ftp://shop.example",
                "https://",
                "http://[",
                "https://a b",
                "https://é",
            )
        ),
        *(
            f"subscribe --callback-url https://shop.example/hooks --type {arguments}"
            for arguments in (
                "PingTests",
                "PingTest --threshold PingTest=5",
                "PingTest --threshold Overage=5",
                "Overage --threshold Overage=5 --threshold Overage=6",
                "PingTest --recurring-threshold Overage=5",
                "PingTest --recurring-threshold PingTest=5",
                "PingTest --threshold PingTest",
                "PingTest --threshold PingTest=much",
                "PingTest --threshold PingTest=inf",
            )
        ),
    ],
    "runbook": ["runbook", "runbook runs-are-dead", "runbook nonsense"],
    "send": [
        f"send InvoiceApproved --to {NOWHERE} --id m77",
        f"send InvoiceApproved --to {NOWHERE} --id m77 --json",
        f"send InvoiceApproved --to {NOWHERE} --scheme none",
        "send InvoiceAproved",
    ],
    "status": ["status", "status --details", "status --json", "status --max-dead 0"],
    "subscribe": [
        "subscribe --callback-url https://shop.example/hooks",
        "subscribe --callback-url https://shop.example/hooks --dry-run --json",
        "API_URL=http://127.0.0.1:9 subscribe --callback-url https://shop.example/hooks",
    ],
    "workers": ["workers", "workers --json"],
}
"""The command lines of each file, which run one after the other on a copy of the inbox.

A word such as ENGINE=inline before the command is an option; `{failure}` is the id of an issue.
"""
UNTIL_STOPPED = {"capture", "demo", "sandbox", "sandbox call", "serve", "worker"}
"""Of these the help alone is recorded: they run servers and workers, or call one."""


def leaves(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Each command of a group, and below it, by what a user types."""
    yield path, group
    for name, command in sorted(group.commands.items()):
        here = f"{path} {name}".strip()
        if isinstance(command, click.Group):
            yield from leaves(command, here)
        else:
            yield here, command


# --- the prepared inbox -----------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def fixed(monkeypatch) -> Iterator[None]:
    """The time, the user and the width are the same everywhere; other tests have a module `shop` too."""
    monkeypatch.setattr(SystemClock, "now", staticmethod(lambda: NOW))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="alice"))
    monkeypatch.delenv("SUDO_USER", raising=False)

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
    text = re.sub(r"(?<=127\.0\.0\.1:)[0-9]{4,5}", "PORT", text)
    text = re.sub(r"(?<=webhook-timestamp: )[0-9]+", "SECONDS", text)
    text = re.sub(r'(?<=_ms": )[0-9.]+|(?<=\()[0-9.]+(?= ms\))', "MS", text)
    text = text.replace("[COMMAND] [ARGS]", "COMMAND [ARGS]")  # as older releases of click have it
    text = re.sub("(?m)^stderr: Try .* for help[.]$", "", text)
    text = re.sub(r"\b00[0-9]{2}\b", "REVISION", text)  # of the inbox's schema
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
    ids = {one["kind"]: one["id"] for one in issues if one["subject"] == "send"}

    def call(line: str) -> str:
        words = shlex.split(line.format_map(ids))
        options = dict(word.split("=", 1) for word in takewhile(OPTION.match, words))
        return transcript(line, run(*words[len(options) :], **{**shop_folder, **options}), tmp_path)

    compare(name, "".join(map(call, COMMANDS[name])))


@pytest.mark.parametrize("name", ["", *main.commands])
def test_a_help_text_is_what_is_recorded(name, run, tmp_path, monkeypatch):
    for _, command in leaves(main):  # click keeps -h, or its lack, from a call below `flask`
        monkeypatch.setattr(command, "_help_option", None, raising=False)
    group = main.commands[name] if name else None
    paths = [path for path, _ in leaves(group, name)] if isinstance(group, click.Group) else [name]

    found = [transcript(f"{path} --help".strip(), run(*path.split(), "--help"), tmp_path) for path in paths]

    compare(f"help/{name or 'billhook'}", "".join(found))


def test_every_help_text_has_an_example_and_no_wide_line():
    recorded = "".join(file.read_text() for file in (FOLDER / "help").glob("*.txt"))
    texts = dict(re.findall(r"(?ms)^\$ billhook (.*?)--help$(.*?)(?=^\$|\Z)", recorded))
    without = {path.strip() for path, text in texts.items() if not re.search(r"Examples?:\n +\S", text)}

    assert {path.strip() for path in texts} == {path for path, _ in leaves(main)}
    assert without == {"db", "deliveries"}
    assert [line for line in recorded.splitlines() if len(line) > 120] == []


def test_every_command_is_recorded_with_and_without_json():
    lines = [list(dropwhile(OPTION.match, line.split())) for lines in COMMANDS.values() for line in lines]
    missing = []
    for path, command in leaves(main):
        words = path.split()
        with_json = any("--json" in param.opts for param in command.params)
        called = [line for line in lines if line[: len(words)] == words]
        if isinstance(command, click.Group) or path in UNTIL_STOPPED:
            continue
        missing += [path] if not [line for line in called if "--json" not in line] else []
        missing += (
            [f"{path} --json"] if with_json and not [line for line in called if "--json" in line] else []
        )

    assert missing == []
