"""The sandbox on PostgreSQL: its story is the one of SQLite, and its sessions may end."""

from __future__ import annotations

import logging
import threading
import time

import psycopg
import pytest

from billhook.clock import FrozenClock
from billhook.errors import ConfigError
from billhook.events import EVENT_TYPES
from billhook.sandbox import Sandbox, SandboxOptions
from billhook.sandbox.scenario import run_scenario
from support.postgres import fresh_schema, libpq, with_options
from support.sandbox import START, Running, running
from support.sandbox_pages import PagesBrowser, rules
from support.scenarios import invoices

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("impatient")]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell at once that a database is in use."""
    monkeypatch.setattr("billhook.sandbox.storage.database.LOCK_TIMEOUT_SECONDS", 0.3)


def story(**options: str) -> list[object]:
    """What the scenario of all events comes to: its events, invoices and pages."""
    with running(**options) as sandbox:
        for _ in run_scenario(sandbox.sandbox.call, "http://127.0.0.1:9/hook", START):
            sandbox.token = ""
        browser = PagesBrowser.logged_in(sandbox)
        billed = [(each["amount"], each["billingStatus"]) for each in invoices(sandbox)]
        pages = {rule: browser.client.get(rule).status_code for rule in rules("GET")}
        return [[event_type for event_type, _ in sandbox.raised()], billed, pages]


def test_the_scenario_of_all_events_is_the_same_as_on_sqlite(postgres_url: str) -> None:
    told = story(database_url=postgres_url)

    assert told == story()
    assert set(told[0]) == set(EVENT_TYPES)


def run(url: str, statement: str) -> list[tuple[object, ...]]:
    """Do something to a database behind the sandbox's back."""
    with psycopg.connect(**libpq(url), autocommit=True) as session:
        done = session.execute(statement.encode())
        return done.fetchall() if done.description else []


def test_tables_of_something_else_are_refused_and_those_of_another_schema_ignored(
    postgres_server, postgres_url: str
) -> None:
    with fresh_schema(postgres_server.url) as other_url:
        run(other_url, "CREATE TABLE delivery (id INTEGER)")
        with pytest.raises(ConfigError, match="holds tables of something else"):
            Sandbox(SandboxOptions(database_url=other_url))
        own, other = (run(url, "SELECT current_schema()")[0][0] for url in (postgres_url, other_url))
        for _ in range(2):
            with running(database_url=with_options(postgres_url, f"-csearch_path={own},{other}")) as sandbox:
                sandbox.ok("POST", "/_sandbox/customers", {"name": "Acme"})

        assert run(other_url, "SELECT count(*) FROM delivery") == [(0,)]


def test_a_missing_schema_is_reported_in_one_line(postgres_url: str) -> None:
    with pytest.raises(ConfigError, match="no schema has been selected to create in") as caught:
        Sandbox(SandboxOptions(database_url=with_options(postgres_url, "-csearch_path=nowhere")))

    assert "\n" not in str(caught.value)


def end_sessions(url: str) -> None:
    """As `pg_terminate_backend` does: the session that has the lock of this schema, and it alone."""
    ended = run(
        url,
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' "
        "AND classid = 1651076204 AND objid::bigint = hashtext(current_schema())::bigint & 4294967295",
    )
    assert ended == [(True,)]


def names(sandbox: Running) -> list[str]:
    return [one["name"] for one in sandbox.ok("GET", "/_sandbox/customers")["customers"]]


def test_a_sandbox_whose_session_was_ended_takes_the_database_again_and_writes_on(postgres_url: str) -> None:
    with running(database_url=postgres_url) as sandbox:
        for name in ("Acme", "Bolt"):
            end_sessions(postgres_url)
            sandbox.ok("POST", "/_sandbox/customers", {"name": name})

        with pytest.raises(ConfigError, match="another sandbox is using this database"):
            Sandbox(SandboxOptions(database_url=postgres_url))
        assert names(sandbox) == ["Acme", "Bolt"]


def test_a_sandbox_whose_database_was_taken_answers_503_and_writes_nothing(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with running(database_url=postgres_url) as first:
        first.ok("POST", "/_sandbox/customers", {"name": "Acme"})
        end_sessions(postgres_url)
        with running(database_url=postgres_url) as second:
            with caplog.at_level(logging.ERROR):
                answers = [first.call("POST", "/_sandbox/customers", {"name": "Bolt"}) for _ in range(2)]
                answers.append(first.call("GET", "/_sandbox/customers"))
                until_the_threads_end(first)
            kept = names(second)

    assert [answer.error() for answer in answers] == [(503, "api_error", "internal_error")] * 3
    assert "another sandbox has taken the database of this one" in answers[0].json["message"]
    assert kept == ["Acme"]
    said = "another sandbox has taken the database of this one: it answers 503 and sends no more"
    assert [record.message for record in caplog.records].count(said) == 1


def until_the_threads_end(sandbox: Running) -> None:
    """Those that send and follow the clock; the second sandbox has one of each, too."""
    ends_at = time.monotonic() + 120
    while sum(one.name in ("sandbox-sender", "sandbox-scheduler") for one in threading.enumerate()) > 2:
        assert time.monotonic() < ends_at
        time.sleep(0.01)


def test_a_sandbox_that_takes_its_database_again_has_the_time_that_another_set_meanwhile(
    postgres_url: str,
) -> None:
    options = SandboxOptions(database_url=postgres_url)
    with running(database_url=postgres_url) as first:
        end_sessions(postgres_url)
        second = Sandbox(options, clock=FrozenClock(START))
        second.call("POST", "/_sandbox/clock", {"advance": "P40D"})
        second.close()

        made = first.ok("POST", "/_sandbox/customers", {"name": "Acme"})

    assert made["customer"]["createdAt"] == "2026-02-19T12:00:00Z"
