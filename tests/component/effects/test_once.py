"""`delivery.once` on the user's own SQLite and PostgreSQL: True in one transaction that is committed."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import sys
import threading
import types
from contextlib import closing

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from billhook import effects
from billhook.errors import ConfigError
from support.inbox_view import column, place_of, rows, value
from support.own_database import OPENED, by_driver, connect, is_first, make_delivery, once
from support.postgres import libpq
from support.processes import run_command, together, until


@pytest.fixture(params=OPENED)
def opened(request):
    """A way to open a transaction."""
    return OPENED[request.param]


by_two_ways = pytest.mark.parametrize("opened", ["driver", "session"], indirect=True)
"""A DB-API connection and SQLAlchemy: how each of the five is used is shown with all of them above."""


# --- the first time -------------------------------------------------------------------------------


def test_it_is_true_once_for_each_handler_delivery_and_replay(url, opened):
    different = [
        make_delivery(),
        make_delivery(handler="shop.tell"),
        make_delivery("msg_2"),
        make_delivery("MSG_1"),
        make_delivery(source="partner"),
        make_delivery(variant="PaymentFailed"),
        make_delivery(replays=1),
    ]

    assert [once(opened, url, each) for each in different] == [True] * 7
    assert [once(opened, url, each) for each in different] == [False] * 7
    assert once(opened, url, make_delivery(id=9, attempt=4)) is False


@by_two_ways
def test_the_transaction_goes_on_after_either_answer(url, opened):
    with opened(url) as transaction:
        assert [is_first(transaction, key) for key in ("a", "a", "b", "b")] == [True, False, True, False]
        transaction.commit()

    stored = column(place_of(url), "SELECT idempotency_key FROM billhook_effect ORDER BY 1")
    assert stored == ["default:a", "default:b"]


def test_the_row_says_whose_effect_it_is_and_when_it_was_made(url):
    once(by_driver, url, make_delivery(replays=2))

    ((*facts, done_at),) = rows(
        place_of(url), "SELECT handler, idempotency_key, replays, done_at FROM billhook_effect"
    )
    assert facts == ["shop.book", "default:msg_1", 2]
    assert done_at[:2] == "20"


def test_on_another_database_a_savepoint_keeps_the_transaction_usable(url, monkeypatch):
    monkeypatch.setattr(effects, "_INSERTS", {})

    with create_engine(url, poolclass=NullPool).connect() as connection:
        assert [is_first(connection, key) for key in ("a", "a", "b")] == [True, False, True]
        connection.commit()

    assert value(place_of(url), "SELECT count(*) FROM billhook_effect") == 2


# --- two at once ----------------------------------------------------------------------------------


@by_two_ways
@pytest.mark.parametrize(("end", "second_is_first"), [("commit", False), ("rollback", True)])
def test_the_second_of_two_concurrent_attempts_waits_for_the_first(url, opened, end, second_is_first):
    answers: list[object] = []

    with opened(url) as transaction:
        assert is_first(transaction)
        thread = threading.Thread(target=lambda: answers.append(once(opened, url, make_delivery())))
        thread.start()
        until(lambda: waits(url, thread), 20)
        assert answers == []
        getattr(transaction, end)()
        thread.join(20)

    assert answers == [second_is_first]


def waits(url, thread):
    """Whether the thread waits for a row; on SQLite for the file, which nobody can see from outside."""
    if url.startswith("sqlite"):
        thread.join(0.3)
        return True
    waiting = "SELECT count(*) FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE wait_event_type = 'Lock'"
    return value(url, f"{waiting} AND relation = 'billhook_effect'::regclass") == 1


def test_an_attempt_that_waits_too_long_fails_and_changes_nothing(url):
    if url.startswith("sqlite"):
        given = {"timeout": 0.01}
    else:
        given = {"options": f"{libpq(url)['options']} -clock_timeout=50"}
    with closing(connect(url)) as first, closing(connect(url, **given)) as second:
        assert is_first(first)
        with pytest.raises((sqlite3.OperationalError, psycopg.errors.LockNotAvailable), match="lock"):
            is_first(second)
        first.commit()
        second.rollback()

        assert not is_first(second)


# --- connections that cannot be used --------------------------------------------------------------


def test_a_connection_that_commits_each_statement_is_refused(url):
    autocommit = {"isolation_level": None} if url.startswith("sqlite") else {"autocommit": True}
    with closing(connect(url, **autocommit)) as connection:
        with pytest.raises(
            ConfigError, match=r"commits each statement by itself .autocommit., so the effect"
        ):
            is_first(connection)
        connection.execute("BEGIN")
        assert is_first(connection)
        connection.execute("ROLLBACK")
    option = {"isolation_level": "AUTOCOMMIT"}
    for connected in (
        create_engine(url, poolclass=NullPool).connect().execution_options(**option),
        create_engine(url, poolclass=NullPool, **option).connect(),
    ):
        with connected, pytest.raises(ConfigError, match="commits each statement by itself"):
            is_first(connected)

    assert value(place_of(url), "SELECT count(*) FROM billhook_effect") == 0


class AutocommitConnection(sqlite3.Connection):
    """As Python 3.12 and later make them with `autocommit=True`, whatever their isolation level."""

    autocommit = True


def test_the_autocommit_of_newer_pythons_is_refused_too(tmp_path):
    with closing(sqlite3.connect(tmp_path / "own.db", factory=AutocommitConnection)) as connection:
        assert connection.isolation_level is not None
        with pytest.raises(ConfigError, match="commits each statement by itself"):
            is_first(connection)


def test_a_psycopg_transaction_block_is_a_transaction(postgres_url):
    with closing(connect(postgres_url, autocommit=True)) as connection:
        effects.create_all(connection)
        with connection.transaction():
            assert is_first(connection)
        with connection.transaction():
            assert not is_first(connection)


def test_a_driver_that_does_not_tell_what_it_inserted_is_refused(postgres_url):
    with closing(connect(postgres_url)) as connection:
        effects.create_all(connection)
        connection.commit()
        message = r"reported -1 inserted rows .* outside of psycopg's pipeline mode"
        with pytest.raises(ConfigError, match=message), connection.pipeline():
            is_first(connection)
        connection.rollback()

        assert is_first(connection)


@by_two_ways
def test_a_database_without_the_table_says_how_to_get_it(bare_url, opened):
    message = r"has no table billhook_effect .* billhook\.effects\.create_all"
    with opened(bare_url) as transaction, pytest.raises(ConfigError, match=message):
        is_first(transaction)


def test_another_error_of_the_database_is_left_as_it_is(url):
    with closing(connect(url)) as connection:
        connection.close()
        with pytest.raises((sqlite3.ProgrammingError, psycopg.OperationalError), match="closed"):
            is_first(connection)


def test_anything_without_a_transaction_of_its_own_is_refused():
    for target, message in [
        (
            create_engine("sqlite://"),
            r"once\(\) got sqlalchemy.engine.base.Engine: it takes a SQLAlchemy sess",
        ),
        ("shop.db", r"once\(\) got builtins.str: it takes"),
        (None, r"once\(\) got builtins.NoneType: it takes"),
        (AsyncSession(), r"AsyncSession is asynchronous: say `await session.run_sync\(delivery.once\)`"),
    ]:
        with pytest.raises(ConfigError, match=message):
            is_first(target)


def test_a_delivery_made_by_hand_needs_a_handlers_name(url):
    message = r"made by hand, without handler='the.name': once\(\) needs it"
    with closing(connect(url)) as connection, pytest.raises(ConfigError, match=message):
        make_delivery(handler="").once(connection)


# --- other drivers --------------------------------------------------------------------------------


class Numbered(sqlite3.Cursor):
    """`:1` is a number in PEP 249, and a name to sqlite3; so is `?1` to that of Python 3.12.1."""

    def execute(self, statement, parameters=()):
        return super().execute(re.sub(r":\d+", "?", statement), parameters)


class NamedConnection(sqlite3.Connection):
    """A connection of a module whose paramstyle is `named`."""


class NumericConnection(sqlite3.Connection):
    def cursor(self):
        return super().cursor(Numbered)


class FormatConnection(psycopg.Connection):
    """A connection of a module whose paramstyle is `format`."""


class UnknownConnection:
    def cursor(self): ...
    def commit(self): ...


@pytest.fixture
def acme(monkeypatch):
    """A DB-API module `acme`, in whose submodule the connections are."""

    def make(paramstyle, kind):
        module = types.ModuleType("acme")
        module.paramstyle = paramstyle
        monkeypatch.setitem(sys.modules, "acme", module)
        monkeypatch.setattr(kind, "__module__", "acme.connections")

    return make


def connected(url, kind):
    if kind is FormatConnection:
        return FormatConnection.connect(**libpq(url))
    return sqlite3.connect(place_of(url), factory=kind)


@pytest.mark.parametrize(
    ("bare_url", "paramstyle", "kind"),
    [
        ("sqlite", "named", NamedConnection),
        ("sqlite", "numeric", NumericConnection),
        ("postgresql", "format", FormatConnection),
        # A subclass has the paramstyle of its base.
        ("sqlite", None, NamedConnection),
        ("postgresql", None, FormatConnection),
    ],
    indirect=["bare_url"],
)
def test_each_paramstyle_is_spoken(url, acme, paramstyle, kind):
    if paramstyle is not None:
        acme(paramstyle, kind)
    with closing(connected(url, kind)) as connection:
        assert [is_first(connection, key) for key in ("a", "a", "b")] == [True, False, True]


def test_a_connection_of_no_dbapi_module_is_refused():
    with pytest.raises(ConfigError, match="UnknownConnection, whose module declares no DB-API paramstyle"):
        is_first(UnknownConnection())


def test_an_asynchronous_session_calls_it_by_run_sync(postgres_url):
    async def handle():
        engine = create_async_engine(postgres_url, poolclass=NullPool)
        async with AsyncSession(engine) as session:
            await session.run_sync(effects.create_all)
            first = await session.run_sync(make_delivery().once)
            await session.commit()
        async with AsyncSession(engine) as session:
            return first, await session.run_sync(make_delivery().once)

    assert asyncio.run(handle()) == (True, False)


def test_an_asynchronous_connection_is_refused(postgres_url):
    async def handle():
        async with await psycopg.AsyncConnection.connect(**libpq(postgres_url)) as connection:
            is_first(connection)

    with pytest.raises(
        ConfigError, match=r"AsyncConnection is asynchronous: once\(\) takes a session or a con"
    ):
        asyncio.run(handle())


# --- the table ------------------------------------------------------------------------------------


def test_processes_that_start_at_once_all_find_the_table(bare_url):
    started = together(6, lambda _: effects.create_all(create_engine(bare_url, poolclass=NullPool)))

    assert started == [None] * 6
    assert value(place_of(bare_url), "SELECT count(*) FROM billhook_effect") == 0


def test_the_table_goes_into_the_projects_own_metadata(tmp_path):
    from flask import Flask
    from flask_sqlalchemy import SQLAlchemy

    app, db = Flask("shop", instance_path=str(tmp_path)), SQLAlchemy()
    app.config["SQLALCHEMY_DATABASE_URI"] = "sqlite:///own.db"
    effects.effect.to_metadata(db.metadata)
    db.init_app(app)
    with app.app_context():
        db.create_all()
        answers = []
        for _ in range(2):
            answers.append(make_delivery().once(db.session))
            db.session.commit()
        made = db.session.execute(text("SELECT handler FROM billhook_effect")).all()
        db.engine.dispose()

    assert (answers, made) == ([True, False], [("shop.book",)])


DJANGO = """
from django.conf import settings
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "own.db"}})
import django
django.setup()
from django.db import connection, transaction
from billhook import effects
from support.own_database import is_first
with transaction.atomic():
    effects.create_all(connection)
    print(is_first(connection))
with transaction.atomic():
    print(is_first(connection))
try:
    is_first(connection)
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.slow
def test_djangos_connection_is_used_within_atomic(tmp_path):
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", DJANGO]
    ran = run_command(command, cwd=tmp_path, env=environ)

    assert ran.stdout.splitlines() == [
        "True",
        "False",
        "ConfigError once() needs an open transaction: call it within transaction.atomic()",
    ], ran.stderr
