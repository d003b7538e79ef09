"""`billhook worker --drain` ends by itself when nothing is due now."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import insert, update

from billhook.cli.serve import _end_when_idle
from billhook.errors import InboxUnavailable
from billhook.inbox import WorkerRecord
from billhook.inbox.reading import deliveries
from billhook.inbox.running.handler_lists import HandlerList
from billhook.inbox.tables.schema import run
from support.inbox_view import incoming, rows
from support.processes import clean_environment, run_command
from support.signing import SECRET
from support.worker_group import HANDLERS

NOTING = """
@handlers.on(InvoiceApproved, name="slow", ordered_by="invoice_id")
def slow(event):
    time.sleep(0.5)
@handlers.on(PingTest, name="rare", rate="1/h")
def rare(event): ...
@handlers.on(PingTest, name="fails", retry=[3600])
def fails(event):
    raise RuntimeError("not yet")
@handlers.on(PingTest, name="paused")
def paused(event): ...
"""
APPROVED = b'{"invoiceId": "inv_1", "date": "2026-01-15T09:30:00Z"}'


@pytest.fixture
def drain(tmp_path, inbox_url):
    (tmp_path / "hooks.py").write_text(HANDLERS + NOTING)
    environ = clean_environment(BILLHOOK_SECRETS=SECRET, BILLHOOK_INBOX_URL=inbox_url)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "billhook", "worker", "hooks.py", "--drain", *arguments]
        return run_command(command, cwd=tmp_path, env=environ)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("bare_url", ["sqlite"], indirect=True)
def test_drain_exits_when_all_due_runs_are_handled(drain, inbox, where):
    for number in range(3):
        inbox.put(incoming(f"a{number}", event_type="InvoiceApproved", body=APPROVED))
    for key in ("p", "q"):
        inbox.put(incoming(key, event_type="PingTest"))
    inbox.pause_handler("paused", None, datetime.now(UTC))
    inbox.close()

    done = drain()

    assert done.returncode == 0, done.stderr
    assert dict(rows(where, "SELECT key, state FROM delivery")) == {
        "a0": "done", "a1": "done", "a2": "done", "p": "planned", "q": "planned",
    }  # fmt: skip
    assert "left, as paused is paused: 2 runs" in done.stderr
    assert re.search(r"left for later: 3 runs, the first until 20\d\d-", done.stderr)
    assert "worker stopped" in done.stderr
    assert drain().returncode == 0  # with nothing to do
    # Nobody waits for its return but cron.
    assert rows(where, "SELECT DISTINCT engine, stopped_at IS NULL FROM billhook_worker") == [
        ("drain", False)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("bare_url", ["sqlite"], indirect=True)
def test_drain_ends_when_only_what_newer_processes_plan_is_left(drain, inbox, where):
    drain()  # writes its list
    inbox.put(incoming("a", event_type="InvoiceApproved", body=APPROVED))
    newer = HandlerList({"InvoiceApproved": {"new": ()}, "PingTest": {}, "": {}}, {})
    now = datetime.now(UTC)
    inbox.record_worker(WorkerRecord("newer", "worker", 1, now), now, newer)
    inbox.close()

    done = drain()

    assert done.returncode == 0
    assert "left to processes with the newest handlers: 1 delivery" in done.stderr
    assert rows(where, "SELECT state FROM delivery") == [("received",)]


@pytest.mark.slow
@pytest.mark.parametrize("bare_url", ["sqlite"], indirect=True)
def test_drain_refuses_several_processes(drain):
    done = drain("--processes", "2")

    assert done.returncode == 2
    assert "--drain works in one process" in done.stderr


def test_is_busy_counts_due_and_running_runs(inbox, frozen_clock):
    inbox.put(incoming("k"))
    unread = deliveries.is_busy(inbox, frozen_clock.now())
    with inbox.database.write() as connection:
        connection.exec_driver_sql("UPDATE delivery SET state = 'planned'")
        facts = {"delivery_id": 1, "handler": "h", "attempts": 1, "token": 1}
        connection.execute(insert(run), {**facts, "state": "due", "due_at": frozen_clock.now()})
    found = {}
    for state, hours in (("due", 0), ("due", 1), ("running", 1), ("dead", 0)):
        due = frozen_clock.now() + timedelta(hours=hours)
        with inbox.database.write() as connection:
            connection.execute(update(run).values(state=state, due_at=due))
        found[state, hours] = deliveries.is_busy(inbox, frozen_clock.now())

    assert unread
    assert found == {("due", 0): True, ("due", 1): False, ("running", 1): True, ("dead", 0): False}


@pytest.mark.parametrize("bare_url", ["sqlite"], indirect=True)
def test_an_inbox_that_is_away_is_waited_for(monkeypatch, inbox):
    from types import SimpleNamespace

    answers = iter([InboxUnavailable("away"), True, False])

    def is_busy(*_):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("billhook.cli.serve.is_busy", is_busy)
    monkeypatch.setattr("billhook.cli.serve._POLL_SECONDS", 0.0)
    ended = []
    clock, lists = SimpleNamespace(now=lambda: None), SimpleNamespace(types=None, may_claim=None)

    _end_when_idle(
        SimpleNamespace(inbox=inbox, dispatcher=SimpleNamespace(clock=clock, limits={}, lists=lists)),
        lambda: ended.append(True),
    )

    assert ended == [True]
