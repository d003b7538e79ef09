"""PostgreSQL that is stopped, killed, or reached through a bad line, under real receivers and loops."""

from __future__ import annotations

import contextlib
import os
import signal
import threading

import psycopg
import pytest

from support.acceptance.senders import load_on
from support.inbox_view import change, incoming, open_inbox, postgres, rows, value
from support.postgres import libpq, with_options
from support.processes import together, until
from support.proxy import proxied
from support.server import gunicorn
from support.signing import signed
from support.templates import new_inbox
from support.timeouts import scaled

DEADLINE = 1.0
"""Seconds; the default would only be waited for longer."""
PASSWORD = "hunter2hunter2"


def post(server, key):
    return server.post(headers=signed(message_id=key))


def accepted(server, key):
    """The sender comes again until it is told 200."""
    return until(lambda: (reply := post(server, key)).status == 200 and reply, 20)


def check_every_answer(answers, where):
    """`answers` are (key, status): each 200 is stored, once, and nothing else is ever said than 503."""
    stored = [key for (key,) in rows(where, "SELECT key FROM delivery")]
    assert {status for _, status in answers} <= {200, 503}
    assert {key for key, status in answers if status == 200} <= set(stored)
    assert len(stored) == len(set(stored))


# --- the server does not answer -------------------------------------------------------------------


@pytest.mark.slow
def test_a_frozen_server_is_503_in_time_until_it_resumes(frail_server, frail_url, tmp_path):
    with gunicorn(tmp_path, BILLHOOK_INBOX_URL=frail_url, BILLHOOK_DEADLINE_SECONDS=str(DEADLINE)) as server:
        accepted(server, "msg_before")
        with frail_server.frozen():
            replies = [post(server, f"msg_{number}") for number in range(3)]
            crowd = together(6, lambda number: post(server, f"msg_crowd_{number}"))
            unready = server.get("/readyz").status
        for number in range(3):
            accepted(server, f"msg_{number}")

        assert {reply.status for reply in (*replies, *crowd)} == {503}
        assert all(5 <= int(reply.headers["Retry-After"]) <= 60 for reply in (*replies, *crowd))
        assert max(reply.seconds for reply in (*replies, *crowd)) < scaled(DEADLINE + 0.5)
        assert unready == 503
        assert until(lambda: server.get("/readyz").status == 200)
        check_every_answer([("msg_before", 200), *((f"msg_{number}", 200) for number in range(3))], frail_url)


@pytest.mark.slow
def test_a_plain_connection_to_a_stopped_server_would_hang(frail_server, frail_url):
    plain = postgres(with_options(frail_url, "-cstatement_timeout=500"))
    returned = threading.Event()

    def ask():
        with contextlib.suppress(psycopg.Error):
            plain.execute("SELECT 1")
        returned.set()

    thread = threading.Thread(target=ask)
    with frail_server.frozen():
        thread.start()
        hung = not returned.wait(DEADLINE + 0.5)
    thread.join()
    plain.close()

    assert hung


# --- the server is away when a process starts -------------------------------------------------------


@pytest.mark.slow
def test_a_receiver_started_before_its_server_is_503_until_the_server_runs(frail_server, frail_url, tmp_path):
    with contextlib.ExitStack() as stack:
        with frail_server.frozen():
            server = stack.enter_context(
                gunicorn(tmp_path, BILLHOOK_INBOX_URL=frail_url, BILLHOOK_DEADLINE_SECONDS=str(DEADLINE))
            )
            refused = [post(server, f"msg_{number}") for number in range(2)]
            unready = server.get("/readyz").status

        for number in range(2):
            accepted(server, f"msg_{number}")
        assert {reply.status for reply in refused} == {503}
        assert max(reply.seconds for reply in refused) < scaled(DEADLINE + 0.5)
        assert unready == 503
        assert until(lambda: server.get("/readyz").status == 200)
        server.logged("deliveries get 503 until it recovers")


@pytest.mark.long
def test_processes_that_are_replaced_in_an_outage_do_not_take_gunicorn_along(
    frail_server, frail_url, tmp_path
):
    with gunicorn(tmp_path, BILLHOOK_INBOX_URL=frail_url, workers=2) as server:
        accepted(server, "msg_before")
        with frail_server.frozen():
            os.kill(server.pid, signal.SIGHUP)
            until(lambda: server.log.read_text().count("until it recovers") == 2, 30)
            until(lambda: post(server, "msg_during").status == 503, 30)
        accepted(server, "msg_during")

        assert "Worker failed to boot" not in server.log.read_text()


# --- the server is killed -------------------------------------------------------------------------


@pytest.mark.slow
def test_an_immediate_restart_under_load_loses_nothing_that_was_answered(frail_server, frail_url, tmp_path):
    with (
        gunicorn(tmp_path, workers=2, BILLHOOK_INBOX_URL=frail_url) as server,
        load_on(server.port, 4) as load,
    ):
        load.more(20)
        for _ in range(2):
            frail_server.control("restart", "-m", "immediate")
            load.more(20)

    check_every_answer([(key, 200) for key in load.answered], frail_url)
    assert {status.split()[0] for status in load.statuses} <= {"200", "503"}


def test_an_answer_before_the_commit_would_be_noticed(frail_url):
    inbox = open_inbox(frail_url)
    inbox.put(incoming("stored"))
    inbox.close()

    check_every_answer([("stored", 200), ("refused", 503)], frail_url)
    with pytest.raises(AssertionError, match="lost"):
        check_every_answer([("stored", 200), ("lost", 200)], frail_url)
    with pytest.raises(AssertionError, match="500"):
        check_every_answer([("stored", 500)], frail_url)


# --- on the disk, or not --------------------------------------------------------------------------


@pytest.fixture
def lazy(frail_server):
    """The server with a role whose commits answer early, and a disk that is written rarely."""
    with psycopg.connect(**libpq(frail_server.url), autocommit=True) as admin:
        admin.execute("CREATE ROLE lazy SUPERUSER LOGIN")
        admin.execute("ALTER ROLE lazy SET synchronous_commit = off")
        admin.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
        admin.execute("SELECT pg_reload_conf()")
    yield lambda url: url.replace("postgres:@", "lazy:@")
    with psycopg.connect(**libpq(frail_server.url), autocommit=True) as admin:
        admin.execute("ALTER SYSTEM RESET wal_writer_delay")
        admin.execute("SELECT pg_reload_conf()")
        admin.execute("DROP ROLE lazy")


def test_accepted_deliveries_are_durable_with_synchronous_commit_off_for_the_role(
    frail_server, frail_url, lazy
):
    inbox = open_inbox(lazy(frail_url))

    for number in range(20):
        inbox.put(incoming(f"k{number}"))
    frail_server.control("restart", "-m", "immediate")

    assert value(frail_url, "SELECT count(*) FROM delivery") == 20
    inbox.close()


def test_with_the_roles_own_setting_a_restart_would_lose_it(frail_server, frail_url, lazy):
    change(frail_url, "CREATE TABLE mine (x INTEGER)")
    with postgres(lazy(frail_url)) as plain:
        plain.execute("SELECT 1 FROM pg_sleep(0.3)")
        plain.execute("INSERT INTO mine VALUES (1)")
        frail_server.control("restart", "-m", "immediate")

    assert value(frail_url, "SELECT count(*) FROM mine") == 0


def test_a_server_with_fsync_off_is_warned_of_at_start(frail_server, frail_url, caplog):
    with psycopg.connect(**libpq(frail_server.url), autocommit=True) as admin:
        open_inbox(frail_url).close()
        silent = caplog.text
        admin.execute("ALTER SYSTEM SET fsync = off")
        admin.execute("SELECT pg_reload_conf()")
        try:
            until(lambda: value(frail_url, "SHOW fsync") == "off")
            open_inbox(frail_url).close()
        finally:
            admin.execute("ALTER SYSTEM RESET fsync")
            admin.execute("SELECT pg_reload_conf()")
            until(lambda: value(frail_url, "SHOW fsync") == "on")

    assert silent == ""
    assert "runs with fsync=off: what was answered 200 may be gone after a power cut" in caplog.text


# --- the answer is lost ---------------------------------------------------------------------------


def test_a_commit_whose_answer_is_lost_is_503_and_a_duplicate_when_sent_again(postgres_url, tmp_path):
    with (
        proxied(new_inbox(postgres_url)) as proxy,
        gunicorn(tmp_path, BILLHOOK_INBOX_URL=proxy.url) as server,
    ):
        accepted(server, "msg_before")
        proxy.fatal = b"msg_ambiguous"
        first = post(server, "msg_ambiguous")
        stored = rows(postgres_url, "SELECT count(*) FROM delivery WHERE key = 'msg_ambiguous'")
        proxy.fatal = None

        again = accepted(server, "msg_ambiguous")

        assert (first.status, stored) == (503, [(1,)])
        assert again.json == {"status": "duplicate"}
        assert value(postgres_url, "SELECT count(*) FROM delivery") == 2


# --- who may come in, and which schema --------------------------------------------------------------


def _is_let_in(server_url: str) -> bool:
    """Whether the role `guarded` needs no password."""
    try:
        psycopg.connect(**{**libpq(server_url), "user": "guarded", "password": "wrong"}).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.fixture
def locked(frail_server, frail_url):
    """The URL of the inbox as somebody who has a password, and a way to change that."""
    hba = frail_server.data / "pg_hba.conf"
    before = hba.read_text()
    hba.write_text("local all guarded scram-sha-256\n" + before)
    with psycopg.connect(**libpq(frail_server.url), autocommit=True) as admin:
        admin.execute(f"CREATE ROLE guarded SUPERUSER LOGIN PASSWORD '{PASSWORD}'")
        admin.execute("SELECT pg_reload_conf()")
        until(lambda: not _is_let_in(frail_server.url))  # the server reads the file when it comes to it
        yield frail_url.replace("postgres:@", f"guarded:{PASSWORD}@"), admin
        hba.write_text(before)
        admin.execute("SELECT pg_reload_conf()")
        admin.execute("DROP ROLE guarded")


@pytest.mark.slow
def test_a_password_that_is_changed_while_we_run_is_503_without_the_password(locked, tmp_path):
    right, admin = locked
    with gunicorn(tmp_path, BILLHOOK_INBOX_URL=right) as server:
        accepted(server, "msg_1")
        admin.execute("ALTER ROLE guarded PASSWORD 'another one entirely'")
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'guarded'")
        refused = until(lambda: (reply := post(server, "msg_2")).status == 503 and reply)
        # The first refusal may be of the session that was ended; the log has one line a second of each cause.
        told = "password authentication failed"
        until(lambda: post(server, "msg_2") and told in server.log.read_text(), 10)
        admin.execute(f"ALTER ROLE guarded PASSWORD '{PASSWORD}'")
        accepted(server, "msg_2")

        assert PASSWORD not in server.log.read_text() + refused.body.decode()
