"""Where on PostgreSQL an inbox is: in a schema of its own, whatever else the database holds."""

from __future__ import annotations

import contextlib
import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import product

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import MetaData, create_engine
from sqlalchemy.engine import make_url

from billhook.errors import ConfigError, InboxElsewhere, InboxUnavailable, SchemaForbidden, SchemaMismatch
from billhook.inbox import Inbox, RunPlan, RunResult, RunState
from billhook.inbox.postgres.schemas import schema_from_options
from support.apps import make_app
from support.inbox_view import NOON, change, incoming, open_inbox, postgres, rows, upgraded, value
from support.postgres import with_options
from support.proxy import proxied

TABLES = [
    "billhook_action",
    "billhook_count",
    "billhook_handler",
    "billhook_version",
    "billhook_worker",
    "delivery",
    "failure",
    "run",
]


def tables(url, schema):
    found = rows(url, "SELECT tablename FROM pg_tables WHERE schemaname = ? ORDER BY 1", schema)
    return [name for (name,) in found]


def handle_one(inbox, key):
    """A delivery's whole way: stored, planned, claimed, settled; by statements of every kind."""
    delivery_id = inbox.put(incoming(key)).delivery_id
    with inbox.transaction("me") as transaction:
        assert transaction.plan([RunPlan(delivery_id, ("h",))], NOON) == [delivery_id]
        (claim,) = transaction.claim(9, NOON, NOON + timedelta(minutes=1))
        transaction.settle([RunResult(claim.run_id, claim.token, delivery_id, 1, RunState.SUCCEEDED, NOON)])
    return delivery_id


@contextlib.contextmanager
def closing_inbox(url, **options):
    inbox = open_inbox(url, **options)
    try:
        yield inbox
    finally:
        inbox.close()


@pytest.fixture
def old_url(database_url):
    """A database whose inbox is where earlier versions kept it, beside a table of the app."""
    Inbox(database_url, schema="public").upgrade()
    with closing_inbox(database_url, schema="public") as inbox:
        handle_one(inbox, "old")
    change(database_url, "CREATE TABLE mine (x INTEGER)")
    return database_url


# --- out of the app's sight -------------------------------------------------------------------------


def test_an_upgrade_makes_a_schema_and_everything_works_there(database_url):
    upgraded(database_url)

    with closing_inbox(database_url) as inbox:
        handle_one(inbox, "k1")
        handle_one(inbox, "k2")
        inbox.check_writable()
        inbox.waker.fileno()
        inbox.waker.wake()
        assert inbox.waker.wait(5)

    assert tables(database_url, "billhook") == TABLES
    assert tables(database_url, "public") == []
    assert rows(database_url, "SELECT key, state FROM billhook.delivery ORDER BY id") == [
        ("k1", "done"),
        ("k2", "done"),
    ]


def test_every_connection_of_the_pool_looks_there_and_nowhere_else(database_url):
    upgraded(database_url)

    def ask(number):
        with inbox.database.write() as connection:
            return connection.exec_driver_sql("SHOW search_path").scalar_one()

    with closing_inbox(database_url) as inbox, ThreadPoolExecutor(8) as pool:
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
def test_tables_in_the_apps_own_schema_would_be_dropped_by_its_next_migration(old_url):
    assert proposals(old_url) == sorted([*TABLES, "mine"])


def test_two_inboxes_in_one_database_know_nothing_of_one_another(database_url):
    names = ("billhook", "billing_eu")
    for name in names:
        Inbox(database_url, schema=name).upgrade()
    for name in names:
        with closing_inbox(database_url, schema=name) as inbox:
            inbox.put(incoming(name))

    assert [value(database_url, f"SELECT key FROM {name}.delivery") for name in names] == list(names)


# --- an inbox of an earlier version -----------------------------------------------------------------


@pytest.mark.slow
def test_an_inbox_in_its_former_place_is_named_and_left_there(old_url, tmp_path, caplog):
    told = (
        "the inbox is in the schema 'public', where an earlier billhook kept it, and now belongs into "
        "'billhook': run `billhook db upgrade`, which moves it"
    )

    with pytest.raises(InboxElsewhere) as refused:
        open_inbox(old_url)
    make_app(tmp_path, BILLHOOK_INBOX_URL=old_url)

    assert str(refused.value) == told
    assert "billhook db upgrade`, which moves it" in caplog.text
    assert (refused.value.former, refused.value.found) == ("public", None)
    assert tables(old_url, "public") == sorted([*TABLES, "mine"])


@pytest.mark.slow
def test_an_upgrade_moves_the_inbox_and_listeners_continue(old_url):
    content = [rows(old_url, f"SELECT * FROM public.{name}") for name in TABLES]
    with contextlib.closing(Inbox(old_url, schema="public")) as listener:
        listener.waker.fileno()

        moved_from = Inbox(old_url).upgrade()

        with closing_inbox(old_url) as inbox:
            assert handle_one(inbox, "new") == 2
            inbox.waker.wake()
            assert listener.waker.wait(5)
    assert moved_from == "public"
    assert all(content[TABLES.index(name)] for name in ("billhook_version", "delivery", "run"))
    assert [rows(old_url, f"SELECT * FROM billhook.{name} LIMIT 1") for name in TABLES] == [
        one[:1] for one in content
    ]
    assert tables(old_url, "public") == ["mine"]
    assert (
        value(
            old_url,
            "SELECT count(*) FROM pg_class WHERE relkind = 'S' AND relnamespace = 'public'::regnamespace",
        )
        == 0
    )
    assert Inbox(old_url).upgrade() is None


@pytest.mark.slow
def test_a_process_of_the_earlier_version_stores_nothing_after_the_move(old_url):
    with closing_inbox(old_url, schema="public") as old:
        old.put(incoming("before"))
        Inbox(old_url).upgrade()

        with pytest.raises(InboxUnavailable, match='relation "delivery" does not exist'):
            old.put(incoming("after"))


@pytest.mark.slow
def test_a_move_that_finds_a_table_of_that_name_there_changes_nothing(old_url):
    change(old_url, "CREATE SCHEMA billhook")
    change(old_url, "CREATE TABLE billhook.run (x INTEGER)")

    with pytest.raises(InboxUnavailable, match='"run" already exists in schema "billhook"'):
        Inbox(old_url).upgrade()

    assert tables(old_url, "public") == sorted([*TABLES, "mine"])
    assert tables(old_url, "billhook") == ["run"]


@pytest.mark.slow
def test_the_former_place_is_where_the_session_would_have_looked(database_url):
    change(database_url, "CREATE SCHEMA app")
    both = with_options(database_url, "-csearch_path=app,public")
    Inbox(database_url, schema="app").upgrade()

    assert Inbox(database_url).database.former_schema() is None
    assert Inbox(both).database.former_schema() == "app"
    assert Inbox(both).upgrade() == "app"
    assert tables(database_url, "billhook") == TABLES


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


def test_an_inbox_stays_in_the_schema_that_its_url_names(database_url):
    named = with_options(database_url, '-csearch_path="My\\ hooks"')

    upgraded(named)

    with closing_inbox(named) as inbox:
        handle_one(inbox, "k")
        assert inbox.database.schema == "My hooks"
    assert tables(database_url, "My hooks") == TABLES
    assert tables(database_url, "billhook") == []


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


def test_a_pooler_that_drops_search_path_is_refused_unless_configured(database_url):
    upgraded(database_url)
    with proxied(database_url) as proxy:
        proxy.altered = b"search_path=", b"search.path="  # a setting of that name is nobody's

        with pytest.raises(
            InboxUnavailable, match=r"search_path is '.*public', need .*set it with ALTER ROLE"
        ):
            open_inbox(proxy.url)
        upgraded(proxy.url)  # says it in its transaction
        change(database_url, f"ALTER DATABASE {make_url(database_url).database} SET search_path = billhook")

        with closing_inbox(proxy.url) as inbox:
            handle_one(inbox, "k")
    assert value(database_url, "SELECT key FROM billhook.delivery") == "k"


# --- a role that may not ----------------------------------------------------------------------------


@pytest.fixture
def guest(database_url):
    """(role, URL) of somebody who may connect and nothing more."""
    role = f"guest_{os.getpid()}_{secrets.token_hex(4)}"
    with postgres(database_url) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN")
        yield role, make_url(database_url).set(username=role).render_as_string(hide_password=False)
        admin.execute(f"DROP OWNED BY {role} CASCADE")
        admin.execute(f"DROP ROLE {role}")


def test_a_role_that_may_not_create_the_schema_gets_the_statement_to_run(guest, database_url):
    role, url = guest

    with pytest.raises(SchemaForbidden) as refused:
        upgraded(url)
    change(database_url, refused.value.statement)
    upgraded(url)

    assert refused.value.statement == f'CREATE SCHEMA "billhook" AUTHORIZATION "{role}"'
    assert str(refused.value).endswith(
        f"run: {refused.value.statement}; then run `billhook db upgrade` again"
    )
    assert "\n" not in str(refused.value)
    with closing_inbox(url) as inbox:
        handle_one(inbox, "k")


def test_a_role_that_may_not_use_the_schema_gets_the_statement_to_run(guest, database_url):
    role, url = guest
    change(database_url, "CREATE SCHEMA billhook")

    with pytest.raises(SchemaForbidden) as refused:
        upgraded(url)
    change(database_url, refused.value.statement)
    upgraded(url)

    assert refused.value.statement == f'GRANT USAGE, CREATE ON SCHEMA "billhook" TO "{role}"'
    assert tables(database_url, "billhook") == TABLES


@pytest.mark.slow
def test_a_role_that_may_not_move_the_tables_gets_the_statement_to_run(guest, old_url):
    role, url = guest
    change(old_url, f'CREATE SCHEMA "billhook" AUTHORIZATION {role}')

    with pytest.raises(
        SchemaForbidden, match=r'ALTER TABLE "public".delivery SET SCHEMA "billhook"; ALTER'
    ) as refused:
        upgraded(url)
    before = tables(old_url, "public")
    with postgres(old_url) as admin:
        admin.execute(refused.value.statement)

    assert before == sorted([*TABLES, "mine"])
    assert tables(old_url, "billhook") == TABLES


def test_an_unknown_role_raises_inbox_unavailable(database_url):
    nobody = make_url(database_url).set(username="no_such_role").render_as_string()

    with pytest.raises(InboxUnavailable, match="no_such_role"):
        Inbox(nobody).database.former_schema()
