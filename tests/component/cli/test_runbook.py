"""The runbook: a section for each alert and kind of issue, whose first command shows what happened."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from billhook import Handlers
from billhook.doctor.runbook import PAGE, read_runbook
from billhook.events import InvoiceApproved
from billhook.extension import get_state
from billhook.inbox import WorkerRecord
from billhook.inbox.watching.judgement import CONDITIONS
from support.acceptance.senders import Line
from support.acceptance.small_disk import small_disk
from support.apps import deliver
from support.processes import run_command, until
from support.signing import APPROVED, OTHER_SECRET, SECRET, signed

DEPLOY = Path(__file__).parents[3] / "deploy"
TEXT = PAGE.read_text(encoding="utf-8")
STORED = "deliveries-were-answered-503"
SECTIONS = {name: text for name, (_, text) in read_runbook().items()}


def first_command(section):
    found = re.search(r"```console\nbillhook (.+)\n```", SECTIONS[section])
    assert found is not None
    return found[1].split()


@pytest.mark.parametrize("section", SECTIONS)
def test_each_section_has_a_first_command_and_what_never_to_do(section):
    assert first_command(section)
    assert SECTIONS[section].count("**Never**") == 1
    assert "](#" not in SECTIONS[section]  # it is shown alone: another section is named by its command


def test_each_alert_and_each_kind_of_issue_has_its_section():
    rules = (DEPLOY / "prometheus-alerts.yml").read_text()
    links = re.findall(r"runbook: billhook runbook (\S+)", rules)
    alerts = re.findall(r"alert: (\w+)", rules)

    assert len(links) == len(alerts)
    assert set(links) == SECTIONS.keys()
    untold = [
        f"{one.name} in {one.runbook}" for one in CONDITIONS if f"`{one.name}`" not in SECTIONS[one.runbook]
    ]
    untold += [alert for alert in alerts if f"`{alert}`" not in TEXT]
    assert untold == [], "RUNBOOK.md names each alert, and each condition in its section"


@pytest.mark.parametrize("named", ["runs-are-dead", "BillhookDeliveriesDead", "failure"])
def test_a_command_prints_a_section_by_its_name_its_alert_or_its_kind_of_issue(run, named):
    printed = run("runbook", named).output

    assert printed.startswith("Runs are dead\n\n")
    assert SECTIONS["runs-are-dead"] in printed
    assert printed.count("**Never**") == 1


def on_a_terminal(*arguments):
    """What a command prints on a terminal of 80 columns."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    environ = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    environ["TERM"] = "xterm-256color"
    process = subprocess.Popen([sys.executable, "-m", "billhook", *arguments], stdout=its, env=environ)
    os.close(its)
    printed = b""
    with contextlib.suppress(OSError), os.fdopen(ours, "rb", buffering=0) as terminal:  # EIO at the end
        while part := terminal.read(4096):
            printed += part
    assert process.wait(10) == 0
    return printed.decode().replace("\r", "")


def test_a_terminal_gets_a_section_formatted():
    printed = on_a_terminal("runbook", "workers-die")
    text = re.sub(r"\x1b\[[\d;]*m", "", printed)

    assert text.startswith("Workers die\n\n")
    assert "\x1b[1mNever\x1b[0m raise" in printed
    assert [mark for mark in ("**", "`", "*While") if mark in text] == []
    assert {"billhook status"} < {line.strip() for line in text.splitlines()}  # the first command
    assert max(map(len, text.splitlines())) == 80
    words = set(re.findall(r"\w+", SECTIONS["workers-die"])) - {"console"}
    assert words - set(re.findall(r"\w+", text)) == set()


# --- each is played once ------------------------------------------------------------------------------


@pytest.fixture
def shop(app_with, inbox_url, run):
    """An app whose handler fails at its only attempt."""
    handlers = Handlers()

    @handlers.on(InvoiceApproved, name="shop.book", retry=[])
    def book(event):
        raise LookupError("no plan")

    return app_with(handlers=[handlers], BILLHOOK_ENGINE="worker")


def shown(run, section, code=0):
    """What the section's first command prints."""
    result = run(*first_command(section), SECRETS=SECRET, ENGINE="worker")
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def test_a_worker_that_is_gone(shop, run):
    deliver(shop, APPROVED, "InvoiceApproved")
    long_ago = datetime.now(UTC) - timedelta(minutes=10)
    get_state(shop).inbox.record_worker(WorkerRecord("host:1:x", "worker", 1, long_ago), long_ago)

    text = shown(run, "no-worker-is-alive")
    assert "No worker has been seen for 10 min" in text
    assert f"the last was seen at {long_ago:%Y-%m-%d %H:%M:%S} UTC" in text


def test_a_database_that_is_away(run, monkeypatch):
    monkeypatch.setenv("BILLHOOK_INBOX_URL", "postgresql+psycopg://billhook@127.0.0.1:9/billhook")

    text = shown(run, "the-inbox-cannot-be-read", code=1)

    assert "127.0.0.1:9" in text
    assert "refused" in text


@pytest.mark.slow
def test_deliveries_that_were_answered_503_on_a_full_disk(tmp_path):
    with small_disk(tmp_path) as (stack, web, disk):
        url = f"sqlite:///{disk.folder}/billhook.db"
        environ = os.environ | {"BILLHOOK_INBOX_URL": url, "BILLHOOK_SECRETS": SECRET}

        def printed(*command):
            command = [*disk.enter(web), sys.executable, "-m", "billhook", *command]
            return run_command(command, env=environ, cwd=tmp_path).stdout

        def sent():
            with contextlib.closing(Line(stack.port, 30)) as line:
                return line.post("msg_1", APPROVED).status

        until(lambda: disk.fill(web) and sent() == 503, 30)
        until(lambda: re.search(r"\b0 [MK]iB are free", printed(*first_command(STORED))), 60)

        disk.fill(web).unlink()
        until(lambda: sent() == 200, 60)
        until(lambda: "storage" in printed("status"), 60)
        assert " 0 MiB are free" not in printed(*first_command(STORED))


def test_a_secret_that_is_wrong(shop, run):
    headers = signed(APPROVED, "InvoiceApproved", secret=OTHER_SECRET)
    assert shop.test_client().post("/webhooks/billing", data=APPROVED, headers=headers).status_code == 401
    get_state(shop).inbox.close()

    assert "1 signature matched no secret" in shown(run, "signed-deliveries-are-refused")


def test_a_secret_that_was_changed_at_the_service(shop, run):
    """Deliveries were accepted until then."""
    deliver(shop, APPROVED, "InvoiceApproved")
    headers = signed(APPROVED, "InvoiceApproved", secret=OTHER_SECRET)
    for _ in range(5):
        shop.test_client().post("/webhooks/billing", data=APPROVED, headers=headers)
    get_state(shop).inbox.close()

    text = shown(run, "signed-deliveries-are-refused")
    assert "about 5 signatures have matched no secret since the last accepted delivery" in text


def test_a_handler_whose_runs_are_dead(shop, run):
    deliver(shop, APPROVED, "InvoiceApproved")
    get_state(shop).handle_due()

    text = shown(run, "runs-are-dead")

    assert "LookupError: no plan" in text


def test_a_delivery_that_is_quarantined_and_one_that_waits(shop, run):
    deliver(shop, b"no JSON", "InvoiceApproved")
    get_state(shop).handle_due()
    deliver(shop, APPROVED, "InvoiceApproved")

    assert "the body is not JSON" in shown(run, "deliveries-are-quarantined")
    assert "1 unread" in shown(run, "deliveries-wait") or "unread 1" in shown(run, "deliveries-wait")


def test_a_handler_that_is_paused(shop, run):
    get_state(shop).inbox.pause_handler("shop.book", "the ledger is closed", datetime.now(UTC))

    assert "PAUSED: shop.book since" in shown(run, "a-handler-is-paused")


def test_a_service_that_is_silent(shop, run):
    deliver(shop, APPROVED, "InvoiceApproved")

    assert re.search(r"InvoiceApproved .*(?:ago|just now)", shown(run, "the-service-is-silent"))
