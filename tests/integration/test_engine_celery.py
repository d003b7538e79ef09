"""The celery engine with real workers on real brokers: RabbitMQ and Redis, SQLite and PostgreSQL."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from billhook import signals
from billhook.events import (
    CustomerCreated,
    PaymentFailed,
    sample,
)
from billhook.extension import get_state
from billhook.inbox import Inbox
from support.acceptance.senders import load_on
from support.apps import deliver, inbox_at
from support.celery_workers import Shop, clean_up, worker
from support.examples import EXAMPLES, free_port
from support.inbox_view import incoming, rows
from support.processes import clean_environment, logged, run_command, until
from support.proxy import proxied
from support.server import gunicorn
from support.signing import SECRET, signed
from support.timeouts import scaled

pytestmark = pytest.mark.slow


@pytest.fixture
def shops(tmp_path):
    """Makes shops; takes their names off the broker at the end, and closes their apps here."""
    made, apps = [], []

    class Made(Shop):
        def app(self, **more):
            apps.append(super().app(**more))
            return apps[-1]

    def make(broker, inbox_url=None, **options):
        folder = tmp_path / f"shop-{len(made)}"
        folder.mkdir()
        made.append(Made(folder, inbox_url or f"sqlite:///{folder / 'billhook.db'}", broker, options))
        return made[-1]

    yield make
    for app in apps:
        app.extensions["billhook"].close()
    for shop in made:
        clean_up(shop)


@pytest.fixture
def shop(shops, amqp_url):
    """On RabbitMQ and SQLite."""
    return shops(amqp_url)


@pytest.fixture(
    params=["rabbitmq-sqlite", "redis-sqlite", pytest.param("rabbitmq-postgresql", marks=pytest.mark.long)]
)
def every_shop(request, shops):
    broker, database = request.param.split("-")
    inbox_url = None
    if database == "postgresql":
        inbox_url = request.getfixturevalue("postgres_url")
        with closing(Inbox(inbox_url)) as inbox:
            inbox.upgrade()
    return shops(request.getfixturevalue("amqp_url" if broker == "rabbitmq" else "redis_url"), inbox_url)


def send(app, model, **more):
    """One delivery of a sample event."""
    assert deliver(app, sample(model).to_json(), model.__name__, **more).status_code == 200


# --- from the answer to the end -------------------------------------------------------------------


def test_every_delivery_is_handled_once_by_the_workers_processes(every_shop):
    shop = every_shop
    app = shop.app()
    for number in range(40):
        assert deliver(app, message_id=f"msg_{number}").json == {"status": "accepted"}
    sent = 40
    with worker(shop) as running:
        shop.finished(sent)
        while len({pid for _, _, _, pid in shop.calls()}) < 2 and sent < 2000:  # the other began late
            deliver(app, message_id=f"msg_{sent}")
            sent += 1
        shop.finished(sent)

    assert Counter(key for _, key, _, _ in shop.calls()) == {f"msg_{n}": 1 for n in range(sent)}
    pids = {pid for _, _, _, pid in shop.calls()}
    assert len(pids) == 2  # prefork: each with database connections of its own
    assert not pids & {running.process.pid, os.getpid()}
    assert sorted(shop.observed()) == sorted(shop.calls())  # observers are told where the handler ran
    assert set(shop.runs()) == {("note", "succeeded", 1)}


@pytest.mark.long
def test_a_worker_is_in_the_table_of_workers_until_it_ends_in_order(shop):
    app = shop.app()
    where = inbox_at(app)
    query = "SELECT owner, engine, handlers > 0 FROM billhook_worker WHERE stopped_at IS NULL"
    with worker(shop) as running:
        until(lambda: rows(where, query), 30)
        ((owner, engine, handles),) = rows(where, query)
        assert running.process.poll() is None

    assert (owner.split(":")[1], engine, bool(handles)) == (str(running.process.pid), "celery", True)
    until(lambda: rows(where, query) == [], 10)


# --- handlers that do not come back ---------------------------------------------------------------


@pytest.mark.parametrize(
    "pool", ["prefork", *(pytest.param(pool, marks=pytest.mark.long) for pool in ("threads", "solo"))]
)
def test_a_handler_past_its_time_out_is_abandoned_in_any_celery_pool(shop, pool):
    app = shop.app()
    with worker(shop, pool=pool):
        for number in range(3):
            send(app, PaymentFailed, message_id=f"msg_{number}")
        shop.finished(3)

    assert Counter(name for name, *_ in shop.calls()) == {"hangs": 3, "beside": 3}
    assert sorted(set(shop.runs("handler, state, last_error"))) == [
        ("beside", "succeeded", None),
        ("hangs", "dead", "TimeoutError: the handler did not return within 0.5 s"),
    ]


def test_a_worker_that_is_killed_loses_nothing(shops, amqp_url):
    shop = shops(amqp_url, lease_seconds=1)
    app = shop.app()
    with worker(shop) as first:
        send(app, CustomerCreated, message_id="msg_1")
        until(shop.calls, 30)
        os.killpg(first.process.pid, 9)
    with worker(shop):
        shop.finished(1)

    assert [call[:3] for call in shop.calls()] == [("slow", "msg_1", 1), ("slow", "msg_1", 2)]


# --- messages that come twice, late, never, or from somebody else ---------------------------------


def test_a_pickle_on_the_queue_is_not_opened(shop):
    app = shop.app()
    celery = app.extensions["celery"]
    marker = shop.folder / "opened"

    class Bomb:
        def __reduce__(self):
            return os.mknod, (str(marker),)

    celery.send_task("billhook.handle", args=[Bomb()], serializer="pickle")
    with worker(shop) as running:
        deliver(app, message_id="msg_1")
        shop.finished(1)
        until(lambda: running.says("Refusing to deserialize"), 30)

    assert not marker.exists()


# --- a broker that is away ------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("trouble", ["refuses", "hangs"])
def test_answers_do_not_notice_a_broker_that_is_away_and_all_is_handled_afterwards(shops, amqp_url, trouble):
    shop = shops(amqp_url)
    with proxied(amqp_url) as proxy, patched(shop, proxy.url):
        options = {"SHOP_WEB": "1", **shop.environment}
        web = gunicorn(shop.folder, app="support.celery_shop:from_environment()", wait_for="", **options)
        with web as server, worker(shop):
            with load_on(server.port, 4) as load:
                load.more(20)
                if trouble == "refuses":
                    proxy.refuses = True
                    proxy.cut()
                else:
                    proxy.hold()
                load.more(1_000)
                proxy.refuses = False
                proxy.cut()
                proxy.release()
                load.more(20)
            shop.finished(len(load), 300)

    assert load.statuses.keys() == {'200 {"status": "accepted"}'}
    assert max(Counter(key for _, key, _, _ in shop.calls()).values()) == 1
    assert load.slowest_seconds < scaled(2.5)


@contextmanager
def patched(shop, broker):
    """The shop with another address of its broker, until it is to be cleaned up."""
    direct, shop.broker = shop.broker, broker
    yield
    shop.broker = direct


# --- how workers are started ----------------------------------------------------------------------


def test_a_standalone_receivers_workers_are_celerys_own(shop, tmp_path):
    (shop.folder / "tasks.py").write_text(
        f"from celery import Celery\ncelery = Celery('mine', broker={shop.broker!r})\n"
        f"celery.conf.update(task_default_queue={shop.queue!r}, broker_connection_retry_on_startup=True)\n"
    )
    (shop.folder / "billing.py").write_text(
        "from pathlib import Path\n"
        "from billhook import Handlers\n"
        "from billhook.events import PingTest\n"
        "handlers = Handlers()\n"
        "@handlers.on(PingTest)\n"
        "def note(event, delivery):\n"
        "    Path(delivery.key).touch()\n"
    )
    environment = {
        "BILLHOOK_SECRETS": SECRET,
        "BILLHOOK_ENGINE": "celery",
        "BILLHOOK_CELERY_APP": "tasks:celery",
        "BILLHOOK_HANDLERS": "billing",
        "BILLHOOK_INBOX_URL": shop.inbox_url,
    }
    with (
        gunicorn(shop.folder, **environment) as server,
        worker(shop, app="billhook.standalone:celery", **environment) as running,
    ):
        assert server.post(headers=signed(message_id="msg_1")).status == 200
        until((shop.folder / "msg_1").exists, 30)
        assert running.says("billhook.handle")


def test_a_worker_ends_in_order_while_deliveries_wait(shop):
    app = shop.app()
    for number in range(300):
        get_state(app).inbox.put(incoming(f"msg_{number}"))
    with worker(shop) as running:
        until(shop.calls, 30)
        running.process.terminate()
        # A process of the pool waits up to 30 s for its last results to be read, which at a stop, now and
        # then, they are not: billiard, Worker._ensure_messages_consumed.
        assert running.process.wait(scaled(60)) == 0

    assert set(shop.runs("state")) <= {("succeeded",), ("due",)}  # nothing was cut off in the middle


# --- the example, and a control -------------------------------------------------------------------


@contextmanager
def started(command, folder, environ, ready):
    """A command of the example's README, until the block ends."""
    log = folder / f"{command.split()[0]}.log"
    started = ["sh", "-c", f"exec {command}"]
    with logged(started, log, ready=lambda: ready(log.read_text()), cwd=folder, env=environ):
        yield


def test_the_celery_example_runs_as_documented(shop, tmp_path):
    folder = tmp_path / "celery"
    shutil.copytree(EXAMPLES / "celery", folder, ignore=shutil.ignore_patterns("__pycache__", "instance"))
    readme = (folder / "README.md").read_text()
    web, worker_command, letter = re.findall(r"^\$ ((?:flask|celery|cat) .*)$", readme, re.MULTILINE)[:3]
    sent = re.search(r"^\$ (billhook send .*)$", readme, re.MULTILINE)[1]
    expected = re.search(rf"^\$ {re.escape(letter)}\n(.*)$", readme, re.MULTILINE)[1]
    port = str(free_port())
    environ = clean_environment() | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "BILLHOOK_SECRETS": SECRET,
        "FLASK_BILLHOOK_SECRETS": SECRET,
        "FLASK_CELERY__broker_url": shop.broker,
        "FLASK_CELERY__task_default_queue": shop.queue,
        "PYTHONUNBUFFERED": "1",
    }
    node = f" --hostname {shop.queue}@%h"
    with (
        started(web.replace("8000", port), folder, environ, lambda log: "Running on" in log),
        started(worker_command + node, folder, environ, lambda log: "[queues]" in log),
    ):
        command = sent.replace("8000", port)
        ran = run_command(command, shell=True, cwd=folder, env=environ)
        assert ran.stdout.startswith('200 {"status": "accepted"}')
        until((folder / letter.split()[1]).exists, 30)
        until(lambda: (folder / letter.split()[1]).read_text().strip() == expected)
        failing = command.replace("InvoiceApproved", "PaymentFailed")
        subprocess.run(failing, shell=True, cwd=folder, env=environ, check=True, stdout=subprocess.DEVNULL)
        asked = "SELECT state, attempts FROM run WHERE handler LIKE '%ask_again'"
        until(lambda: rows(folder / "instance" / "billhook.db", asked) == [("succeeded", 3)], 30)


@pytest.mark.long
def test_publishing_in_the_request_would_be_noticed(shops, amqp_url):
    shop = shops(amqp_url)
    with proxied(amqp_url) as proxy, patched(shop, proxy.url):
        proxy.hold()
        app = shop.app()

        def careless(sender, **facts):
            app.extensions["celery"].send_task("billhook.handle", args=[0], retry=False)

        started_at = time.monotonic()
        with signals.delivery_accepted.connected_to(careless, sender=app):
            assert deliver(app).status_code == 200

        assert time.monotonic() - started_at > 1


@pytest.mark.parametrize("broker", ["amqp_url", "redis_url"])
def test_messages_to_a_queue_that_no_worker_consumes_are_told_of(shops, request, broker):
    shop = shops(request.getfixturevalue(broker), late=3, look=2)
    billing = f"{shop.queue}-billing"
    shop.options["routes"] = {"billhook.*": {"queue": billing}}
    app = shop.app()
    warning = f"no Celery worker consumes the queue {billing}, which billhook.handle is routed to"
    status = [sys.executable, "-m", "flask", "--app", "support.celery_shop:from_environment", "billhook"]
    # Tables break no line: where tests run side by side, COLUMNS is set.
    environ = {**os.environ, **shop.environment, "SHOP_WEB": "1", "COLUMNS": "300"}

    def said(*arguments):
        return run_command([*status, *arguments], env=environ, cwd=shop.folder)

    with worker(shop) as first:
        deliver(app)
        found = said("doctor").stdout  # at once, before the sweeper knows
        until(lambda: first.says(warning), 40)
        until(lambda: f"no Celery worker consumes the queue {billing}" in said("status").stdout, 30)
        held = said("doctor").stdout
        with worker(shop, "-Q", billing):
            shop.finished(1)
            after = said("doctor").stdout
        log = first.log.read_text()

    assert f"no Celery worker consumes the queue {billing}, which billhook.handle is routed to" in found
    # Beside those of other tests, whose workers answer on the same broker.
    assert re.search(rf"they consume [^\n]*\b{shop.queue}\b", found)
    assert f"start a worker with `-Q {billing}`" in found
    assert f"ERROR: no Celery worker consumes the queue {billing}\n" in held
    assert "routed to" not in after
    assert log.count("no Celery worker consumes") == 1
