"""From one schema to the next, with all that is in the inbox; and what no upgrade leads from."""

from __future__ import annotations

import re

import pytest

from billhook.errors import ConfigError, SchemaMismatch, UnreleasedSchema
from billhook.inbox import Inbox, RunState
from billhook.inbox.tables.revision import REVISION
from support.inbox_structure import structure
from support.inbox_view import change, incoming, place_of, rows, value
from support.next_release import NEXT, next_release
from support.runs import claim, planned, settle


@pytest.fixture
def used(inbox):
    """An inbox with a delivery that failed once, and one that no worker has read."""
    planned(inbox, "h", key="k1")
    settle(inbox, claim(inbox), RunState.DUE, due=0)
    inbox.put(incoming("k2"))
    return inbox


def content(where):
    tables = ("delivery", "run", "failure")
    return {table: [row[:9] for row in rows(where, f"SELECT * FROM {table} ORDER BY id")] for table in tables}


@pytest.mark.usefixtures("used")
def test_the_next_migration_keeps_every_row(inbox_url, where, tmp_path):
    before = content(where)

    with next_release(tmp_path):
        Inbox(inbox_url).upgrade()

    assert content(where) == before
    assert all(before.values())
    assert rows(where, "SELECT region, key FROM delivery ORDER BY id") == [("eu", "k1"), ("eu", "k2")]
    assert rows(where, "SELECT handler, attempts, note FROM run") == [("h", 1, None)]
    assert value(where, "SELECT version_num FROM billhook_version") == NEXT


@pytest.mark.usefixtures("used")
def test_an_upgrade_that_fails_changes_nothing(inbox_url, where, tmp_path):
    change(where, "CREATE TABLE billhook_region (x INTEGER)")
    before = content(where)

    with next_release(tmp_path), pytest.raises(Exception, match=r"billhook_region.* already exists"):
        Inbox(inbox_url).upgrade()

    assert content(where) == before
    assert value(where, "SELECT version_num FROM billhook_version") == REVISION


def test_an_inbox_that_was_not_upgraded_is_refused_with_the_command(inbox_url, tmp_path):
    with (
        next_release(tmp_path),
        pytest.raises(
            SchemaMismatch, match=rf"has schema {REVISION}, .* needs {NEXT}: run `billhook db upgrade`"
        ),
    ):
        Inbox(inbox_url).check_writable()


# --- an inbox of before the first release -----------------------------------------------------------

CHANGES = {
    "run.beside_others": "ALTER TABLE run DROP COLUMN beside_others",
    "billhook_release.first_at": "DROP TABLE billhook_release",
    "billhook_version.released": "ALTER TABLE billhook_version DROP COLUMN released",
}
"""What an inbox of before the first release lacks, and how it is made of one that has it."""
UNRELEASED = [
    ("0001", "run.beside_others"),  # the number of a release
    ("0001", "billhook_release.first_at"),
    ("0009", "billhook_version.released"),
    ("0016", "billhook_version.released"),
]


def refusal(place, revision, missing):
    return (
        f"the inbox {place} has schema {revision} without {missing}: it is of an unreleased billhook, which "
        "no release upgrades: have that billhook handle what waits in it, then name an empty database in "
        "BILLHOOK_INBOX_URL"
    )


def make_unreleased(where, revision, missing):
    """Make an inbox one that a development version left."""
    change(where, CHANGES[missing])
    change(where, "UPDATE billhook_version SET version_num = ?, oldest_compatible = '0001'", revision)


@pytest.mark.parametrize(("revision", "missing"), UNRELEASED)
def test_an_inbox_of_an_unreleased_billhook_is_refused_and_unchanged(bare_url, revision, missing):
    where = place_of(bare_url)
    Inbox(bare_url).upgrade()
    make_unreleased(where, revision, missing)
    before = structure(bare_url)
    inbox = Inbox(bare_url)

    for use in (inbox.upgrade, inbox.prepare, inbox.check_writable, lambda: inbox.received(1)):
        with pytest.raises(UnreleasedSchema) as refused:
            use()
        assert str(refused.value) == refusal(inbox.database.display_url, revision, missing)

    assert value(where, "SELECT version_num FROM billhook_version") == revision
    assert structure(bare_url) == before
    inbox.close()


@pytest.mark.parametrize("bare_url", ["sqlite"], indirect=True)
def test_a_backup_of_an_unreleased_billhook_is_not_restored(bare_url, tmp_path):
    inbox = Inbox(bare_url)
    inbox.upgrade()
    inbox.close()
    backup = tmp_path / "backup.db"
    inbox.database.back_up(backup, lambda *_: None)
    make_unreleased(backup, *UNRELEASED[0])

    with pytest.raises(ConfigError, match=re.escape(refusal(backup, *UNRELEASED[0]))):
        inbox.database.restore(backup, lambda *_: None)


@pytest.mark.parametrize("bare_url", ["sqlite"], indirect=True)
def test_control_rebuilding_a_table_with_foreign_keys_on_loses_references(inbox):
    """The control of the upgrade's connection: SQLite deletes a dropped table's rows, and what is of them."""
    planned(inbox, "h")

    for write, left in ((inbox.database.migration_transaction, 1), (inbox.database.write, 0)):
        with write() as connection:
            connection.exec_driver_sql("CREATE TABLE anew AS SELECT * FROM delivery")
            connection.exec_driver_sql("DROP TABLE delivery")
            found = connection.exec_driver_sql("SELECT count(*) FROM run").scalar_one()
            connection.exec_driver_sql("ROLLBACK")
            connection.exec_driver_sql("BEGIN")
        assert found == left
