"""The README and its chapters are true: commands run, files work, tables are what the code says."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from billhook.cli import main
from billhook.events import EVENT_TYPES
from support import sender_recipes
from support.examples import answers, free_port
from support.pages import PAGES, README, ROOT, block, marked
from support.processes import logged, output_of, run_command, until
from support.signing import SECRET

BILLHOOK = [sys.executable, "-m", "billhook"]
SANDBOX = "src/billhook/sandbox/README.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the README and its chapters tell the reader to save."""
    for kind, name, text in marked():
        if kind == "file":
            (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What the README's export lines set, on a clean environment."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("BILLHOOK_", "FLASK_"))}
    secrets = tmp_path / "secret.txt"
    secrets.write_text(SECRET + "\n")
    # A reader has pytest alone; loading the plugins of these tests takes two seconds.
    return {**clean, "BILLHOOK_SECRETS_FILE": str(secrets), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    return output_of(*command, cwd=folder, env=environment)


def test_the_number_of_event_types_is_right():
    assert re.findall(r"\ball (\d+)\b", README) == [str(len(EVENT_TYPES))] * 2


def test_every_marked_block_is_run():
    """By a test of this file, which asks for each by its name; a file is named in a command or in a test."""
    tests = Path(__file__).read_text(encoding="utf-8")
    asked = {*re.findall(r'block\("(?:command|run): ([\w-]+)"\)', tests)}
    asked |= {f"tutorial-{name}" for name in re.findall(r'typed\("(\w+)"\)', tests)}
    used = tests + "".join(text for kind, _, text in marked() if kind != "file")

    assert asked == {name for kind, name, _ in marked() if kind != "file"}
    files = [Path(name).stem for kind, name, _ in marked() if kind == "file"]
    assert [name for name in files if not re.search(rf"\b{name}\b", used)] == []


def test_the_table_of_commands_has_each_command():
    described = set(re.findall(r"^\| `([a-z]+)` \|", PAGES["src/billhook/cli/README.md"], re.MULTILINE))

    assert described == set(main.commands), "a row in the table of src/billhook/cli/README.md"


def test_the_readmes_install_demo_and_test_commands_are_correct():
    install, demo, tests = block("command: install"), block("command: demo"), block("command: test")

    assert install.strip().startswith("python3 -m venv .venv && .venv/bin/pip install '.[serve]' && ")
    assert demo.strip().endswith(".venv/bin/billhook demo")
    assert tests.strip().endswith("'.[test]' && .venv/bin/python -m pytest -q -n 3 --dist loadfile")
    assert "python3 -m venv .venv" in demo
    assert "python3 -m venv .venv" in tests


@pytest.mark.slow
def test_the_readmes_test_command_collects_without_an_option():
    # Without --slow tests are left out by what they are, which .ci/run does not do.
    collect = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/component",
    ]

    assert re.search(r"tests collected \(\d+ deselected\)", output_of(*collect, cwd=ROOT))


def test_no_page_installs_billhook_from_an_index_before_there_is_a_release():
    unreleased = "0.1.0 (unreleased)" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    commands = {page: re.findall(r"pip install '?billhook\b", text) for page, text in PAGES.items()}

    assert not unreleased or not any(commands.values()), commands


def test_the_readmes_mounted_app_and_subscriber_handle_deliveries(folder, environment):
    deliver = """
import subscribers
from datetime import UTC, datetime
from billhook.events import CreditPoolIncreased, InvoiceApproved, sample
from billhook.signing import StandardWebhooks
import os, shop
for cls in (InvoiceApproved, CreditPoolIncreased):
    body = sample(cls).to_json()
    secret = open(os.environ["BILLHOOK_SECRETS_FILE"]).read().strip()
    headers = StandardWebhooks().sign(body, secret, event_type=cls.type, now=datetime.now(UTC))
    answer = shop.app.test_client().post("/webhooks/billing", data=body,
                                         headers={**headers, "X-Webhook-Type": cls.type})
    print(answer.status_code, answer.text)
"""
    environment["BILLHOOK_ENGINE"] = "inline"

    output = run([sys.executable, "-c", deliver], folder, environment)

    assert output.count('200 {"status": "accepted"}') == 2
    assert re.search(r"invoice \S+ approved at \d\d:\d\d, delivery msg_", output)
    assert re.search(r"booked [\d.]+ for ", output)


def test_the_readmes_standalone_receiver_handles_its_deliveries(folder, environment):
    address = free_address()
    serve = words(block("command: serve"))[0]
    send, listing = words(block("command: send"))

    with served([*BILLHOOK, *serve[1:], "--bind", address], folder, environment, address) as log:
        to_here = ["--to", f"http://{address}/webhooks/billing"]  # the default is a port that may be taken
        sent = run([*BILLHOOK, *send[1:], *to_here], folder, environment)
        until(lambda: "invoice inv_42 approved" in log.read_text(), 120)
        listed = run([*BILLHOOK, *listing[1:]], folder, environment)

    assert (serve[0], send[0], listing[0]) == ("billhook", "billhook", "billhook")
    assert "200" in sent
    assert "InvoiceApproved" in listed
    assert (folder / "billhook.db").is_file()


@pytest.mark.slow
def test_the_tutorial_is_true(folder, environment):
    address = free_address()
    flask = {name: f"{sys.executable} -m {name}" for name in ("flask", "python", "gunicorn")}
    flask["python"] = sys.executable
    letter = [folder / "letters" / f"inv_{number}.txt" for number in (1, 2)]

    def typed(name: str) -> list[str]:
        lines = block(f"command: tutorial-{name}").replace("8002", address.partition(":")[2]).splitlines()
        return [
            re.sub(r"^(flask|python|gunicorn)(?= )", lambda found: flask[found[1]], line) for line in lines
        ]

    def shell(*commands: str) -> str:
        return run(["bash", "-ec", "\n".join(commands)], folder, environment)

    def mend_after(text: str) -> None:
        until(lambda: text in log.read_text(), 120)
        shell(*typed("mend"))

    assert "2 passed" in shell(*(line + " -p billhook_pytest -p no:cacheprovider" for line in typed("test")))
    handler = (folder / "letters.py").read_text()
    (folder / "letters.py").write_text(handler.replace("retry=[10, 10]", "retry=[3]"))
    with served(shlex.split(*typed("serve")), folder, environment, address) as log:
        send, listing = typed("fail")
        # In a thread, for `send` may take longer to end than the handler to be called again.
        with ThreadPoolExecutor() as pool:
            pool.submit(mend_after, "failed on delivery 1")
            assert "200" in shell(send)
        until(letter[0].is_file, 120)
        assert "InvoiceApproved" in shell(listing)
        remove, send, *shown = typed("dead")
        shell(remove, send)
        until(lambda: "is dead" in log.read_text(), 120)
        assert [
            text in told for text, told in zip(["dead", "FileNotFoundError"], map(shell, shown), strict=True)
        ]
        mkdir, replay, show = typed("replay")
        shell(mkdir, replay)
        until(letter[1].is_file, 120)
        assert shell(show).startswith("Invoice inv_2 of ")
    engine, serve = typed("deploy")
    work, check = typed("work")
    assert engine == "export BILLHOOK_ENGINE=worker"
    environment["BILLHOOK_ENGINE"] = "worker"
    with served(shlex.split(serve), folder, environment, address):
        shell(remove, mkdir, send)
        shell(work + " --drain")
        assert letter[1].is_file()
        assert "verified and answered by billhook" in shell(check)


@pytest.mark.slow
def test_the_type_of_the_events_page_is_found_by_the_commands(folder, environment):
    events, fields, handlers = (
        run([*BILLHOOK, *command[1:]], folder, environment) for command in words(block("command: own-type"))
    )

    assert "OrderPlaced" in events
    assert "lines[].amount" in fields
    assert '"orderId": "order_id-1"' in fields
    assert "own.ship" in handlers


@pytest.mark.slow
def test_the_readmes_mounted_app_runs(folder, environment):
    address = free_address()
    (serve,) = words(block("command: mounted"))
    check, send, listing = words(block("command: mounted-use"))
    flask = [sys.executable, "-m", "flask"]

    command = [*flask, *(address.split(":")[1] if word == "8001" else word for word in serve[1:])]
    with served(command, folder, environment, address) as log:
        sent = run([*flask, *aimed(send[1:], address)], folder, environment)
        until(lambda: re.search(r"invoice \S+ approved", log.read_text()), 120)
        checked = run([*flask, *check[1:]], folder, environment)
        listed = run([*flask, *listing[1:]], folder, environment)

    assert {serve[0], check[0], send[0], listing[0]} == {"flask"}
    assert "verified and answered by billhook" in checked
    assert "WRONG" not in checked
    assert "200" in sent
    assert "InvoiceApproved" in listed


@pytest.mark.slow
def test_the_sandboxs_exports_and_commands_work_in_another_terminal(folder, environment):
    address, receiver = free_address(), free_address()
    sandbox, serve = words(block("command: sandbox"))[0], words(block("command: serve"))[0]
    prose = "\n".join(line for line in PAGES[SANDBOX].splitlines() if not line.startswith("|"))
    asked = re.findall(r"`(POST) (/_sandbox/\S+?) (\{.*?\})`", prose)

    with served([*BILLHOOK, *sandbox[1:], "--bind", address], folder, environment, address) as log:
        terminal = exported(log, environment)
        known = run([*BILLHOOK, "api", "login"], folder, terminal)
        with pytest.raises(AssertionError, match="BILLHOOK_API_URL"):
            run([*BILLHOOK, "api", "login"], folder, environment)
        with served([*BILLHOOK, *serve[1:], "--bind", receiver], folder, terminal, receiver) as received:
            subscribed, moved, raised, invoices = (
                run([*BILLHOOK, *aimed(command[1:], receiver)], folder, terminal)
                for command in words(block("command: sandbox-use"))
            )
            ids = [each["body"]["invoiceId"] for each in json.loads(raised)["raised"]]
            until(lambda: all(f"invoice {each} approved" in received.read_text() for each in ids), 120)
        answers = [
            run([*BILLHOOK, "sandbox", "call", *filter(None, each)], folder, terminal) for each in asked
        ]

    assert "the credentials are valid" in known
    assert "BILLHOOK_SECRETS" not in terminal  # it found those of the environment
    assert subscribed.count(" subscribed") == 1
    assert json.loads(moved)["steps"] > 0
    assert len(ids) == 3
    assert all(each in invoices for each in ids)
    assert (folder / "billhook-sandbox.db").is_file()
    assert [path for _, path, _ in asked] == [
        "/_sandbox/clock", "/_sandbox/trigger/PaymentFailed", "/_sandbox/faults"
    ]  # fmt: skip
    assert all(isinstance(json.loads(answer), dict) for answer in answers)


MOUNTED_DASHBOARD = """
from dashboard import app
for name in ("alice", "bob", "mallory"):
    page = app.test_client().get("/billhook/handlers", environ_overrides={"REMOTE_USER": name})
    print(name, page.status_code, "read-only" in page.text)
"""
STANDALONE_DASHBOARD = """
import base64, pathlib
from billhook.standalone import create_app
line = pathlib.Path("dashboard.txt").read_text().strip()
for user in (line, "alice:guessed"):
    headers = {"Authorization": "Basic " + base64.b64encode(user.encode()).decode()}
    print(create_app().test_client().get("/billhook/handlers", headers=headers).status_code)
"""


@pytest.mark.slow
def test_the_dashboards_page_lets_its_users_in_and_nobody_else(folder, environment):
    mounted = run([sys.executable, "-W", "error", "-c", MOUNTED_DASHBOARD], folder, environment)
    shell = (
        block("command: dashboard") + f"{shlex.quote(sys.executable)} -c {shlex.quote(STANDALONE_DASHBOARD)}"
    )
    standalone = run(["bash", "-euc", shell], folder, environment)

    assert mounted.splitlines() == ["alice 200 False", "bob 200 True", "mallory 403 False"]
    assert standalone.split() == ["200", "401"]


@pytest.mark.slow
def test_the_tests_of_the_testing_page_pass(folder, environment):
    _, pytest_command = block("command: pytest").strip().split(" && ")
    python, *arguments, name = shlex.split(pytest_command)
    command = [sys.executable, *arguments, "-W", "error", "-p", "no:cacheprovider", name]
    command += ["-p", "billhook_pytest"]  # which a reader has by installing billhook: see test_plugin.py

    told = run(command, folder, environment)
    (folder / name).write_text((folder / name).read_text().replace("retry=[60, 3600]", "retry=[60]"))

    assert python == "python"
    assert "9 passed" in told
    with pytest.raises(AssertionError):
        run(command, folder, environment)


@pytest.mark.slow
def test_the_scheme_of_the_signatures_page_signs_and_verifies(folder, environment):
    code = block("run: own_scheme")

    told = run([sys.executable, "-W", "error", "-c", code], folder, environment)

    assert re.fullmatch(r"ts/1768478400/sig/[0-9a-f]{64} 2026-01-15 12:00:00\+00:00\n", told)
    with pytest.raises(AssertionError, match="SignatureMismatch"):
        run([sys.executable, "-c", code.replace('headers, b"{}"', 'headers, b"[]"')], folder, environment)


TWO_ATTEMPTS = """
import sqlite3
from support.own_database import make_delivery
from billhook.events import sample
with sqlite3.connect("shop.db") as connection:
    connection.execute("CREATE TABLE letter (invoice TEXT)")
for attempt in (1, 2):
    print_letter(sample(InvoiceApproved, invoice_id="inv_1"), make_delivery(attempt=attempt))
print(connection.execute("SELECT invoice FROM letter").fetchall())
"""


@pytest.mark.slow
def test_the_effect_of_the_handlers_page_happens_once(folder, environment):
    code = block("run: once") + TWO_ATTEMPTS
    path = os.pathsep.join([str(ROOT / "tests"), *filter(None, [environment.get("PYTHONPATH")])])

    told = run([sys.executable, "-c", code], folder, {**environment, "PYTHONPATH": path})

    assert told == "[('inv_1',)]\n"
    (folder / "shop.db").unlink()
    always = code.replace("if delivery.once(session):", "if True:")
    assert run([sys.executable, "-c", always], folder, {**environment, "PYTHONPATH": path}) != told


STORE_FAILED_PAYMENTS = """
import os
from datetime import UTC, datetime
from billhook.events import PaymentFailed, sample
from billhook.inbox import Inbox, NewDelivery
inbox, now = Inbox(os.environ["BILLHOOK_INBOX_URL"]), datetime.now(UTC)
inbox.prepare()
for key in ("msg_1", "msg_2"):
    inbox.put(NewDelivery("default", key, "PaymentFailed", sample(PaymentFailed).to_json(), "{}", now, now))
inbox.put(NewDelivery("default", "msg_3", "PingTest", b"{}", "{}", now, now))
inbox.close()
"""


@pytest.mark.slow
def test_a_new_handler_of_the_handlers_page_is_given_what_it_has_missed(folder, environment):
    (code, *_) = re.findall(r"```python\n(.*?)```", PAGES["src/billhook/handlers/README.md"], re.DOTALL)
    (folder / "chapter.py").write_text(code)
    (folder / "before.py").write_text(
        re.sub(r"@handlers.on\(PaymentFailed.*?(?=@handlers)", "", code, flags=re.DOTALL)
    )
    environment["BILLHOOK_INBOX_URL"] = f"sqlite:///{folder}/missed.db"
    run([sys.executable, "-c", STORE_FAILED_PAYMENTS], folder, environment)
    run([*BILLHOOK, "worker", "--drain", "before.py"], folder, environment)
    environment["BILLHOOK_HANDLERS"] = "chapter.py"
    listed, replayed = ([*BILLHOOK, *shlex.split(line)[1:]] for line in block("command: missed").splitlines())

    missed = json.loads(run([*listed, "--json"], folder, environment))
    told = run([*replayed, "--yes"], folder, environment)
    again = json.loads(run([*listed, "--json"], folder, environment))
    worked = run([*BILLHOOK, "worker", "--drain"], folder, environment)

    assert [one["key"] for one in missed] == ["msg_2", "msg_1"]
    assert "2 of 2 deliveries replayed" in told
    assert "2 deliveries handled for the first time" in told
    assert again == []
    assert worked.count("outstanding on") == 2


STORE_ONE = """
import os
from datetime import UTC, datetime
from billhook.inbox import Inbox, NewDelivery
inbox, now = Inbox(os.environ["BILLHOOK_INBOX_URL"]), datetime.now(UTC)
inbox.prepare()
inbox.put(NewDelivery("default", "msg_1", "InvoiceApproved", b'{"invoiceId": "inv_42"}', "{}", now, now))
inbox.put(NewDelivery("default", "msg_2", "PingTest", b"{}", "{}", now, now))
inbox.close()
"""


@pytest.mark.slow
def test_the_reading_of_the_inboxs_page_finds_and_follows(folder, environment):
    environment["BILLHOOK_INBOX_URL"] = f"sqlite:///{folder}/read.db"

    told = run([sys.executable, "-c", STORE_ONE + block("run: reading")], folder, environment)

    assert told.splitlines() == [
        "1", "msg_1 received b'{\"invoiceId\": \"inv_42\"}'", "1 InvoiceApproved", "2 PingTest",
    ]  # fmt: skip


@pytest.mark.slow
def test_the_sandboxs_pytest_command_works_in_the_checkout_with_pytest_alone(folder, environment):
    """The checkout's pyproject.toml is the rootdir's there, and the plugins of our own tests are not."""
    command = shlex.split(re.search(r"`python (-m pytest test_billing.py)`", PAGES[SANDBOX])[1])
    command = [sys.executable, *command, "-pno:cacheprovider"]
    settings, test = folder / "pyproject.toml", folder / "test_billing.py"
    shutil.copy(ROOT / "pyproject.toml", settings)

    told = run(command, folder, environment)

    assert "1 passed" in told
    right = settings.read_text()
    settings.write_text(right.replace("xfail_strict", "timeout = 120\nxfail_strict"))
    with pytest.raises(AssertionError):
        run(command, folder, environment)
    settings.write_text(right)
    test.write_text(test.read_text().replace('== "API calls"', '== "API"'))
    with pytest.raises(AssertionError):
        run(command, folder, environment)


@pytest.mark.slow
def test_every_block_of_python_is_typed_as_a_careful_user_has_it(folder, environment):
    pytest.importorskip("mypy")
    chapters = "\n".join(text for page, text in PAGES.items() if not page.startswith("examples/"))
    snippets = re.findall(r"(?<!-->\n)```python\n(.*?)```", chapters, re.DOTALL)
    snippets += [block("run: own_scheme"), block("run: key_ids"), block("run: once"), block("run: reading")]
    for number, snippet in enumerate(snippets):
        (folder / f"snippet_{number}.py").write_text(snippet)
    (folder / "receiver.py").write_text(sender_recipes.code())
    (folder / "wrong.py").write_text("from shop import app\n\napp.nope\n")
    files = sorted(path.name for path in folder.glob("*.py"))
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--no-error-summary", *files]

    told = run_command(command, cwd=folder, env=environment)

    assert len(snippets) >= 4
    (refused,) = told.stdout.splitlines()
    assert refused.startswith('wrong.py:3: error: "Flask" has no attribute "nope"')


def test_files_created_by_the_readmes_steps_are_ignored_by_git():
    left = [
        *(name for kind, name, _ in marked() if kind == "file"),
        "secret.txt",
        "billhook.db",
        "billhook.db-wal",
    ]
    left += ["billhook-sandbox.db", "billhook-sandbox.db.lock", "instance/billhook.db"]

    ignored = run_command(["git", "check-ignore", "--no-index", *left], cwd=ROOT)

    if ignored.returncode == 128:
        pytest.skip("this is no checkout of git")
    assert ignored.stdout.split() == left


def exported(log: Path, environment: dict[str, str]) -> dict[str, str]:
    """The environment of a shell in which one typed the `export` lines that the sandbox printed."""
    until(lambda: re.search(r"export BILLHOOK_API_REFRESH_TOKEN=\S+\n", log.read_text()), 120)
    lines = [line for line in log.read_text().splitlines() if line.startswith("  export ")]
    shell = ["sh", "-ec", "\n".join([*lines, "env -0"])]
    told = run_command(shell, env=environment, check=True)
    return dict(each.split("=", 1) for each in told.stdout.rstrip("\0").split("\0"))


def words(commands: str) -> list[list[str]]:
    return [shlex.split(line) for line in commands.strip().splitlines()]


def aimed(command: list[str], address: str) -> list[str]:
    """The command with the README's address exchanged for the one that is free here."""
    return [re.sub(r"127\.0\.0\.1:800\d", address, word) for word in command]


def free_address() -> str:
    return f"127.0.0.1:{free_port()}"


@contextlib.contextmanager
def served(command: list[str], folder: Path, environment: dict[str, str], address: str) -> Iterator[Path]:
    """A server while the block runs; gives its log."""
    log, port = folder / f"log of {address}", int(address.partition(":")[2])
    options = {"cwd": folder, "env": {**environment, "PYTHONUNBUFFERED": "1"}}
    log.unlink(missing_ok=True)
    with logged(command, log, ready=lambda: answers(port), seconds=120, **options):
        yield log
