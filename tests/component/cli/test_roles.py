"""What the server does not let the inbox's role do, as `doctor` and `status` say it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from billhook import gunicorn_conf
from billhook.doctor import inbox as judged
from billhook.inbox.tables.database import CONNECTIONS_PER_PROCESS
from billhook.inbox.tables.facts import ConnectionLimit
from support.inbox_view import incoming, open_inbox
from support.postgres import guest_of
from support.row_security import COMMANDS, protected_inbox
from support.signing import SECRET

DEPLOYING = Path(__file__).parents[3] / "deploy" / "README.md"


@pytest.fixture
def protected(database_url):
    with protected_inbox(database_url) as made:
        yield made


@pytest.fixture
def findings(run, protected):
    """Runs `doctor` for the role; returns the findings of this file by their code."""

    def examine(**options: str) -> dict[str, dict[str, str]]:
        done = run("doctor", "--json", INBOX_URL=protected.url, SECRETS=SECRET, ENGINE="worker", **options)
        codes = ("postgres-row-security", "postgres-connections")
        return {each["code"]: each for each in json.loads(done.stdout)["findings"] if each["code"] in codes}

    return examine


def test_doctor_names_the_tables_the_commands_and_statements_that_help(findings, protected):
    without = findings()
    protected.allow_all_but("delivery", "UPDATE")
    protected.allow("run", *COMMANDS)
    (found,) = findings().values()
    policies, remedy = found["remedy"].split("`")[1:4:2]
    for statement in policies.split("; "):
        protected.execute(statement)
    (noted,) = findings().values()
    protected.execute(remedy)

    assert without == findings() == {}
    assert (found["level"], noted["level"]) == ("error", "note")
    tables = "row security of billhook.delivery, billhook.run applies to the role"
    assert f"{tables} {protected.role}, and no policy allows it UPDATE of delivery" in found["what"]
    assert "a delivery is answered 200 and never handled" in found["why"]
    assert noted["what"].startswith(tables)


def test_status_does_not_say_that_all_is_well_where_row_security_refuses_plans(run, protected):
    opened = open_inbox(protected.url)
    opened.put(incoming("first"))
    protected.allow_all_but("delivery", "UPDATE")

    said = run("status", "--json", INBOX_URL=protected.url)

    assert json.loads(said.stdout)["summary"].startswith(
        "Needs attention: row security has no policy for UPDATE of delivery"
    )
    opened.close()


@pytest.mark.parametrize("of_what", ["ROLE", "DATABASE"])
def test_doctor_compares_the_limit_of_connections_with_what_processes_need(
    findings, protected, of_what, monkeypatch
):
    name = protected.role if of_what == "ROLE" else protected.admin.info.dbname
    found = {}
    for limit in (3, 11, 12):
        others = 0 if of_what == "ROLE" else 1  # the test's own
        protected.execute(f"ALTER {of_what} {name} CONNECTION LIMIT {limit + others}")
        found[limit] = findings().get("postgres-connections")

    assert [each and each["level"] for each in found.values()] == ["error", "warning", None]
    assert "2 web and 1 worker processes need 12, 4 each" in found[3]["what"]
    statement = f"ALTER {of_what} {name} CONNECTION LIMIT {12 + others}"
    assert f"have an administrator run `{statement}`" in found[3]["remedy"]
    protected.execute(f"ALTER {of_what} {name} CONNECTION LIMIT 12")
    monkeypatch.setenv("WEB_CONCURRENCY", "5")
    assert "5 web and 1 worker processes need 24" in findings()["postgres-connections"]["what"]


def test_the_servers_limit_counts_without_what_is_reserved_and_what_others_use(protected):
    def ask(name: str) -> int:
        return int(protected.admin.execute(f"SHOW {name}").fetchone()[0])

    opened = open_inbox(protected.url)
    facts = opened.database.facts()
    opened.close()
    (server,) = [each for each in facts.limits if each.of_what == "server"]
    tight = replace(facts, limits=[ConnectionLimit("server", "", 20, 9)], autovacuum=True)
    (found,) = tight.problems(2, 1)

    assert server.most <= ask("max_connections") - ask("superuser_reserved_connections")
    assert server.others >= 1  # the test's own
    assert found.what.startswith("the server may have 20 connections, of which others use 9: ")
    assert found.remedy.startswith("raise max_connections")
    assert list(tight.problems(1, 1)) == []


def test_a_superuser_has_no_limit_of_its_own(protected, database_url):
    with guest_of(database_url) as (role, url):
        protected.execute(f"ALTER ROLE {role} SUPERUSER CONNECTION LIMIT 3")
        opened = open_inbox(url)
        assert [each.of_what for each in opened.database.facts().limits] == ["server"]
        opened.close()


def test_the_page_has_the_number_that_doctor_counts_with():
    page = " ".join(DEPLOYING.read_text().split())

    assert f"Count on {CONNECTIONS_PER_PROCESS} connections for each web process and each worker" in page
    assert gunicorn_conf.workers == judged._WEB_PROCESSES
