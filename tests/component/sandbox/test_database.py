"""The sandbox's database: its owner's alone, one sandbox's alone, and no larger than wanted."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from sqlalchemy import func, select

from billhook.errors import ConfigError
from billhook.sandbox import Sandbox, SandboxOptions
from billhook.sandbox.storage import tables
from support.receivers import deliveries, flush, receiving, subscribe, trigger
from support.sandbox import running

IN_USE = "another sandbox is using this database: stop it, or give this one a database of its own"


def test_a_second_sandbox_on_one_database_is_refused_until_the_first_has_ended(sandbox_url: str) -> None:
    first = Sandbox(SandboxOptions(database_url=sandbox_url))
    try:
        with pytest.raises(ConfigError, match=IN_USE):
            Sandbox(SandboxOptions(database_url=sandbox_url))
    finally:
        first.close()

    Sandbox(SandboxOptions(database_url=sandbox_url)).close()


def test_every_file_of_the_database_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with running(database_url=f"sqlite:///{tmp_path / 'sandbox.db'}") as sandbox:
            sandbox.ok("POST", "/_sandbox/customers", {"name": "Acme"})
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(before)

    names = ("sandbox.db", "sandbox.db-wal", "sandbox.db-shm", "sandbox.db.lock")
    assert modes == dict.fromkeys(names, 0o600)


def test_a_sqlite_url_without_a_plain_file_is_refused_and_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    for url in ("sqlite:///:memory:", "sqlite:///file:x.db?uri=true", "sqlite:///"):
        with pytest.raises(ConfigError, match="must name a file, sqlite:///FILE"):
            Sandbox(SandboxOptions(database_url=url))
    assert list(tmp_path.iterdir()) == []


def test_the_event_log_is_trimmed_to_the_newest_and_unsent_events(sandbox_url: str) -> None:
    with receiving(500) as receiver, running(database_url=sandbox_url, keep_events=20) as sandbox:
        subscribe(sandbox, "MonthEndReport", receiver.url)
        unsent = trigger(sandbox, "MonthEndReport")
        flush(sandbox)
        later_ones = []
        for _ in range(59):
            later_ones.append(trigger(sandbox, "MonthEndReport"))
            flush(sandbox)
        kept = [one["id"] for one in sandbox.ok("GET", "/_sandbox/raised?limit=1000")["raised"]]
        log = deliveries(sandbox)
        with sandbox.sandbox.service.transaction(writes=False) as tx:
            attempts = tx.connection.execute(select(func.count()).select_from(tables.attempt)).scalar_one()

    assert kept == [unsent, *later_ones[-20:]]
    assert [one["raisedId"] for one in log] == kept
    assert (log[0]["state"], log[1]["state"]) == ("pending", "delivered")
    assert attempts == len(kept)
