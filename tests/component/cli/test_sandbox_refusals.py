"""`billhook sandbox` with arguments that it cannot work with: a line says so, and nothing is left behind."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from billhook.settings import from_environ


def refused(run, *arguments: str, **options: str) -> str:
    """What is said to a command that cannot work."""
    done = run("sandbox", *arguments, **options)
    assert done.exit_code == 2, done.output
    assert isinstance(done.exception, SystemExit)
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("by", ["option", "environment"])
def test_the_databases_url_is_taken_from_both_and_its_password_is_not_repeated(run, by) -> None:
    url = "postgresql+psycopg://me:tell-nobody@127.0.0.1:1/x"

    told = refused(run, "--database", url) if by == "option" else refused(run, SANDBOX_DATABASE=url)

    assert "is a SQLite file" in told
    assert "tell-nobody" not in told


def test_the_sandboxs_variable_is_no_option_of_a_receiver() -> None:
    others = {"BILLHOOK_SANDBOX_DATABASE": "sqlite://", "BILLHOOK_SPEC": "x", "PATH": "z"}

    assert from_environ({**others, "BILLHOOK_SECRETS": "x"}) == {"BILLHOOK_SECRETS": "x"}


def test_the_receivers_database_is_refused_and_unchanged(run, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "billhook.db")) as inbox:
        inbox.execute("CREATE TABLE delivery (id INTEGER)")
    before = (tmp_path / "billhook.db").read_bytes()

    said = refused(run, "--database", "sqlite:///billhook.db")

    assert said == (
        "Error: the sandbox's database holds tables of something else: give the sandbox a file of its own\n"
    )
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("billhook.db", before)]
