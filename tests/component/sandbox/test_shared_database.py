"""A database that is not the sandbox's: it is told in a line, and left as it was."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from billhook.errors import ConfigError
from billhook.sandbox import Sandbox, SandboxOptions
from support.templates import new_inbox

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
