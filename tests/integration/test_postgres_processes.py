"""PostgreSQL and processes: sessions, forks, migrations at once, and workers whose server goes away."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from billhook import Handlers
from billhook.errors import InboxUnavailable
from billhook.events import PingTest
from billhook.inbox import RunPlan
from billhook.inbox.tables.revision import upgrade_schema
from support.apps import deliver
from support.inbox_view import NOON, hang_up, incoming, open_inbox, postgres, rows, upgraded
from support.postgres import fresh_schema, with_options
from support.processes import in_children, until
from support.proxy import proxied
from support.templates import new_inbox
from support.timeouts import scaled

TESTS = Path(__file__).parents[1]


# --- processes ------------------------------------------------------------------------------------


def sessions(inbox):
    """The server processes behind this process's connections: of a batch, a turn and a look."""
    inbox.put(incoming(f"session-{os.getpid()}-{time.monotonic_ns()}"))
    found = {inbox.database._inserter.info.backend_pid}
    for transaction in (inbox.database.write, inbox.database.read):
        with transaction() as connection:
            found.add(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())
    return found


def check_each_process_has_its_own(parents, children):
    everybody = [parents, *children]
    assert sum(map(len, everybody)) == len(set().union(*everybody))


def test_no_process_uses_the_sessions_of_another_and_a_fork_breaks_none(postgres_url):
    inbox = open_inbox(new_inbox(postgres_url))
    before = sessions(inbox)

    def child(_):
        mine = sessions(inbox)
        inbox.close()
        return ",".join(map(str, mine)).encode()

    children = [{int(pid) for pid in told.split(b",")} for told in in_children(3, child)]

    check_each_process_has_its_own(before, children)
    assert sessions(inbox) == before
    inbox.close()


def test_a_connection_that_is_shared_with_a_child_would_be_noticed(postgres_url):
    with postgres(postgres_url) as plain:
        (told,) = in_children(1, lambda _: str(plain.info.backend_pid).encode())

        with pytest.raises(AssertionError, match="assert"):
            check_each_process_has_its_own({plain.info.backend_pid}, [{int(told)}])


def test_concurrent_upgrades_need_the_migration_lock(postgres_server):
    def race(upgrade):
        with fresh_schema(postgres_server.url) as url:

            def child(_):
                upgrade(url)
                return b"good"

            results = in_children(4, child)
            hang_up(url)
        return results

    def without(url):
        engine = create_engine(url)
        with engine.begin() as connection:
            connection.execute(text("SELECT 1"))
            upgrade_schema(connection)

    assert race(upgraded) == [b"good"] * 4
    assert any(race(without) != [b"good"] * 4 for _ in range(10))


# --- the worker -------------------------------------------------------------------------------------


class Shop:
    """A handler that keeps what it was called for, and when."""

    def __init__(self):
        self.handlers = Handlers()
        self.called = {}
        self.handlers.on(PingTest, name="h")(self._handle)

    def _handle(self, event, delivery):
        self.called.setdefault(delivery.key, time.monotonic())


def states(where):
    return dict(rows(where, "SELECT state, count(*) FROM delivery GROUP BY state"))


@pytest.mark.slow
def test_a_worker_survives_a_restart_and_a_freeze_of_the_server(running, frail_server, frail_url):
    shop, sent = Shop(), []
    app = running(shop.handlers, BILLHOOK_INBOX_URL=frail_url, BILLHOOK_LEASE_SECONDS=5)

    def send(count):
        for _ in range(count):
            sent.append(f"msg_{len(sent)}")
            until(lambda: deliver(app, message_id=sent[-1]).status_code == 200, 20)

    send(5)
    until(lambda: len(shop.called) == 5)
    frail_server.control("restart", "-m", "immediate")
    send(5)
    until(lambda: len(shop.called) == 10, 20)
    with frail_server.frozen():
        time.sleep(1.5)
    send(5)

    until(lambda: states(frail_url) == {"done": 15}, 30)
    assert set(shop.called) == set(sent)


def latencies(app, shop, count, name):
    """Seconds from each delivery to its handler, one after the other."""
    found = []
    for number in range(count):
        key = f"{name}_{number}"
        started = time.monotonic()
        assert deliver(app, message_id=key).status_code == 200
        until(lambda key=key: key in shop.called)
        found.append(shop.called[key] - started)
        time.sleep(0.05)
    return found


@pytest.mark.slow
def test_a_worker_is_notified_also_after_a_lost_connection(running, postgres_url):
    name = f"woken-{os.getpid()}"
    shop = Shop()
    url = with_options(new_inbox(postgres_url), "", application_name=name)
    app = running(shop.handlers, BILLHOOK_INBOX_URL=url, BILLHOOK_LEASE_SECONDS=30)
    latencies(app, shop, 3, "warm")

    first = latencies(app, shop, 7, "first")
    time.sleep(2)  # a line that was opened just now would not be opened again at once
    listening = rows(
        postgres_url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = ? "
        "AND query LIKE 'LISTEN%'",
        name,
    )
    latencies(app, shop, 1, "after")
    second = latencies(app, shop, 7, "second")

    assert len(listening) == 1
    assert statistics.median(first) < scaled(0.4)
    assert statistics.median(second) < scaled(0.4)


@pytest.mark.slow
def test_control_a_worker_without_notifications_is_slow(running, postgres_url):
    shop = Shop()
    with proxied(new_inbox(postgres_url)) as proxy:
        proxy.altered = b"LISTEN ", b"LISTFN "
        app = running(shop.handlers, BILLHOOK_INBOX_URL=proxy.url, BILLHOOK_LEASE_SECONDS=30)
        time.sleep(0.3)

        assert any(latencies(app, shop, 1, f"slow_{number}")[0] > 0.8 for number in range(20))


FROZEN = """
import sys, time
from billhook.errors import InboxUnavailable
from billhook.inbox import Inbox, RunPlan
from support.inbox_view import NOON

inbox = Inbox(sys.argv[1])
try:
    with inbox.transaction("frozen") as transaction:
        print(transaction.plan([RunPlan(int(sys.argv[2]), ("a",))], NOON), flush=True)
        time.sleep(0.5)
        transaction.next_times()
except InboxUnavailable as error:
    print(error, flush=True)
print(inbox.received(10) == [], flush=True)
inbox.close()
"""


@pytest.fixture
def frozen_worker(postgres_url):
    """Starts a process that is stopped in the middle of its turn, with a delivery locked; lets it go on."""
    started = []

    def start(url, delivery_id):
        worker = subprocess.Popen(
            [sys.executable, "-c", FROZEN, url, str(delivery_id)],
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(worker)
        assert worker.stdout.readline() == f"[{delivery_id}]\n"
        worker.send_signal(signal.SIGSTOP)
        return worker

    yield start
    for worker in started:
        worker.send_signal(signal.SIGCONT)
        worker.communicate(timeout=90)


@pytest.mark.slow
def test_a_worker_frozen_in_a_transaction_blocks_others_briefly(postgres_url, frozen_worker):
    inbox = open_inbox(new_inbox(postgres_url))
    delivery_id = inbox.put(incoming("k")).delivery_id
    worker = frozen_worker(
        with_options(postgres_url, "-cidle_in_transaction_session_timeout=700"), delivery_id
    )

    with inbox.transaction("awake") as transaction:
        planned_here = transaction.plan([RunPlan(delivery_id, ("a",))], NOON)
    worker.send_signal(signal.SIGCONT)
    told, _ = worker.communicate(timeout=90)

    assert planned_here == [delivery_id]
    refused, good_again = told.splitlines()
    assert "failed: terminating connection due to idle-in-transaction" in refused
    assert good_again == "True"
    assert rows(postgres_url, "SELECT count(*) FROM run") == [(1,)]
    inbox.close()


@pytest.mark.slow
def test_control_a_frozen_transaction_without_a_time_out_blocks_others(postgres_url, frozen_worker):
    inbox = open_inbox(with_options(new_inbox(postgres_url), "-cstatement_timeout=1500"))
    delivery_id = inbox.put(incoming("k")).delivery_id
    frozen_worker(with_options(postgres_url, "-cidle_in_transaction_session_timeout=0"), delivery_id)

    def plan():
        with inbox.transaction("awake") as transaction:
            transaction.plan([RunPlan(delivery_id, ("a",))], NOON)

    with ThreadPoolExecutor(1) as pool, pytest.raises(InboxUnavailable, match="statement timeout"):
        pool.submit(plan).result(20)
    inbox.close()
