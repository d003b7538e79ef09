"""Where on PostgreSQL an inbox is: in a schema of its own, whatever else the database holds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import MetaData, create_engine
from sqlalchemy.engine import make_url

from billhook.errors import ConfigError, InboxUnavailable, SchemaForbidden, SchemaMismatch
from billhook.inbox import Inbox
from billhook.inbox.postgres.driver import schema_from_options
from billhook.inbox.tables.schema import metadata, version
from support.apps import make_app
from support.inbox_view import change, column, incoming, open_inbox, rows, upgraded, value
from support.postgres import guest_of, with_options
from support.runs import claim, planned, settle

TABLES = sorted([*metadata.tables, version.name])


def tables(url, schema):
    return sorted(column(url, "SELECT tablename FROM pg_tables WHERE schemaname = ?", schema))


def handle_one(inbox, key):
    """A delivery's whole way: stored, planned, claimed, settled; by statements of every kind."""
    planned(inbox, "h", key=key)
    assert len(settle(inbox, claim(inbox))) == 1


# --- out of the app's sight -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "schema", "other"),
    [("", "billhook", "public"), ('-csearch_path="My\\ hooks"', "My hooks", "billhook")],
)
def test_an_upgrade_makes_a_schema_and_everything_works_there(database_url, options, schema, other):
    url = upgraded(with_options(database_url, options))

    inbox = open_inbox(url)
    handle_one(inbox, "k1")
    handle_one(inbox, "k2")
    inbox.check_writable()
    inbox.waker.fileno()
    inbox.waker.wake()

    assert inbox.waker.wait(5)
    assert (inbox.database.schema, tables(database_url, schema), tables(database_url, other)) == (
        schema,
        TABLES,
        [],
    )
    stored = rows(database_url, f'SELECT key, state FROM "{schema}".delivery ORDER BY id')
    assert stored == [("k1", "done"), ("k2", "done")]


def test_every_connection_of_the_pool_looks_there_and_nowhere_else(database_url):
    inbox = open_inbox(upgraded(database_url))

    def ask(number):
        with inbox.database.write() as connection:
            return connection.exec_driver_sql("SHOW search_path").scalar_one()

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, range(64)))

    assert found == ['"billhook"'] * 64


def proposals(url, **options):
    """What alembic would write into a migration of an app that has no tables at all."""
    engine = create_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=options)
        found = compare_metadata(context, MetaData())
    engine.dispose()
    return sorted(change[1].name for change in found if change[0] == "remove_table")


def test_an_apps_migration_tool_sees_none_of_the_tables(database_url):
    upgraded(database_url)

    assert proposals(database_url) == []
    assert proposals(database_url, include_schemas=True) == TABLES  # who asks for all schemas gets them


@pytest.mark.slow
def test_tables_in_the_apps_own_schema_would_be_dropped_by_its_next_migration(database_url):
    Inbox(database_url, schema="public").upgrade()

    assert proposals(database_url) == TABLES


def test_two_inboxes_in_one_database_know_nothing_of_one_another(database_url):
    names = ("billhook", "billing_eu")
    for name in names:
        Inbox(database_url, schema=name).upgrade()
    for name in names:
        open_inbox(database_url, schema=name).put(incoming(name))

    assert [value(database_url, f"SELECT key FROM {name}.delivery") for name in names] == list(names)


# --- what may be said about the schema --------------------------------------------------------------


SCHEMAS = {
    "": "billhook",
    "-cstatement_timeout=5": "billhook",
    "-csearch_path=hooks": "hooks",
    "-c search_path=Hooks": "hooks",
    "--search-path=hooks": "hooks",
    '-cSearch_Path="My\\ ""hooks"""': 'My "hooks"',
    "-csearch_path=a -csearch_path=b": "b",
    "-csearch_path=hooks,public": "billhook",
    "-csearch_path=public": "billhook",
    '-csearch_path="$user"': "billhook",
    "-csearch_path=": "billhook",
}


def test_a_single_private_schema_in_the_url_is_the_inboxs_schema():
    assert {options: schema_from_options(options, "billhook") for options in SCHEMAS} == SCHEMAS


def test_a_name_that_would_need_care_is_refused():
    names = ["Billhook", "1st", "pg_mine", "a-b", 'a"; DROP SCHEMA public; --', "x" * 64, " "]
    for url, name in product(["sqlite:///billhook.db", "postgresql://u@h/d"], names):
        with pytest.raises(
            ConfigError, match=r"BILLHOOK_INBOX_SCHEMA is .*: it must be at most 63 of a to z"
        ):
            Inbox(url, schema=name)


def test_the_option_inbox_schema_selects_the_schema(database_url, tmp_path):
    Inbox(database_url, schema="hooks").upgrade()

    app = make_app(tmp_path, BILLHOOK_INBOX_URL=database_url, BILLHOOK_INBOX_SCHEMA="hooks")

    assert app.extensions["billhook"].inbox.database.schema == "hooks"
    app.extensions["billhook"].close()
    with pytest.raises(SchemaMismatch, match="has schema none"):
        Inbox(database_url).prepare()


# --- a role that may not ----------------------------------------------------------------------------


@pytest.fixture
def guest(database_url):
    """(role, URL) of somebody who may connect and nothing more."""
    with guest_of(database_url) as made:
        yield made


@pytest.mark.parametrize(
    ("exists", "statement"),
    [
        (False, 'CREATE SCHEMA "billhook" AUTHORIZATION "{role}"'),
        (True, 'GRANT USAGE, CREATE ON SCHEMA "billhook" TO "{role}"'),
    ],
)
def test_a_role_that_may_not_create_or_use_the_schema_gets_the_statement_to_run(
    guest, database_url, exists, statement
):
    role, url = guest
    if exists:
        change(database_url, "CREATE SCHEMA billhook")

    with pytest.raises(SchemaForbidden) as refused:
        upgraded(url)
    change(database_url, refused.value.statement)
    upgraded(url)

    told = statement.format(role=role)
    assert refused.value.statement == told
    assert str(refused.value).endswith(f"run: {told}; then run `billhook db upgrade` again")
    assert "\n" not in str(refused.value)
    handle_one(open_inbox(url), "k")


def test_an_unknown_role_raises_inbox_unavailable(database_url):
    nobody = make_url(database_url).set(username="no_such_role").render_as_string()

    with pytest.raises(InboxUnavailable, match="no_such_role"):
        Inbox(nobody).database.other_schemas()
