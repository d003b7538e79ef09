"""The rq engine with real workers on a real Redis: nothing is lost, and no attempt is called twice."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from redis import Redis
from rq import Queue

from billhook.inbox import Inbox
from support.examples import EXAMPLES, free_port
from support.inbox_view import column, place_of, rows
from support.processes import clean_environment, logged, run_command, until
from support.proxy import proxied
from support.server import gunicorn
from support.signing import SECRET, signed

pytestmark = pytest.mark.slow

RQ = Path(sys.executable).parent / "rq"
SHOP = """
import os, time
from flask import Flask
from redis import Redis
from rq import Queue
from rq.serializers import JSONSerializer
from billhook import Billhook, Handlers
from billhook.events import PingTest

handlers = Handlers()

@handlers.on(PingTest, name="note", retry=[0.2] * 9)
def note(event, delivery):
    line = f"{delivery.key} {delivery.attempt} {os.getpid()}\\n"
    descriptor = os.open("calls", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)
    time.sleep(0.3)
    if delivery.attempt == 1 and delivery.key.endswith("0"):
        raise ValueError("not today")

app = Flask("shop", instance_path=os.getcwd())
app.config.update(BILLHOOK_SECRETS=[os.environ["SECRET"]], BILLHOOK_ENGINE="rq", BILLHOOK_LEASE_SECONDS=2)
queue = Queue(os.environ["QUEUE"], connection=Redis.from_url(os.environ["REDIS"]), serializer=JSONSerializer)
app.extensions["rq"] = queue
Billhook(handlers=[handlers]).init_app(app, url_prefix='/webhooks/billing')
BillhookWorker = app.extensions["rq_worker"]
"""


class Shop:
    """An app with a queue of its own; `calls` are the key, the attempt and the process of each call."""

    def __init__(self, folder, redis_url, inbox_url=None):
        self.folder, self.queue, self.redis = folder, f"billhook-test-{secrets.token_hex(4)}", redis_url
        self.inbox_url = inbox_url or f"sqlite:///{folder / 'billhook.db'}"
        self.inbox = place_of(self.inbox_url)
        (folder / "shop.py").write_text(SHOP)

    @property
    def environ(self):
        own = {"SECRET": SECRET, "QUEUE": self.queue, "REDIS": self.redis, "RQ_REDIS_URL": self.redis}
        return clean_environment(**own, BILLHOOK_INBOX_URL=self.inbox_url, PYTHONWARNINGS="ignore")

    @contextmanager
    def worker(self, *flags, app="shop.BillhookWorker", **more):
        log = self.folder / f"worker-{secrets.token_hex(3)}.log"
        command = [RQ, "worker", "--path", str(self.folder), "--worker-class", app, *flags]
        options = {"cwd": self.folder, "env": {**self.environ, **more}, "start_new_session": True}
        ready = lambda: "Listening on" in log.read_text()  # noqa: E731
        with logged(command, log, ready=ready, grace=30, **options) as process:
            yield process

    def web(self, **more):
        return gunicorn(self.folder, app="shop:app", wait_for="", **{**self.environ, **more})

    def calls(self):
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(key, int(attempt), int(pid)) for key, attempt, pid in map(str.split, lines)]

    def finished(self, count, seconds=120):
        query = "SELECT count(*) FROM delivery WHERE state IN ('done', 'dead')"
        until(lambda: column(self.inbox, query) == [count], seconds, 0.1)


@pytest.fixture
def shops(tmp_path, redis_url):
    """Makes a shop, on a database of its own unless it is given one; empties its queue at the end."""
    made = []

    def make(inbox_url=None):
        made.append(Shop(tmp_path, redis_url, inbox_url))
        return made[-1]

    yield make
    with Redis.from_url(redis_url) as server:
        for one in made:
            Queue(one.queue, connection=server).delete(delete_jobs=True)


@pytest.fixture
def shop(shops):
    """On SQLite."""
    return shops()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def every_shop(request, shops):
    if request.param == "sqlite":
        return shops()
    inbox_url = request.getfixturevalue("postgres_url")
    with closing(Inbox(inbox_url)) as inbox:
        inbox.upgrade()
    return shops(inbox_url)


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.timeout(300)
def test_each_run_is_called_as_often_as_its_attempts_whatever_is_killed(every_shop, redis_url):
    """A child, a worker, the line to Redis, what Redis remembers; and messages that come twice."""
    shop, count, killed = every_shop, 24, Counter()
    with proxied(redis_url) as proxy, ExitStack() as workers, Redis.from_url(redis_url) as server:
        shop.redis = proxy.url
        processes = [workers.enter_context(shop.worker()) for _ in range(2)]
        with shop.web() as site:
            for number in range(count):
                assert site.post(headers=signed(message_id=f"msg_{number}")).status == 200
                if number % 6 == 1:  # a child, while its handler runs
                    until(shop.calls, 60)
                    key, _, pid = shop.calls()[-1]
                    killed[key] += kill(pid)
                elif number == 8:  # a worker, of which the child goes on
                    assert kill(processes[0].pid)
                    workers.enter_context(shop.worker())
                elif number == 14:  # Redis, with all that it had in its memory
                    proxy.refuses = True
                    proxy.cut()
                    server.delete(f"rq:queue:{shop.queue}")
                elif number == 18:
                    proxy.refuses = False
                    workers.enter_context(shop.worker())  # as systemd starts it again
            messages = Queue(shop.queue, connection=server, serializer="rq.serializers.JSONSerializer")
            for delivery_id in range(1, count + 1):
                messages.enqueue_call("billhook.engines.rq.engine.handle", (delivery_id,), result_ttl=0)
            shop.finished(count)

    calls = shop.calls()
    attempts = [(key, attempt) for key, attempt, _ in calls]
    assert Counter(attempts).most_common(1)[0][1] == 1, "an attempt was called twice"
    query = "SELECT d.key, r.state, r.attempts FROM run r JOIN delivery d ON d.id = r.delivery_id"
    found = {key: (state, number) for key, state, number in rows(shop.inbox, query)}
    assert found == {
        f"msg_{n}": ("succeeded", Counter(k for k, *_ in calls)[f"msg_{n}"]) for n in range(count)
    }
    assert sum(killed.values()) > 0
    assert len(calls) >= count + sum(killed.values())


def test_a_message_is_json_without_a_time_limit_and_leaves_nothing_in_redis(shop, redis_url):
    with shop.web() as site, Redis.from_url(redis_url) as server:
        assert site.post(headers=signed(message_id="m")).status == 200
        key = f"rq:queue:{shop.queue}"
        until(lambda: server.llen(key), 30)
        job = f"rq:job:{server.lindex(key, 0).decode()}"
        facts = server.hgetall(job)
        with shop.worker():
            shop.finished(1)
            until(lambda: not server.exists(job), 30)

    assert facts[b"timeout"] == b"-1"
    assert facts[b"result_ttl"] == b"0"
    assert b"retries_left" not in facts


def test_a_worker_is_listed_while_it_runs_and_stopped_in_order_after_it(shop):
    query = "SELECT engine, stopped_at IS NULL FROM billhook_worker"
    with shop.worker() as process:
        until(lambda: shop.inbox.exists() and rows(shop.inbox, query) == [("rq", 1)], 60)
        process.terminate()
        assert process.wait(30) == 0

    assert rows(shop.inbox, query) == [("rq", 0)]


def test_a_worker_for_other_queues_is_refused(shop):
    ran = run_command(
        [RQ, "worker", "--path", str(shop.folder), "--worker-class", "shop.BillhookWorker", "mail"],
        cwd=shop.folder,
        env=shop.environ,
    )

    assert ran.returncode == 1
    assert f"Error: this worker is for the queue {shop.queue} alone, and not for ['mail']" in ran.stderr


def test_a_standalone_receivers_workers_are_rqs_own(shop):
    (shop.folder / "tasks.py").write_text(SHOP.partition("app = Flask")[0] + SHOP[SHOP.index("queue = ") :])
    text = (shop.folder / "tasks.py").read_text()
    (shop.folder / "tasks.py").write_text(text.partition("app.extensions")[0])
    environment = {
        "BILLHOOK_SECRETS": SECRET,
        "BILLHOOK_ENGINE": "rq",
        "BILLHOOK_RQ_QUEUE": "tasks:queue",
        "BILLHOOK_HANDLERS": "tasks",
    }
    with (
        gunicorn(shop.folder, **{**shop.environ, **environment}) as server,
        shop.worker(app="billhook.standalone.rq_worker", **environment),
    ):
        assert server.post(headers=signed(message_id="msg_1")).status == 200
        shop.finished(1)

    assert [call[:2] for call in shop.calls()] == [("msg_1", 1)]


def test_the_rq_example_runs_as_documented(shop, tmp_path):
    folder = tmp_path / "rq"
    shutil.copytree(EXAMPLES / "rq", folder, ignore=shutil.ignore_patterns("__pycache__", "instance"))
    readme = (folder / "README.md").read_text()
    web, worker, letter = re.findall(r"^\$ ((?:flask|rq|cat) .*)$", readme, re.MULTILINE)[:3]
    sent = re.search(r"^\$ (billhook send .*)$", readme, re.MULTILINE)[1]
    expected = re.search(rf"^\$ {re.escape(letter)}\n(.*)$", readme, re.MULTILINE)[1]
    port = str(free_port())
    environ = shop.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "BILLHOOK_SECRETS": SECRET,
        "FLASK_BILLHOOK_SECRETS": SECRET,
        "FLASK_BOOKSHOP_QUEUE": shop.queue,
        "PYTHONUNBUFFERED": "1",
    }

    def started(command, ready):
        log = folder / f"{command.split()[0]}.log"
        run = ["sh", "-c", f"exec {command}"]
        return logged(run, log, ready=lambda: ready in log.read_text(), cwd=folder, env=environ)

    with started(web.replace("8000", port), "Running on"), started(worker, "Listening on"):
        command = sent.replace("8000", port)
        assert run_command(command, shell=True, cwd=folder, env=environ).stdout.startswith("200 ")
        until((folder / letter.split()[1]).exists, 60)
        until(lambda: (folder / letter.split()[1]).read_text().strip() == expected)
        failing = command.replace("InvoiceApproved", "PaymentFailed")
        subprocess.run(failing, shell=True, cwd=folder, env=environ, check=True, stdout=subprocess.DEVNULL)
        asked = "SELECT state, attempts FROM run WHERE handler LIKE '%ask_again'"
        until(lambda: rows(shop.inbox, asked) == [("succeeded", 3)], 60)
