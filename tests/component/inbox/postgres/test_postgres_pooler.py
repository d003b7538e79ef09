"""Through a pooler that lends each transaction another session, in which other clients have their own way."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from billhook import Handlers
from billhook.engines.pacing import MAX_POLL_SECONDS
from billhook.errors import InboxUnavailable
from billhook.events import PingTest
from billhook.inbox.postgres import waker
from billhook.inbox.tables.schema import metadata, version
from support.apps import deliver
from support.inbox_view import incoming, open_inbox, rows, upgraded, value
from support.pgbouncer import leave_settings, note_commits, pooled, set_for_database
from support.postgres import with_options
from support.processes import until
from support.proxy import proxied

pytestmark = pytest.mark.slow
NUMBER = 40


@pytest.fixture
def url(database_url):
    """The URL of an inbox whose commits are noted, in a database with other settings and other tables."""
    upgraded(database_url)
    note_commits(database_url)
    set_for_database(database_url)
    return database_url


@pytest.fixture
def pooler(url):
    with pooled(url) as running:
        yield running


@pytest.fixture
def one_session(url):
    """A pooler with a single session: whatever a client leaves there, the next one finds."""
    with pooled(url, sessions=1) as running:
        yield running


@pytest.fixture
def careless(pooler):
    """Another client that leaves its settings in one session after the other."""
    stop = threading.Event()

    def interfere():
        with pooler.client() as client:
            while not stop.wait(0.02):
                leave_settings(client)

    thread = threading.Thread(target=interfere)
    thread.start()
    yield
    stop.set()
    thread.join()


def elsewhere(url):
    """How many rows the tables of the inbox's names have in the other schema."""
    tables = rows(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'elsewhere'")
    assert {name for (name,) in tables} == {*metadata.tables, version.name}
    return sum(value(url, f"SELECT count(*) FROM elsewhere.{table}") for (table,) in tables)


# --- everything works -----------------------------------------------------------------------------


def test_all_is_stored_handled_and_settled_on_the_disk_and_no_error_logged(
    url, pooler, careless, running, caplog
):
    caplog.set_level(logging.INFO)
    handled, handlers = Counter(), Handlers()

    @handlers.on(PingTest, name="count")
    def count(event, delivery):
        handled[delivery.key] += 1

    app = running(handlers, BILLHOOK_INBOX_URL=pooler.url, BILLHOOK_LEASE_SECONDS=30)
    with ThreadPoolExecutor(4) as pool:
        send = [lambda n=number: deliver(app, message_id=f"msg_{n}").json for number in range(NUMBER)]
        first = list(pool.map(lambda one: one(), send))
        second = list(pool.map(lambda one: one(), send))
    finished = "SELECT count(*) FROM billhook.run WHERE state = 'succeeded'"
    until(lambda: value(url, finished) == NUMBER, MAX_POLL_SECONDS + 10)

    assert first == [{"status": "accepted"}] * NUMBER
    assert second == [{"status": "duplicate"}] * NUMBER
    assert handled == Counter({f"msg_{number}": 1 for number in range(NUMBER)})
    assert rows(url, "SELECT state, count(*) FROM billhook.delivery GROUP BY 1") == [("done", NUMBER)]
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    noted = dict(rows(url, "SELECT what || ' ' || waits, count(*) FROM public.noted GROUP BY 1"))
    assert noted.keys() == {"delivery on", "run on"}
    assert noted["delivery on"] >= 2 * NUMBER
    assert elsewhere(url) == 0


def test_an_upgrade_through_it_makes_the_tables(database_url):
    with pooled(database_url, sessions=1) as pooler:
        with pooler.client() as client:
            client.execute("CREATE SCHEMA elsewhere")
            client.execute("SET search_path = elsewhere")
            client.execute("SET TimeZone = 'Asia/Kathmandu'")
        upgraded(pooler.url)
        inbox = open_inbox(pooler.url)
        inbox.put(incoming("k"))
        inbox.close()

    assert rows(database_url, "SELECT key FROM billhook.delivery") == [("k",)]
    assert value(database_url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'elsewhere'") == 0
    assert value(database_url, "SELECT extract(epoch FROM finished_at) FROM billhook.billhook_watermark") == 0


# --- nothing is left to, or taken from, a session ----------------------------------------------------


def settings(execute):
    names = ("synchronous_commit", "search_path", "TimeZone", "transaction_isolation")
    return [execute(f"SHOW {name}").fetchone()[0] for name in names]


def test_in_one_session_with_another_client_neither_changes_anything_for_the_other(url, one_session):
    inbox = open_inbox(one_session.url)
    with one_session.client() as client:
        for number in range(3):
            leave_settings(client)
            inbox.put(incoming(f"k{number}"))
            inbox.put(incoming(f"k{number}"))
            with inbox.transaction("me") as transaction:
                transaction.next_times()
                found = settings(transaction.connection.exec_driver_sql)
            left = settings(client.execute)
            kept = client.execute(
                "SELECT (SELECT count(*) FROM pg_prepared_statements), "
                "(SELECT count(*) FROM pg_listening_channels()), "
                "(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())"
            ).fetchone()

            assert found == ["on", '"billhook"', "UTC", "read committed"]
            assert left == ["off", "elsewhere", "Asia/Kathmandu", "serializable"]
            assert kept == (0, 0, 0)
    inbox.close()

    assert {waits for (waits,) in rows(url, "SELECT waits FROM public.noted")} == {"on"}
    assert rows(url, "SELECT key FROM billhook.delivery ORDER BY id") == [("k0",), ("k1",), ("k2",)]


def test_control_taken_for_a_session_of_our_own_a_commit_does_not_wait(url, one_session):
    inbox = open_inbox(one_session.url, pool_mode="session")
    inbox.put(incoming("before"))
    inbox.waker.wake()  # connected, as the inserter is
    with one_session.client() as client:
        client.execute("SET synchronous_commit = off")
    inbox.put(incoming("after"))
    inbox.close()

    assert rows(url, "SELECT waits FROM public.noted") == [("on",), ("off",)]


def test_in_new_sessions_of_the_database_each_commit_waits_for_the_disk(url, one_session):
    inbox = open_inbox(one_session.url)
    for number in range(5):
        inbox.put(incoming(f"k{number}"))
        with inbox.database.read():  # the notification has passed
            pass
        one_session.reconnect()
    inbox.close()

    assert rows(url, "SELECT waits, count(*) FROM public.noted GROUP BY 1") == [("on", 5)]


def test_no_statement_is_prepared_that_another_session_would_not_have(url, one_session):
    inbox = open_inbox(one_session.url)
    for number in range(10):
        inbox.put(incoming(f"before {number}"))
        inbox.received(1)
    with one_session.client() as client:
        client.execute("DISCARD ALL")
    inbox.put(incoming("after"))

    assert len(inbox.received(99)) == 11
    inbox.close()


def test_control_the_driver_would_prepare_statements_by_itself(url, one_session):
    inbox = open_inbox(one_session.url, pool_mode="session")
    for _ in range(10):
        inbox.received(1)
    with one_session.client() as client:
        client.execute("DISCARD ALL")

    with pytest.raises(InboxUnavailable, match=r"prepared statement .* does not exist"):
        inbox.received(1)
    inbox.close()


def test_the_servers_clock_is_read_exactly_beside_a_client_that_wants_few_digits(url, one_session):
    with one_session.client() as client:
        leave_settings(client)
        inbox = open_inbox(one_session.url)
        inbox.put(incoming("k"))
        ahead = inbox.database.clock.machine_ahead_seconds
        inbox.close()

    assert abs(ahead) < 5


def test_the_time_limits_of_the_url_hold_in_each_transaction(url, one_session):
    inbox = open_inbox(with_options(one_session.url, "-cstatement_timeout=2345"))
    with one_session.client() as client:
        client.execute("SET statement_timeout = '7s'")
        client.execute("SET lock_timeout = '7s'")
    with inbox.transaction("me") as transaction:
        found = [
            transaction.connection.exec_driver_sql(f"SHOW {name}").scalar_one()
            for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
        ]
    inbox.close()

    assert found == ["2345ms", "0", "10s"]


# --- what is found, and what it costs ----------------------------------------------------------------


def pooler_of(url, **options):
    inbox = open_inbox(url, **options)
    facts = inbox.database.facts()
    inbox.close()
    said = [(one.level, one.code) for one in facts.problems(2, 1) if one.code == "pooler"]
    return facts.pooler, facts.inbox_bytes > 0, said


def test_it_is_found_by_the_number_of_the_servers_process(url, pooler):
    assert pooler_of(url) == (None, True, [])
    assert pooler_of(pooler.url) == ("transaction", True, [("note", "pooler")])
    assert pooler_of(pooler.url, pool_mode="session") == ("session", True, [("note", "pooler")])


def test_nobody_listens_through_it_and_who_is_connected_directly_is_notified(url, pooler):
    through, direct = open_inbox(pooler.url), open_inbox(url)
    direct.waker.fileno()

    for _ in range(3):
        with pytest.raises(OSError, match="a pooler is in between"):
            through.waker.fileno()
    with pytest.raises(OSError, match="a pooler is in between"):
        through.waker.listener()
    through.waker.wake()
    heard = direct.waker.wait(5)
    through.close()
    direct.close()

    assert heard is True


def test_an_inbox_listens_again_once_its_address_leads_to_the_server(url, pooler, monkeypatch):
    monkeypatch.setattr(waker, "DEAF_SECONDS", 0.3)
    monkeypatch.setattr(waker, "PAUSE_SECONDS", 0.0)
    with proxied(pooler.url) as address:
        inbox = open_inbox(address.url)
        with pytest.raises(OSError, match="a pooler is in between"):
            inbox.waker.fileno()
        address.lead_to(url)
        address.cut()

        until(lambda: listens(inbox))
        inbox.waker.wake()
        heard = inbox.waker.wait(5)
        inbox.close()

    assert heard is True


def listens(inbox) -> bool:
    try:
        return inbox.waker.fileno() >= 0
    except OSError:
        return False


def test_with_a_session_for_each_connection_all_is_as_without_a_pooler(url):
    with pooled(url, pool_mode="session", sessions=10) as pooler:
        inbox = open_inbox(pooler.url, pool_mode="session")
        inbox.waker.fileno()
        for number in range(10):
            inbox.put(incoming(f"k{number}"))
        inbox.waker.wake()
        heard = inbox.waker.wait(5)
        inbox.close()
        careful = open_inbox(pooler.url)
        careful.put(incoming("careful"))
        careful.close()

    assert heard is True
    assert {waits for (waits,) in rows(url, "SELECT waits FROM public.noted")} == {"on"}


def test_a_session_that_another_client_made_read_only_is_written_to(url, one_session):
    inbox = open_inbox(one_session.url)
    with one_session.client() as client:
        client.execute("SET default_transaction_read_only = on")
    inbox.put(incoming("k"))
    with inbox.transaction("me") as transaction:
        transaction.next_times()
    inbox.close()

    assert rows(url, "SELECT key FROM billhook.delivery") == [("k",)]
