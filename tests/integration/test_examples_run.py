"""Every example runs with the command its README names, takes signed deliveries and does what it says."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from billhook.events import (
    CreditPoolIncreased,
    InvoiceApproved,
    InvoicePaymentStatusChanged,
    PaymentFailed,
    PingTest,
    UnknownEvent,
    sample,
)
from support.examples import EXAMPLES, Server, environment, replay, running
from support.processes import run_command, until
from support.signing import OTHER_SECRET

THREADS = "gunicorn -c ../../deploy/gunicorn.conf.py -k gthread --worker-connections 1000 'shop:create_app()'"


@pytest.mark.parametrize(
    "command",
    ["flask --app shop run --port 8000", pytest.param(THREADS, marks=pytest.mark.slow)],
    ids=["flask", "gunicorn"],
)
def test_the_existing_app_example_handles_deliveries_beside_its_routes(tmp_path: Path, command: str) -> None:
    with running("existing_app", command, tmp_path, "/hooks/billing") as server:
        replay(server)
        big = sample(InvoiceApproved, note="x" * 100_000, invoice_id="inv_1")

        assert server.deliver(big) == (200, {"status": "accepted"})
        assert server.deliver(sample(InvoicePaymentStatusChanged, invoice_id=big.invoice_id))[0] == 200

        wanted = {"id": big.invoice_id, "approved_at": "2026-01-15T09:30:00+00:00", "status": "Paid"}
        until(lambda: server.request("GET", f"/invoices/{big.invoice_id}") == (200, wanted), 15)
        # Each keeps its own errors and its own limit on bodies.
        assert server.request("GET", "/nowhere") == (404, {"shop_says": "Not Found"})
        assert server.request("POST", "/orders", b"x" * 100_000)[0] == 413
        assert server.request("GET", server.path)[1]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("fastapi", "uvicorn main:app --port 8000"),
        pytest.param(
            "django",
            "gunicorn -c ../../deploy/gunicorn.conf.py -w 1 webshop:application",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_receiver_runs_on_the_event_loop_of_another_framework(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, command: str
) -> None:
    monkeypatch.setenv("DJANGO_SECRET_KEY", "for this test only")
    with running(name, command, tmp_path, "/hooks/billing") as server:
        replay(server)
        event = sample(InvoiceApproved, invoice_id="inv_1")

        assert server.deliver(event, key="msg_1") == (200, {"status": "accepted"})
        assert server.deliver(event, key="msg_1") == (200, {"status": "duplicate"})
        assert server.deliver(event, secret=OTHER_SECRET)[0] == 401
        assert server.request("GET", server.path)[0] == 405
        until(lambda: server.request("GET", "/invoices/inv_1")[1]["approved_at"] is not None, 15)


@pytest.mark.slow
def test_a_sender_of_another_kind_has_its_own_header_scheme_and_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_WEBHOOK_SECRET", "a text for this test only")
    with running("another_sender", "flask --app forge run --port 8000", tmp_path, "/webhooks") as server:
        replay(server)

        assert server.deliver(sample(InvoiceApproved))[0] == 200
        assert server.request("POST", "/webhooks/github", b"{}", {"X-GitHub-Event": "push"})[0] == 401


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "billhook serve handlers.py --bind 127.0.0.1:8000",
        (
            "BILLHOOK_HANDLERS=handlers.py gunicorn -c python:billhook.gunicorn_conf "
            "'billhook.standalone:create_asgi_app()'"
        ),
    ],
    ids=["serve", "gunicorn"],
)
def test_the_standalone_example_runs(tmp_path: Path, command: str) -> None:
    with running("standalone", command, tmp_path) as server:
        replay(server)
        assert server.deliver(sample(PaymentFailed, failure_reason=None)) == (200, {"status": "accepted"})

        letter = server.folder / "outbox" / "2.txt"
        until(lambda: letter.exists() and letter.read_text(), 15)
        assert "for a reason we were not told" in letter.read_text()
        assert server.request("GET", "/readyz")[0] == 200


@pytest.mark.slow
def test_handlers_in_modules_retry_discard_and_happen_once(tmp_path: Path) -> None:
    command = "billhook serve billing.invoices billing.credits billing.everything --bind 127.0.0.1:8000"
    with running("handler_modules", command, tmp_path) as server:
        replay(server)

        # The payment overtakes its invoice, so its handler has to come again.
        assert server.deliver(sample(InvoicePaymentStatusChanged, invoice_id="inv_1"))[0] == 200
        failed = "SELECT 1 FROM failure JOIN run ON run.id = run_id WHERE handler LIKE '%book_payment'"
        until(lambda: server.rows("billhook.db", failed), 15)
        server.deliver(sample(InvoiceApproved, invoice_id="inv_1"))
        server.deliver(sample(InvoicePaymentStatusChanged, invoice_id="inv_2", billing_status="Overdue"))
        server.deliver(sample(PaymentFailed))
        server.deliver(UnknownEvent(type="MoonPhaseChanged", data={"phase": "full"}))
        assert server.deliver(sample(CreditPoolIncreased)) == (200, {"status": "accepted"})

        until(lambda: len(server.rows("billing.db", "SELECT key FROM journal")) == 7, 15)
        until(
            lambda: not server.rows("billhook.db", "SELECT 1 FROM run WHERE state IN ('due', 'running')"), 15
        )
        assert server.rows("billing.db", "SELECT id, paid_at IS NOT NULL FROM invoice") == [("inv_1", 1)]
        assert server.rows("billing.db", "SELECT * FROM credit") == [("pool_12", "1000.00")]
        assert {text for (text,) in server.rows("billing.db", "SELECT text FROM notice")} == {
            "cus_1042: 1249.90 USD did not arrive (card_declined)",
            "unknown type MoonPhaseChanged",
        }
        (waited, tries), discarded = attempts(server, "book_payment")
        assert (waited, tries >= 2, discarded) == ("succeeded", True, ("discarded", 1))
        assert attempts(server, "dunning") == [("succeeded", 1)]


def attempts(server: Server, handler: str, inbox: str = "billhook.db") -> list[tuple[Any, ...]]:
    return server.rows(inbox, f"SELECT state, attempts FROM run WHERE handler LIKE '%{handler}' ORDER BY id")


@pytest.mark.slow
def test_an_effect_of_the_example_happens_once_though_its_handler_runs_twice(
    tmp_path: Path,
) -> None:
    program = (
        "from datetime import UTC, datetime\n"
        "from billhook import Delivery\n"
        "from billhook.events import CreditPoolIncreased, sample\n"
        "from billing.credits import add_credit\n"
        "for key in ('a', 'a', 'b'):\n"
        "    now = datetime.now(UTC)\n"
        "    given = (1, key, 'default', 'CreditPoolIncreased', 1, now, None, b'', {})\n"
        "    delivery = Delivery(*given, handler='add')\n"
        "    add_credit(sample(CreditPoolIncreased), delivery)\n"
    )
    path = [str(EXAMPLES / "handler_modules"), *filter(None, [environment().get("PYTHONPATH")])]
    environ = {**environment(), "PYTHONPATH": os.pathsep.join(path)}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environ, check=True, timeout=120)

    with contextlib.closing(sqlite3.connect(tmp_path / "billing.db")) as connection:
        assert connection.execute("SELECT * FROM credit").fetchall() == [("pool_12", "1000.00")]


@pytest.mark.slow
def test_the_plain_signals_example_calls_subscribers_and_observers(tmp_path: Path) -> None:
    command = "flask --app observed run --port 8000"
    with running("plain_signals", command, tmp_path) as server:
        replay(server)
        server.deliver(sample(PaymentFailed, currency="EUR"))
        wrong = server.deliver(sample(PingTest), secret="whsec_bm90IHRoZSBzZWNyZXQgYXQgYWxsISE=")

        assert wrong[0] == 401
        assert server.request("GET", "/rejections") == (200, {"mismatch": 2})
        # A local function that was connected with weak=False is still there: the sound payment was collected.
        until(
            lambda: attempts(server, "collect", "instance/billhook.db") == [("dead", 2), ("succeeded", 1)], 15
        )
        assert len((server.folder / "alerts.log").read_text().splitlines()) == 1


@pytest.mark.slow
def test_the_sandbox_example_tests_an_app_in_one_process(tmp_path: Path) -> None:
    readme = (EXAMPLES / "sandbox" / "README.md").read_text(encoding="utf-8")
    assert "$ python -m pytest -q test_ledger.py\n1 passed\n" in readme
    folder = tmp_path / "sandbox"
    shutil.copytree(EXAMPLES / "sandbox", folder, ignore=shutil.ignore_patterns("__pycache__"))

    passed = pytest_of(folder)
    test = folder / "test_ledger.py"
    test.write_text(test.read_text().replace("40d", "3d"))  # the month has not ended: nothing is approved
    failed = pytest_of(folder)

    assert passed.returncode == 0, passed.stdout
    assert "1 passed" in passed.stdout
    assert failed.returncode == 1
    assert "assert [] == [20]" in failed.stdout


def pytest_of(folder: Path) -> subprocess.CompletedProcess[str]:
    """What the README has one type; warnings are errors, as in our own tests."""
    # The plugin is what a reader has by installing billhook: see test_plugin.py.
    options = "-m pytest -q -W error -p no:cacheprovider -p billhook_pytest test_ledger.py"
    command = [sys.executable, *options.split()]
    alone = {**environment(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # as a reader has pytest
    return run_command(command, cwd=folder, env=alone)


def test_no_example_holds_a_secret() -> None:
    # The one in plain_signals/README.md spells "not the secret at all!!": it is there to be refused.
    found = [
        match
        for path in EXAMPLES.rglob("*")
        if path.suffix in {".py", ".md"}
        for match in re.findall(r"whsec_[A-Za-z0-9+/=]{8,}", path.read_text(encoding="utf-8"))
    ]
    assert found == ["whsec_bm90IHRoZSBzZWNyZXQgYXQgYWxsISE="]
