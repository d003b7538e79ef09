"""`billhook notify send`: what a timer runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from billhook.cli import main
from billhook.inbox import Inbox, WorkerRecord
from support.examples import free_port
from support.templates import new_inbox

GONE_SECONDS = 120


@pytest.fixture
def send(monkeypatch, hook, notify_file, tmp_path):
    monkeypatch.setenv("BILLHOOK_NOTIFY_FILE", notify_file(hook.url))
    monkeypatch.setenv("BILLHOOK_ENVIRONMENT", "staging")
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))

    def call(inbox_url, *options):
        monkeypatch.setenv("BILLHOOK_INBOX_URL", inbox_url)
        return CliRunner().invoke(main, ["notify", "send", *options])

    return call


def test_it_sends_once_though_no_worker_and_no_web_process_lives(send, hook, tmp_path):
    url = f"sqlite:///{tmp_path / 'billhook.db'}"
    inbox = Inbox(new_inbox(url))
    seen = datetime.now(UTC) - timedelta(seconds=GONE_SECONDS)
    inbox.record_worker(WorkerRecord("host:1:x", "worker", 1, seen), seen)
    inbox.close()

    results = [send(url) for _ in range(3)]

    assert [result.exit_code for result in results] == [0] * 3
    assert hook.titles == ["[billhook staging] critical: no worker is alive"]


def test_it_reports_a_database_that_is_away_once_without_it(send, hook, tmp_path, monkeypatch):
    monkeypatch.setattr("billhook.notify.outage.TOLD_AFTER", timedelta(0))
    url = f"postgresql://nobody@127.0.0.1:{free_port()}/nothing"

    results = [send(url) for _ in range(3)]

    assert [result.exit_code for result in results] == [1] * 3
    assert "billhook doctor" in results[0].output
    assert hook.titles == ["[billhook staging] critical: the inbox cannot be read"]


def test_it_goes_on_where_no_timer_is(send, hook, tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'billhook.db'}"
    inbox = Inbox(new_inbox(url))
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) > 2:
            raise KeyboardInterrupt
        seen = datetime.now(UTC) - timedelta(seconds=GONE_SECONDS)
        inbox.record_worker(WorkerRecord("host:1:x", "worker", 1, seen), seen)

    monkeypatch.setattr("billhook.cli.failures.time.sleep", sleep)
    send(url, "--every", "20")
    inbox.close()

    assert (pauses, hook.titles) == ([20] * 3, ["[billhook staging] critical: no worker is alive"])


def test_without_addresses_it_says_what_to_do(monkeypatch):
    monkeypatch.delenv("BILLHOOK_NOTIFY_FILE", raising=False)

    result = CliRunner().invoke(main, ["notify", "send"])

    assert result.exit_code == 1
    assert "BILLHOOK_NOTIFY_FILE is not set: name a file" in result.output
