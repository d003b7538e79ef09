"""Which database a URL means, and whether its schema is the one that this code was written for."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect

from billhook.errors import ConfigError, InboxUnavailable, SchemaMismatch
from billhook.inbox import Inbox
from billhook.inbox.tables.revision import REVISION
from billhook.inbox.tables.schema import metadata
from support.inbox_structure import structure
from support.inbox_view import change, incoming, open_inbox, place_of, rows, value

INVALID_URLS = [
    ("sqlite://", "must name a file: an inbox in memory would lose deliveries"),
    ("sqlite:///:memory:", "must name a file"),
    ("postgresql+psycopg2://u:hunter2hunter2@h/d", r"names 'postgresql\+psycopg2': an inbox is"),
    ("mysql://u:hunter2hunter2@h/d", "names 'mysql'"),
    ("u:hunter2hunter2@nonsense", "is no database URL: write sqlite:///PATH"),
    ("postgresql://u:hunter2hunter2@h:port/d", "is no database URL"),
    ("", "is no database URL"),
    (
        "postgresql://u:hunter2@/d?host=a&host=b&port=1",
        "names several hosts in a way that is not understood: wr",
    ),
    ("postgresql://u@h/d?passwd=hunter2", 'BILLHOOK_INBOX_URL: invalid connection option "passwd"'),
    ("postgresql://me:hun@ter2@h/billing", "has an @ too many: in a password write %40"),
    ("postgresql://me:hun@ter2/x@h/billing", "has an @ too many: in a password write %40"),
]


def test_an_invalid_inbox_url_is_refused_without_its_password():
    for url, text in INVALID_URLS:
        with pytest.raises(ConfigError, match=text) as caught:
            Inbox(url)
        assert "ter2" not in str(caught.value)


def _set_version(where, text):
    change(where, "UPDATE billhook_version SET version_num = ?, oldest_compatible = NULL", text)


def test_a_newer_schema_is_refused_by_every_use_and_unchanged(inbox, where):
    told = rf"has schema 9999, .* needs {REVISION}: it is newer than this billhook: upgrade the package"
    _set_version(where, "9999")
    uses = [inbox.prepare, inbox.upgrade, inbox.check_writable]
    uses += [lambda: inbox.received(1), lambda: inbox.put(incoming("k"))]

    for use in uses:
        with pytest.raises((SchemaMismatch, InboxUnavailable), match=told):
            use()

    assert value(where, "SELECT version_num FROM billhook_version") == "9999"


def test_a_refused_schema_leaves_no_connection_to_the_garbage_collector(inbox_url, where):
    _set_version(where, "9999")
    inbox = Inbox(inbox_url)
    gc.disable()
    try:
        before = len(list(Path("/dev/fd").iterdir()))
        for _ in range(5):
            with pytest.raises(SchemaMismatch):
                inbox.received(1)
        after = len(list(Path("/dev/fd").iterdir()))
    finally:
        gc.enable()

    assert after == before
    inbox.close()


def test_a_missing_schema_is_refused_with_the_command_and_not_made(bare_url):
    inbox = Inbox(bare_url)
    uses = [inbox.check_writable]
    if inbox.database.may_be_away:  # of a file, preparing makes it
        uses.append(inbox.prepare)

    for use in uses:
        told = rf"has schema none, .* needs {REVISION}: run `billhook db upgrade`"
        with pytest.raises(SchemaMismatch, match=told):
            use()

    assert structure(bare_url) == {}
    inbox.upgrade()
    inbox.check_writable()
    inbox.close()


def test_preparing_and_upgrading_again_change_nothing(inbox, inbox_url, where):
    inbox.put(incoming("k"))
    before = structure(inbox_url)

    open_inbox(where).close()
    inbox.upgrade()

    assert structure(inbox_url) == before
    assert value(where, "SELECT count(*) FROM delivery") == 1


def test_the_migrations_make_the_tables_of_the_code(bare_url):
    engine = create_engine(bare_url)
    metadata.create_all(engine)
    of_the_code = structure(bare_url)
    metadata.drop_all(engine)
    engine.dispose()
    inbox = Inbox(bare_url)

    inbox.upgrade()
    migrated = structure(bare_url)

    inbox.close()
    of_version = [name for name, *_ in migrated.pop("billhook_version")[0]]
    assert of_version == ["oldest_compatible", "released", "version_num"]
    assert migrated == of_the_code
    assert rows(place_of(bare_url), "SELECT version_num FROM billhook_version") == [(REVISION,)]


@pytest.mark.parametrize("bare_url", ["sqlite"], indirect=True)
def test_what_is_read_of_a_delivery_is_before_its_body(inbox_url):
    engine = create_engine(inbox_url)
    columns = [one["name"] for one in inspect(engine).get_columns("delivery")]
    engine.dispose()

    assert columns == [column.name for column in metadata.tables["delivery"].columns]
    assert columns[columns.index("body") + 1 :] == []


def test_a_table_of_the_code_that_no_migration_makes_would_be_caught(inbox_url, where):
    before = structure(inbox_url)

    change(where, "CREATE INDEX late ON run (delivery_id) WHERE state = 'due'")

    assert structure(inbox_url) != before


def test_an_upgrade_leaves_foreign_tables_alone(postgres_url):
    bare_url, where = postgres_url, place_of(postgres_url)
    change(where, "CREATE TABLE mine (x INTEGER)")
    change(where, "INSERT INTO mine VALUES (1)")
    inbox = Inbox(bare_url)

    inbox.upgrade()

    assert value(where, "SELECT x FROM mine") == 1
    inbox.close()


def test_a_foreign_table_of_our_name_is_a_plain_refusal(postgres_url):
    bare_url, where = postgres_url, place_of(postgres_url)
    change(where, "CREATE TABLE delivery (x INTEGER)")
    inbox = Inbox(bare_url)

    with pytest.raises(InboxUnavailable, match=r'(table|relation) "?delivery"? already exists'):
        inbox.upgrade()

    inbox.close()
