"""`db current`, `db upgrade` and backups, standalone and in an app that refuses to start."""

from __future__ import annotations

import json
import re
import sys

import pytest

from billhook.errors import SchemaMismatch
from billhook.inbox import Inbox
from billhook.inbox.tables.revision import REVISION, any_schema
from support.inbox_view import change, incoming, open_inbox, place_of, rows, value
from support.next_release import NEXT, next_release
from support.postgres import BOTH, guest_of
from support.processes import clean_environment, run_command
from support.signing import SECRET

SHOP = """
from flask import Flask
from billhook import Billhook

app = Flask(__name__)
app.config.from_prefixed_env()
Billhook(app)
"""


@pytest.mark.parametrize("bare_url", BOTH, indirect=True)
def test_upgrade_makes_the_tables_and_needs_no_secret(run, bare_url):
    refused = run("deliveries", "list", INBOX_URL=bare_url)
    before = json.loads(run("db", "current", "--json", INBOX_URL=bare_url).stdout)
    first, second = (run("db", "upgrade", INBOX_URL=bare_url) for _ in range(2))

    assert refused.exit_code == 2
    assert "run `billhook db upgrade`" in refused.stderr
    assert (before["found"], before["needed"]) == (None, REVISION)
    assert first.stdout.splitlines()[0] == f"schema none -> {REVISION}"  # then those of other tests
    assert second.stdout == f"schema {REVISION}: nothing to do\n"
    assert value(place_of(bare_url), "SELECT count(*) FROM delivery") == 0
    current = run("db", "current", INBOX_URL=bare_url)
    assert current.exit_code == 0
    version, place = current.stdout.splitlines()
    assert version == f"schema {REVISION}, this billhook needs {REVISION}"
    assert place.startswith(f"inbox: {before['place']}")
    assert place.endswith(before["place"] if before["database_schema"] is None else before["database_schema"])


@pytest.mark.slow
def test_db_upgrade_names_the_inboxes_that_a_new_schema_leaves_behind(run, database_url):
    first = run("db", "upgrade", INBOX_URL=database_url)
    changed, again = (run("db", "upgrade", INBOX_URL=database_url, INBOX_SCHEMA="eu") for _ in range(2))

    assert first.stdout == f"schema none -> {REVISION}\n"
    assert changed.stdout == (
        f"schema none -> {REVISION}\nanother inbox stays in the schema billhook: to use it, set "
        "BILLHOOK_INBOX_SCHEMA=billhook\n"
    )
    assert again.stdout == f"schema {REVISION}: nothing to do\n"


def test_db_upgrade_refuses_a_newer_schema(run, inbox_url, where):
    change(where, "UPDATE billhook_version SET version_num = '9999'")

    current, refused = run("db", "current"), run("db", "upgrade")

    assert "schema 9999" in current.stdout
    assert "upgrade the package" in current.stdout
    assert refused.exit_code == 2
    assert "it is newer than this billhook" in refused.stderr
    assert value(where, "SELECT version_num FROM billhook_version") == "9999"


def test_of_an_inbox_of_before_the_first_release_nobody_says_that_an_upgrade_helps(run, inbox_url, where):
    opened = open_inbox(where)
    opened.close()
    change(where, "ALTER TABLE billhook_version DROP COLUMN released")
    change(where, "UPDATE billhook_version SET version_num = '0009'")

    current, as_json = run("db", "current"), json.loads(run("db", "current", "--json").stdout)
    doctor = run("doctor", "--json", SECRETS=SECRET)
    with pytest.raises(SchemaMismatch) as in_use:
        opened.check_writable()
    refused = run("db", "upgrade")

    assert refused.exit_code == 2
    what = "no release upgrades: have that billhook handle what waits in it, then name an empty database"
    assert f"schema 0009, this billhook needs {REVISION}: it is of an unreleased billhook, which {what}" in (
        current.stdout
    )
    (found,) = [one for one in json.loads(doctor.stdout)["findings"] if one["code"] == "inbox"]
    for text in (as_json["remedy"], found["remedy"], str(in_use.value), refused.stderr):
        assert text.count(what) == 1
        assert "db upgrade" not in text
    named = f"the inbox {opened.database.display_url} has schema 0009 without"
    assert (found["level"], found["what"]) == ("error", f"{named} billhook_version.released")
    opened.close()


def test_db_current_says_what_an_administrator_has_to_do_before_an_upgrade(run, database_url):
    with guest_of(database_url) as (_, url):
        current, refused = (run("db", command, INBOX_URL=url) for command in ("current", "upgrade"))
        own = run("db", "current", INBOX_URL=database_url)

    (remedy,) = re.findall("have an administrator run: .*", refused.stderr)
    assert current.stdout.splitlines()[0] == f"schema none, this billhook needs {REVISION}: {remedy}"
    assert (
        own.stdout.splitlines()[0]
        == f"schema none, this billhook needs {REVISION}: run `billhook db upgrade`"
    )
    assert rows(database_url, "SELECT 1 FROM pg_namespace WHERE nspname = 'billhook'") == []


def test_doctor_and_status_say_that_a_newer_schema_is_only_stored_in(run, inbox_url, tmp_path):
    with next_release(tmp_path / "next", oldest_compatible=REVISION):
        Inbox(inbox_url).upgrade()

    doctor = run("doctor", "--json", SECRETS=SECRET)
    status, current = run("status"), run("db", "current")
    refused = run("db", "upgrade")

    told = (
        f"the inbox has schema {NEXT}, this billhook needs {REVISION}: it is newer than this billhook, which "
        "stores deliveries only: upgrade the package"
    )
    (found,) = [one for one in json.loads(doctor.stdout)["findings"] if one["code"] == "inbox"]
    assert (found["level"], found["what"]) == ("warning", told)
    assert (status.exit_code, status.stderr.splitlines()[-1]) == (2, f"Error: {told}")
    assert current.stdout.startswith(f"schema {NEXT}, this billhook needs {REVISION}: it is newer than this")
    assert current.exit_code == 1
    assert refused.exit_code == 2


def flask(folder, url, *arguments):
    (folder / "shop.py").write_text(SHOP)
    environ = clean_environment(FLASK_BILLHOOK_SECRETS=SECRET, FLASK_BILLHOOK_INBOX_URL=url)
    command = [sys.executable, "-m", "flask", "--app", "shop", "billhook", *arguments]
    return run_command(command, cwd=folder, env=environ)


@pytest.mark.slow
def test_db_upgrade_works_for_an_app_that_refuses_to_start(tmp_path, postgres_url):
    refused = flask(tmp_path, postgres_url, "deliveries", "list")
    before = flask(tmp_path, postgres_url, "db", "current", "--json")
    upgraded = flask(tmp_path, postgres_url, "db", "upgrade")
    listed = flask(tmp_path, postgres_url, "deliveries", "list")

    assert refused.returncode == 2
    assert refused.stderr.endswith("run `flask --app shop billhook db upgrade`\n")
    assert json.loads(before.stdout)["found"] is None
    assert (upgraded.returncode, upgraded.stdout.splitlines()[0]) == (0, f"schema none -> {REVISION}")
    assert (listed.returncode, listed.stdout) == (0, "no deliveries match\n")


@pytest.mark.slow
def test_db_upgrade_creates_an_apps_missing_file(tmp_path):
    (tmp_path / "new").mkdir()
    url = f"sqlite:///{tmp_path / 'new' / 'billhook.db'}"

    current = flask(tmp_path, url, "db", "current")
    made_by_looking = (tmp_path / "new" / "billhook.db").exists()
    upgraded = flask(tmp_path, url, "db", "upgrade")

    assert current.stdout.startswith(
        f"schema none, this billhook needs {REVISION}: run `flask --app shop billhook db upgrade`\n"
    )
    assert not made_by_looking
    assert upgraded.stdout == f"schema none -> {REVISION}\n"
    assert value(tmp_path / "new" / "billhook.db", "SELECT count(*) FROM delivery") == 0


def test_only_the_commands_that_need_it_take_any_schema(run, inbox_url, where):
    run("db", "upgrade")
    change(where, "UPDATE billhook_version SET version_num = '9999'")

    assert not any_schema.get()
    with pytest.raises(SchemaMismatch, match="it is newer than this billhook"):
        open_inbox(where)
    token = any_schema.set(True)
    open_inbox(where).close()
    any_schema.reset(token)


@pytest.mark.parametrize("bare_url", BOTH, indirect=True)
def test_serve_prints_the_inbox_url_without_its_password(run, tmp_path, inbox_url, where, monkeypatch):
    monkeypatch.setattr("billhook.supervising.processes.Supervisor.run", lambda self: 0)
    known = inbox_url.replace("//postgres@", "//postgres:hunter2hunter2@")

    result = run("serve", "--bind", f"unix:{tmp_path / 'socket'}", SECRETS=SECRET, INBOX_URL=known)

    assert result.exit_code == 0, result.output
    (told,) = [line for line in result.stdout.splitlines() if line.startswith("Inbox:")]
    assert told.split()[1].startswith("postgresql+psycopg://" if "postgresql" in known else str(where))
    assert "hunter2" not in result.output
    assert "options" not in told


# --- backups ----------------------------------------------------------------------------------------


def test_a_backup_is_made_and_put_back(run, tmp_path):
    path = tmp_path / "billhook.db"
    inbox = open_inbox(path)
    inbox.put(incoming("k1"))

    made = run("db", "backup", "copy.db")
    again = run("db", "backup", "copy.db")
    inbox.put(incoming("k2"))
    inbox.close()
    refused = run("db", "restore", "copy.db", stdin="n\n")
    between = value(path, "SELECT count(*) FROM delivery")
    restored = run("db", "restore", "copy.db", "--yes")
    missing = run("db", "restore", "nothing.db")  # not asked first
    path.unlink()
    anew = run("db", "restore", "copy.db")

    assert (made.exit_code, made.stdout) == (0, "copy.db: 1 delivery\n")
    assert (again.exit_code, again.stderr) == (
        2,
        "Error: copy.db is there already: a backup replaces no file\n",
    )
    assert refused.exit_code == 1
    assert between == 2
    assert (restored.exit_code, restored.stdout) == (0, f"{path}: 1 delivery\n")
    assert (missing.exit_code, missing.stderr) == (2, "Error: there is no backup nothing.db\n")
    assert (anew.exit_code, anew.stdout) == (0, f"{path}: 1 delivery\n")
    assert value(path, "SELECT key FROM delivery") == "k1"


@pytest.mark.slow
def test_backup_and_restore_in_an_app_use_the_apps_inbox(tmp_path):
    url = f"sqlite:///{tmp_path / 'inbox.db'}"
    missing = flask(tmp_path, url, "db", "backup", "copy.db")
    open_inbox(tmp_path / "inbox.db").close()

    made = flask(tmp_path, url, "db", "backup", "copy.db")
    restored = flask(tmp_path, url, "db", "restore", "copy.db", "--yes")

    no_inbox = f"Error: there is no inbox to back up at {tmp_path / 'inbox.db'}: set BILLHOOK_INBOX_URL; "
    no_options = "no BILLHOOK_ variable is set in this environment: the service's environment has them\n"
    assert (missing.returncode, missing.stderr) == (2, no_inbox + no_options)
    assert (made.returncode, made.stdout) == (0, "copy.db: 0 deliveries\n")
    assert (restored.returncode, restored.stdout) == (0, f"{tmp_path / 'inbox.db'}: 0 deliveries\n")
