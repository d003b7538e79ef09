"""What only PostgreSQL needs: its sessions' settings, its silences, its lost connections, what it may say."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from sqlalchemy import text

from billhook.errors import ConfigError, InboxUnavailable, MissingExtra
from billhook.errors.program import install_command
from billhook.inbox import Inbox, PutStatus, RunPlan
from billhook.inbox.postgres import database as module
from billhook.inbox.postgres import driver
from billhook.inbox.tables.revision import REVISION
from support.inbox_view import NOON, change, end_sessions, incoming, open_inbox, postgres, rows, value
from support.postgres import with_options
from support.processes import in_children, until
from support.proxy import proxied
from support.templates import new_inbox
from support.timeouts import scaled


@pytest.fixture
def url(postgres_url):
    return new_inbox(postgres_url)


@pytest.fixture
def inbox(url):
    opened = open_inbox(url)
    yield opened
    opened.close()


@pytest.fixture
def impatient(monkeypatch):
    """Statements that get no answer are given up soon."""
    monkeypatch.setattr(module, "STATEMENT_TIMEOUT_SECONDS", 0.4)


@contextlib.contextmanager
def connected(url, patience_seconds=10.0):
    connection = Inbox(url).database._connect(patience_seconds)
    try:
        yield connection
    finally:
        connection.close()


def settings(execute):
    names = ("synchronous_commit", "transaction_isolation", "TimeZone", "idle_in_transaction_session_timeout")
    return [execute(f"SHOW {name}") for name in names]


# --- sessions -------------------------------------------------------------------------------------

CARELESS = "-csynchronous_commit=off -cdefault_transaction_isolation=serializable -cTimeZone=Asia/Tokyo"


def test_every_session_has_durable_settings_despite_the_url(url):
    careless = with_options(url, CARELESS)
    inbox = open_inbox(careless)

    def ask(query):
        return connection.execute(text(query)).scalar_one()

    with connected(careless) as inserter:
        inserting = settings(lambda query: inserter.execute(query).fetchone()[0])
    with inbox.database.write() as connection:
        writing = settings(ask)
    with inbox.database.read() as connection:
        reading = settings(ask)
    with inbox.database.migration_transaction() as connection:
        migrating = settings(ask)

    assert inserting == writing == ["on", "read committed", "UTC", "10s"]
    assert reading == ["on", "repeatable read", "UTC", "10s"]
    assert migrating == ["on", "read committed", "UTC", "0"]
    inbox.close()


def test_control_a_session_with_the_urls_settings_is_noticed(url):
    with postgres(with_options(url, CARELESS)) as connection:
        assert settings(lambda query: connection.execute(query).fetchone()[0])[:3] == [
            "off",
            "serializable",
            "Asia/Tokyo",
        ]


def test_the_urls_own_time_limits_hold(url):
    limited = with_options(url, "-cidle_in_transaction_session_timeout=1234 -cstatement_timeout=2345")

    with connected(limited) as connection:
        found = [
            connection.execute(f"SHOW {name}").fetchone()[0]
            for name in ("idle_in_transaction_session_timeout", "statement_timeout")
        ]

    assert found == ["1234ms", "2345ms"]


def test_preparing_leaves_no_connection_open(url):
    named = with_options(url, "", application_name=f"prepared-{os.getpid()}")
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = ?"

    inbox = open_inbox(named)
    until(lambda: value(url, count, f"prepared-{os.getpid()}") == 0)
    inbox.put(incoming("k"))

    assert value(url, count, f"prepared-{os.getpid()}") > 0
    inbox.close()
    until(lambda: value(url, count, f"prepared-{os.getpid()}") == 0)


# --- silence --------------------------------------------------------------------------------------


def test_a_statement_without_an_answer_is_given_up_and_its_connection_closed(url):
    with proxied(url) as proxy, connected(proxy.url, 0.3) as connection:
        connection.execute("SELECT 1")
        proxy.hold()

        started = time.monotonic()
        with pytest.raises(psycopg.OperationalError, match=r"no answer within 0\.3 s"):
            connection.execute("SELECT 1")
        seconds = time.monotonic() - started

        assert 0.2 < seconds < scaled(2)
        assert connection.closed


def test_a_statement_whose_answer_takes_a_while_is_waited_for(url):
    with connected(url, 5.0) as connection:
        assert connection.execute("SELECT 1 FROM pg_sleep(0.4)").fetchall() == [(1,)]


def test_a_response_received_while_the_process_was_suspended_is_used(url):
    limit = with_options(url, "-cstatement_timeout=0")
    with connected(limit, 0.4) as connection:
        before = signal.signal(signal.SIGALRM, lambda *_: time.sleep(0.8))
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            found = connection.execute("SELECT 1 FROM pg_sleep(0.3)").fetchall()
        finally:
            signal.signal(signal.SIGALRM, before)

    assert found == [(1,)]


def read(inbox, hold):
    hold()
    inbox.received(1)


def insert(inbox, hold):
    hold()
    assert len(inbox.database.insert_new([incoming(f"{time.monotonic()}")])) == 1


def commit(inbox, hold):
    with inbox.transaction("me") as transaction:
        transaction.next_times()
        hold()


@pytest.mark.parametrize("use", [read, insert, commit])
def test_what_gets_no_answer_fails_once_and_the_next_succeeds(url, impatient, use):
    with proxied(url) as proxy:
        inbox = open_inbox(proxy.url)
        use(inbox, lambda: None)
        started = time.monotonic()
        with pytest.raises(InboxUnavailable, match=r"failed: no answer within 0\.4 s"):
            use(inbox, proxy.hold)
        seconds = time.monotonic() - started
        proxy.release()

        assert seconds < scaled(2)
        use(inbox, lambda: None)
        inbox.close()


def test_a_session_that_is_idle_in_a_transaction_is_ended_and_the_next_is_good(url):
    inbox = open_inbox(with_options(url, "-cidle_in_transaction_session_timeout=200"))

    def idle():
        with inbox.transaction("me") as transaction:
            transaction.next_times()
            time.sleep(0.5)
            transaction.next_times()

    def is_writable():
        with contextlib.suppress(InboxUnavailable):  # its own transaction may be idle on a busy machine
            inbox.check_writable()
            return True
        return False

    with pytest.raises(InboxUnavailable, match="failed: terminating connection due to idle-in-transaction"):
        idle()

    until(is_writable)
    inbox.close()


def test_a_pool_without_a_free_connection_is_a_failure_of_storage(url, impatient):
    inbox = open_inbox(with_options(url, "-cidle_in_transaction_session_timeout=0"))
    with contextlib.ExitStack() as held:
        for _ in range(15):
            held.enter_context(inbox.database.write())

        with pytest.raises(InboxUnavailable, match="QueuePool limit"):
            held.enter_context(inbox.database.write())

    inbox.check_writable()
    inbox.close()


# --- lost connections -----------------------------------------------------------------------------


@pytest.fixture
def named(url):
    """An inbox whose sessions can be told from others."""
    opened = open_inbox(with_options(url, "", application_name=f"named-{os.getpid()}"))
    yield opened
    opened.close()


def test_idle_connections_closed_by_the_server_are_reopened_silently(named, url):
    named.put(incoming("k1"))
    named.check_writable()

    ended = end_sessions(url, f"named-{os.getpid()}")
    status = named.put(incoming("k2")).status
    named.check_writable()
    stored = named.received(10)

    assert ended >= 2
    assert status is PutStatus.ACCEPTED
    assert [one.key for one in stored] == ["k1", "k2"]


def test_a_connection_in_use_while_the_inbox_is_closed_is_closed_when_it_is_returned(named, url):
    with named.database.read() as reading:
        used = reading.connection.driver_connection
        named.close()
        open_until_returned = not used.closed

    assert open_until_returned
    assert used.closed


def test_a_connection_lost_in_a_transaction_raises_and_rolls_back(named, url):
    delivery_id = named.put(incoming("k")).delivery_id

    def interrupted():
        with named.transaction("me") as transaction:
            transaction.plan([RunPlan(delivery_id, ("a",))], NOON)
            end_sessions(url, f"named-{os.getpid()}")

    with pytest.raises(InboxUnavailable, match="failed: "):
        interrupted()

    assert rows(url, "SELECT state FROM delivery") == [("received",)]
    assert rows(url, "SELECT * FROM run") == []
    with named.transaction("me") as transaction:
        assert transaction.plan([RunPlan(delivery_id, ("a",))], NOON) == [delivery_id]


def test_connections_that_are_lost_as_soon_as_they_are_made_are_a_failure_of_storage(url):
    with proxied(url) as proxy:
        inbox = Inbox(proxy.url)
        proxy.fatal, proxy.client_is_answered = b"'synchronous_commit'", True

        for _ in range(2):
            with pytest.raises(InboxUnavailable, match="failed: "):
                inbox.received(1)

        proxy.fatal = None
        assert inbox.received(1) == []
        inbox.close()


def test_a_forked_child_notifies_and_listens_over_its_own_connections(inbox, url):
    inbox.waker.fileno()
    inbox.waker.wake()
    ours = inbox.waker._listening

    def child(_):
        descriptor = inbox.waker.fileno()
        inbox.waker.wake()
        heard = inbox.waker.wait(5)
        inbox.close()
        return f"{inbox.waker._listening is ours} {descriptor} {heard}".encode()

    (told,) = in_children(1, child)

    assert told.startswith(b"False")
    assert told.endswith(b"True")
    assert inbox.waker._listening is ours
    while inbox.waker.wait(0.2):  # the rings of both
        pass
    inbox.waker.wake()
    assert inbox.waker.wait(5) is True


# --- where it is ----------------------------------------------------------------------------------


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_an_unreachable_server_raises_one_line_without_the_password():
    inbox = Inbox(f"postgresql+psycopg://me:hunter2hunter2@127.0.0.1:{closed_port()}/billing")

    for use in (inbox.prepare, inbox.upgrade, inbox.check_writable, lambda: inbox.put(incoming("k"))):
        with pytest.raises(InboxUnavailable, match=r"^the inbox .*127\.0\.0\.1.*refused") as caught:
            use()
        assert "hunter2" not in f"{caught.value!r} {caught.value}"
        assert "\n" not in str(caught.value)
    inbox.close()


def test_the_password_is_in_no_text_of_the_inbox_nor_in_its_log(url, caplog):
    caplog.set_level(logging.DEBUG)
    secret = "hunter2hunter2"
    where = with_options(url, "", sslpassword=secret).replace("postgres@", f"postgres:{secret}@")

    with contextlib.suppress(InboxUnavailable), contextlib.closing(Inbox(where)) as inbox:
        told = [
            inbox.database.display_url,
            repr(inbox.database),
            repr(inbox.database.waker),
            repr(vars(inbox)),
        ]
        inbox.prepare()
        inbox.put(incoming("k"))

    assert secret in where
    assert not [one for one in (*told, caplog.text) if secret in one]


DISPLAYED = {
    "postgresql+psycopg://me:hunter%402@127.0.0.1/d": "postgresql+psycopg://me:***@127.0.0.1/d",
    "postgresql://u:hunter2hunter2@h:5433/d": "postgresql+psycopg://u:***@h:5433/d",
    "postgres://u@h/d?sslmode=require&password=hunter2hunter2": "postgresql+psycopg://u@h/d",
    "postgresql://u@/d?host=/run/pg&port=5433": "postgresql+psycopg://u@/d?host=%2Frun%2Fpg&port=5433",
    "postgresql://u@/d?host=a:1&host=b:2": "postgresql+psycopg://u@/d?host=a%3A1&host=b%3A2",
}


def test_the_display_url_has_no_password():
    assert {url: Inbox(url).database.display_url for url in DISPLAYED} == DISPLAYED


@pytest.mark.parametrize("user", ["u%3AhunterTwo", "u%3AhunterTwo:", "%3AhunterTwo", "u%3ahunterTwo:x"])
def test_a_password_in_the_users_name_is_refused_and_not_shown(user):
    with pytest.raises(ConfigError, match="the user's name has a colon in it") as caught:
        Inbox(f"postgresql://{user}@127.0.0.1/d")

    assert "hunterTwo" not in str(caught.value)
    Inbox("postgresql://u:hunter%3ATwo@127.0.0.1/d").close()  # in a password it is one


def test_the_first_of_several_hosts_that_answers_is_used(url):
    with proxied(url) as proxy:
        hosts = f"@/%s&host=127.0.0.1:{closed_port()}&host=127.0.0.1:{proxy.port}"
        before, _, name = proxy.url.partition(f"@127.0.0.1:{proxy.port}/")
        inbox = open_inbox(before + hosts % name)

        assert inbox.put(incoming("k")).status is PutStatus.ACCEPTED
        inbox.close()


def test_without_psycopg_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "billhook.inbox.postgres", None)

    with pytest.raises(
        MissingExtra, match=f"an inbox in PostgreSQL .*{re.escape(install_command('postgres'))}"
    ):
        Inbox("postgresql://u@h/d")


# --- what it says ---------------------------------------------------------------------------------


def test_database_errors_are_reported_without_row_contents(url):
    change(url, "ALTER TABLE delivery ADD CONSTRAINT picky CHECK (length(body) < 3)")
    inbox = open_inbox(url)

    with pytest.raises(InboxUnavailable, match='violates check constraint "picky"') as caught:
        inbox.put(incoming("k", body=b"from the sender"))

    stored = b"from the sender".hex()
    assert stored not in str(caught.value)
    assert "sender" not in str(caught.value)
    with contextlib.suppress(psycopg.Error), postgres(url) as connection:
        connection.execute(
            "INSERT INTO delivery (source, key, event_type, headers, state, received_at, body) "
            "VALUES ('s', 'k', 't', '{}', 'received', now(), 'from the sender')"
        )
        pytest.fail("the constraint holds nobody back")
    inbox.close()


# --- two with the same keys -----------------------------------------------------------------------


def crossing(url, insert, count=3_000):
    """Two sessions insert the same keys at once, each in the other's reverse order; what came of each."""
    forwards = [incoming(f"k{number:05}") for number in range(count)]
    barrier = threading.Barrier(2)

    def put(batch):
        with connected(with_options(url, "-cdeadlock_timeout=50")) as connection:
            barrier.wait()
            try:
                return len(insert(connection, batch))
            except psycopg.errors.DeadlockDetected:
                return "deadlock"

    with ThreadPoolExecutor(2) as pool:
        return sorted(map(str, pool.map(put, (forwards, forwards[::-1]))))


INSERT = driver.INSERT_NEW.format(
    delivery="delivery", delivery_text="delivery", version="billhook_version"
).encode()


def as_they_come(connection, batch):
    columns = [[getattr(one, name) for one in batch] for name in driver.NEW_COLUMNS]
    arrival = [number + 1 for number in range(len(batch))]
    return connection.execute(INSERT, [len(batch), REVISION, arrival, *columns]).fetchall()


def as_billhook_does(connection, batch):
    return driver.insert(connection, INSERT, batch)


def test_two_batches_with_the_same_keys_do_not_lock_one_another_out(url):
    for _ in range(3):
        counts = crossing(url, as_billhook_does)
        change(url, "TRUNCATE delivery CASCADE")

        assert sum(map(int, counts)) == 3_000


def test_batches_as_they_come_would_lock_one_another_out(url):
    def once():
        found = crossing(url, as_they_come)
        change(url, "TRUNCATE delivery CASCADE")
        return "deadlock" in found

    assert any(once() for _ in range(20))
