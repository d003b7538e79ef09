"""The sandbox's database: its owner's alone, one sandbox's alone, and no larger than wanted."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import func, select

from billhook.errors import ConfigError
from billhook.sandbox import Sandbox, SandboxOptions
from billhook.sandbox.storage import tables
from support.receivers import deliveries, flush, receiving, subscribe, trigger
from support.sandbox import running
from support.templates import new_inbox

IN_USE = "another sandbox is using this database: stop it, or give this one a database of its own"


def test_a_second_sandbox_on_one_database_is_refused_until_the_first_has_ended(sandbox_url: str) -> None:
    first = Sandbox(SandboxOptions(database_url=sandbox_url))
    try:
        with pytest.raises(ConfigError, match=IN_USE):
            Sandbox(SandboxOptions(database_url=sandbox_url))
    finally:
        first.close()

    Sandbox(SandboxOptions(database_url=sandbox_url)).close()


def test_a_link_that_was_planted_as_its_lock_is_refused_and_makes_no_file(tmp_path: Path) -> None:
    (tmp_path / "sandbox.db.lock").symlink_to(tmp_path / "victim")

    with pytest.raises(ConfigError, match="cannot be opened: Too many levels of symbolic links"):
        Sandbox(SandboxOptions(database_url=f"sqlite:///{tmp_path / 'sandbox.db'}"))

    assert not (tmp_path / "victim").exists()


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


# --- a database of something else ------------------------------------------------------------------

OF_OTHERS = "the sandbox's database holds tables of something else: give the sandbox a file of its own"
FORM = "write sqlite:///FILE, or sqlite:// for a temporary file"


def refusal(url: str) -> str:
    with pytest.raises(ConfigError) as caught:
        Sandbox(SandboxOptions(database_url=url))
    return str(caught.value)


TABLES = (
    "delivery (id INTEGER)",  # the receiver's inbox has one of that name, and so has the sandbox
    "setting (name TEXT, value TEXT)",
    "setting (id INTEGER)",
    "anything (id INTEGER)",
)


def test_what_is_not_the_sandboxs_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    urls = {new_inbox(f"sqlite:///{tmp_path}/billhook.db"): OF_OTHERS}
    for number, table in enumerate(TABLES):
        with closing(sqlite3.connect(tmp_path / f"{number}.db")) as file:
            file.execute(f"CREATE TABLE {table}")
        urls[f"sqlite:///{tmp_path}/{number}.db"] = OF_OTHERS
    (tmp_path / "bad.db").write_text("garbage\n")
    urls[f"sqlite:///{tmp_path}/bad.db"] = "the sandbox's database cannot be opened: file is not a database"
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    assert {url: refusal(url) for url in urls} == urls
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


UNFIT_URLS = {
    "sqlite:////": "cannot be opened: ",
    "sqlite:///x.db?timeout=soon": "cannot be used: ",
    "sqlite:///\0.db": "cannot be used: ",
    "postgresql://127.0.0.1:http/x": f"cannot be read: {FORM}",
    "postgresql://me:a@b@c/x@y": f"is a SQLite file: {FORM}",
    "sqlite+aiosqlite:///x.db": f"is a SQLite file: {FORM}",
}


def test_a_database_that_cannot_be_opened_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    for url, told in UNFIT_URLS.items():
        with pytest.raises(ConfigError, match=told) as caught:
            Sandbox(SandboxOptions(database_url=url))
        assert "\n" not in str(caught.value), url
