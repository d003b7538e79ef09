"""`billhook sandbox` takes its database from the environment: a password has no place on a command line."""

from __future__ import annotations

import pytest

from billhook.settings import from_environ


@pytest.mark.parametrize("by", ["option", "environment"])
def test_the_sandbox_database_url_is_read_from_option_or_environment(run, monkeypatch, by):
    """Both ways are read: this one is refused, and its password not shown."""
    url = "mysql://me:hunter2@127.0.0.1/sandbox"
    arguments = ["--database", url] if by == "option" else []
    if by == "environment":
        monkeypatch.setenv("BILLHOOK_SANDBOX_DATABASE", url)

    result = run("sandbox", *arguments)

    assert result.exit_code == 2
    assert "the sandbox's database is a SQLite file" in result.output
    assert "hunter2" not in result.output


def test_the_variable_is_no_option_of_a_receiver():
    assert from_environ({"BILLHOOK_SANDBOX_DATABASE": "sqlite://", "BILLHOOK_SECRETS": "x"}) == {
        "BILLHOOK_SECRETS": "x"
    }
