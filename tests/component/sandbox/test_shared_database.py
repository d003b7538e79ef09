"""A database that is not the sandbox's: it is told in a line, and left as it was."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from billhook.errors import ConfigError, MissingExtra
from billhook.sandbox import Sandbox, SandboxOptions
from billhook.sandbox.storage.database import SandboxDatabase
from support.postgres import fresh_schema, libpq, with_options
from support.sandbox import running

OF_OTHERS = (
    "the sandbox's database holds tables of something else: give the sandbox one of its own, "
    "another file or database"
)
FORMS = "write sqlite:///FILE or postgresql\\+psycopg://USER:PASSWORD@HOST/NAME"


def refusal(url: str) -> str:
    with pytest.raises(ConfigError) as caught:
        Sandbox(SandboxOptions(database_url=url))
    return str(caught.value)


def run(url: str, statement: str) -> list[tuple[object, ...]]:
    """Do something to a database behind the sandbox's back."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(str(make_url(url).database), isolation_level=None)) as file:
            return file.execute(statement).fetchall()
    with psycopg.connect(**libpq(url), autocommit=True) as session:
        done = session.execute(statement.encode())
        return done.fetchall() if done.description else []


@pytest.mark.parametrize(
    "table",
    [
        "delivery (id INTEGER)",  # the receiver's inbox has one of that name, and so has the sandbox
        "setting (name TEXT, value TEXT)",
        "setting (id INTEGER)",
        "anything (id INTEGER)",
    ],
)
def test_tables_of_something_else_are_refused_and_left_as_they_are(
    bare_url: str, tmp_path: Path, table: str
) -> None:
    run(bare_url, f"CREATE TABLE {table}")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    told = refusal(bare_url)

    name = table.partition(" ")[0]
    tables = (
        "SELECT name FROM sqlite_master"
        if bare_url.startswith("sqlite")
        else "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    )
    assert told == OF_OTHERS
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert run(bare_url, tables) == [(name,)]


def test_a_receivers_inbox_is_refused_and_unchanged(inbox_url: str, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    assert refusal(inbox_url) == OF_OTHERS
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.fixture
def other_schema(postgres_server) -> Iterator[str]:
    with fresh_schema(postgres_server.url) as url:
        yield url


def test_tables_of_another_schema_are_none_of_the_sandboxs_business(
    postgres_url: str, other_schema: str
) -> None:
    run(other_schema, "CREATE TABLE delivery (id INTEGER)")
    own, other = (run(url, "SELECT current_schema()")[0][0] for url in (postgres_url, other_schema))
    url = with_options(postgres_url, f"-csearch_path={own},{other}")

    for _ in range(2):
        with running(database_url=url) as sandbox:
            sandbox.ok("POST", "/_sandbox/customers", {"name": "Acme"})

    assert run(other_schema, "SELECT count(*) FROM delivery") == [(0,)]


def test_a_missing_schema_is_reported(postgres_url: str) -> None:
    told = refusal(with_options(postgres_url, "-csearch_path=nowhere"))

    assert "cannot be opened: no schema has been selected to create in" in told
    assert "\n" not in told


def test_a_file_that_is_no_database_is_refused_and_unchanged(tmp_path: Path) -> None:
    (tmp_path / "bad.db").write_text("garbage\n")

    told = refusal(f"sqlite:///{tmp_path}/bad.db")

    assert told == "the sandbox's database cannot be opened: file is not a database"
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("bad.db", "garbage\n")]


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("sqlite:////", "cannot be opened: "),
        ("sqlite:///x.db?timeout=soon", "cannot be used: "),
        ("sqlite:///\0.db", "cannot be used: "),
        ("postgresql://127.0.0.1:1/x", "cannot be opened: connection failed: "),
        ("postgresql://127.0.0.1/x?colour=red", "cannot be opened: invalid connection option"),
        ("postgresql://127.0.0.1:http/x", f"cannot be read: {FORMS}"),
        ("postgresql://me:a@b@c/x@y", "has an @ too many"),
        ("mysql://x/y", f"is SQLite or PostgreSQL: {FORMS}"),
        ("postgresql+asyncpg://x/y", f"is SQLite or PostgreSQL: {FORMS}"),
        ("sqlite+aiosqlite:///x.db", f"is SQLite or PostgreSQL: {FORMS}"),
    ],
)
def test_a_database_that_cannot_be_opened_is_reported_in_one_line(
    url: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError, match=told) as caught:
        SandboxDatabase(url)

    assert "\n" not in str(caught.value)


def test_a_driver_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(MissingExtra, match=r"pip install 'billhook\[postgres\]'"):
        SandboxDatabase("postgresql://127.0.0.1:1/x")
