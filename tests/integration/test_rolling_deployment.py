"""An old release beside a new one: real processes of every engine, on both databases."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import time
from pathlib import Path

import pytest

from billhook.events import EVENT_TYPES, sample
from support.inbox_view import place_of, rows, value
from support.processes import clean_environment, logged, output_of, until
from support.server import ask, is_up, request
from support.signing import SECRET, signed
from support.timeouts import scaled

pytestmark = pytest.mark.slow
TESTS = Path(__file__).parents[1]
SHOP = """
import os, time
from celery import Celery
from flask import Flask
from billhook import Billhook, Handlers
from billhook.events import Event, InvoiceApproved, PingTest

def note(name, delivery):
    descriptor = os.open("calls", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{name} {delivery.key}\\n".encode())
    os.close(descriptor)

handlers = Handlers()
exec(os.environ["HANDLERS"])
app = Flask("shop", instance_path=os.getcwd())
app.config.from_prefixed_env()
if "BROKER" in os.environ:
    celery = app.extensions["celery"] = Celery("shop", broker=os.environ["BROKER"], set_as_current=False)
    celery.conf.update(
        task_default_queue=os.environ["QUEUE"], worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True, worker_prefetch_multiplier=1,
    )
Billhook(handlers=[handlers]).init_app(app)
"""
NOTE = """
@handlers.on(InvoiceApproved, name="note")
def first(event, delivery):
    note("note", delivery)
"""
SECOND = """
@handlers.on(InvoiceApproved, name="second", retry=[])
def second(event, delivery):
    note("second", delivery)
"""


class Deployment:
    """Processes of releases on one inbox, in one folder; all are ended at the end."""

    def __init__(self, folder: Path, inbox_url: str, stack: contextlib.ExitStack) -> None:
        self.folder = folder
        self.inbox_url = inbox_url
        self._stack = stack
        self._sent = 0
        (folder / "shop.py").write_text(SHOP)

    def environ(self, handlers: str, release: str, **more: str) -> dict[str, str]:
        return clean_environment(
            HANDLERS=handlers,
            BILLHOOK_SECRETS=SECRET,
            BILLHOOK_INBOX_URL=self.inbox_url,
            BILLHOOK_RELEASE=release,
            PYTHONPATH=str(TESTS),
            **more,
        )

    def start(self, command: list[str], handlers: str, release: str, ready=None, **more: str):
        log = self.folder / f"{release}-{secrets.token_hex(2)}.log"
        environ = self.environ(handlers, release, **more)
        return self._stack.enter_context(
            logged([sys.executable, "-m", *command], log, cwd=self.folder, env=environ, ready=ready)
        )

    def worker(self, handlers: str, release: str, *options: str, wait: bool = True, **more: str):
        command = ["flask", "--app", "shop", "billhook", "worker", *options]
        return self.planning(self.start(command, handlers, release, **more), wait=wait)

    def planning(self, process, *, wait: bool = True):
        """Wait until a process has written its list of handlers."""
        query = "SELECT count(*) FROM billhook_worker WHERE list_id IS NOT NULL AND pid = ?"
        if wait:
            until(lambda: value(place_of(self.inbox_url), query, process.pid), 60, 0.05)
        return process

    def web(self, handlers: str, release: str, engine: str) -> int:
        """A gunicorn that serves the app; its port."""
        port = free_port()
        self.start(
            ["gunicorn", "-c", "python:billhook.gunicorn_conf", "-b", f"127.0.0.1:{port}", "-k", "gthread",
             "--threads", "4", "shop:app"],
            handlers, release, ready=lambda: is_up(port, "/nothing"), BILLHOOK_ENGINE=engine,
        )  # fmt: skip
        return port

    def send(self, port: int, count: int, event_type: str = "InvoiceApproved") -> None:
        for _ in range(count):
            self._sent += 1
            model = EVENT_TYPES.get(event_type)
            body = b"{}" if model is None else sample(model).to_json()
            headers = signed(body, event_type, message_id=f"msg_{self._sent}")
            assert ask(port, request(body, headers, path="/webhooks/billing")).status == 200

    def calls(self, name: str) -> int:
        path = self.folder / "calls"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return len({line for line in lines if line.split()[0] == name})

    def handled(self, count: int, *names: str, seconds: float = 30) -> None:
        """Wait until each handler has had so many deliveries, once."""
        until(lambda: [self.calls(name) for name in names] == [count] * len(names), seconds, 0.05)
        states = "SELECT DISTINCT state FROM delivery"
        until(lambda: rows(place_of(self.inbox_url), states) == [("done",)], 10)


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


@pytest.fixture
def deployment(tmp_path, inbox_url):
    with contextlib.ExitStack() as stack:
        yield Deployment(tmp_path, inbox_url, stack)


def test_workers_of_both_releases(deployment):
    port = deployment.web(NOTE, "1", "worker")
    deployment.worker(NOTE, "1")
    deployment.worker(NOTE + SECOND, "2")
    for number in (1, 2, 3):
        deployment.send(port, 30)
        deployment.handled(30 * number, "note", "second")

    shown = output_of(
        *(sys.executable, "-m", "flask", "--app", "shop", "billhook", "status", "--json"),
        cwd=deployment.folder,
        env=deployment.environ(NOTE, "1"),
    )
    assert "workers disagree: second is known to 1 of 2 (release 2; not 1)" in shown


RENAMED = """
@handlers.on(InvoiceApproved, name="second", aliases=["note"])
def first(event, delivery):
    note("second", delivery)
"""
OTHER_SOURCES = NOTE + SECOND.replace("retry=[]", "sources=['default']")
OTHER_TYPES = NOTE + SECOND.replace("@handlers.on(", "@handlers.on(PingTest, ")
OWN_TYPE = (
    NOTE
    + """
class Order(Event):
    pass
@handlers.on(Order, name="second")
def second(event, delivery):
    note("second", delivery)
"""
)


@pytest.mark.parametrize(
    ("old", "new", "event_type", "names"),
    [
        (NOTE, RENAMED, "InvoiceApproved", ["second"]),
        (
            NOTE + SECOND.replace("retry=[]", "sources=['reconcile']"),
            OTHER_SOURCES,
            "InvoiceApproved",
            ["note", "second"],
        ),
        (NOTE + SECOND, OTHER_TYPES, "PingTest", ["second"]),
        (NOTE, OWN_TYPE, "Order", ["second"]),
        (NOTE, SECOND, "InvoiceApproved", ["second"]),
    ],
    ids=["renamed", "sources", "types", "a new type", "removed and added"],
)
def test_each_change_of_the_handlers(deployment, old, new, event_type, names):
    port = deployment.web(old, "1", "worker")
    deployment.worker(old, "1")
    deployment.worker(new, "2")

    deployment.send(port, 30, event_type)

    deployment.handled(30, *names)
    assert deployment.calls("note") == (30 if "note" in names else 0)


@pytest.mark.parametrize("engine", ["thread", "inline"])
def test_web_processes_that_handle_themselves(deployment, engine):
    old, new = (deployment.web(NOTE + more, release, engine) for more, release in (("", "1"), (SECOND, "2")))
    deployment.send(old, 1)  # an engine that starts with a request
    deployment.send(new, 1)
    deployment.handled(2, "note", seconds=70)
    begun = deployment.calls("second")
    for number in (1, 2, 3):
        deployment.send(old, 15)
        deployment.send(new, 15)
        deployment.handled(2 + 30 * number, "note")
        assert deployment.calls("second") == begun + 30 * number


def test_celery_workers_of_both_releases(deployment, amqp_url):
    queue = {
        "BROKER": amqp_url,
        "QUEUE": f"billhook-test-{secrets.token_hex(4)}",
        "BILLHOOK_ENGINE": "celery",
    }
    port = deployment.web(NOTE, "1", "worker")
    for handlers, release in ((NOTE, "1"), (NOTE + SECOND, "2")):
        command = ["celery", "-A", "shop:celery", "worker", "-c", "2", "-n", f"{release}@%h"]
        deployment.planning(deployment.start(command, handlers, release, **queue))
    for number in (1, 2, 3):
        deployment.send(port, 30)
        deployment.handled(30 * number, "note", "second", seconds=60)


def test_serve_beside_a_worker_that_is_replaced(deployment):
    """A roll-back: once the newer process is gone, the older one decides at once."""
    port = deployment.web(NOTE, "1", "thread")
    deployment.send(port, 1)
    newer = deployment.worker(NOTE + SECOND, "2")
    deployment.send(port, 10)
    deployment.handled(11, "note")  # and `second`, or not all of them were done
    assert deployment.calls("second") == 10
    newer.send_signal(signal.SIGTERM)
    newer.wait(30)
    deployment.send(port, 10)
    deployment.handled(21, "note", seconds=10)
    assert deployment.calls("second") == 10


HANGS_AT_ITS_START = """
from billhook.engines.newest_list import NewestList
written = NewestList.record
def hang(self, *arguments):
    written(self, *arguments)
    time.sleep(600)
NewestList.record = hang
"""
DIES_AT_ITS_START = HANGS_AT_ITS_START.replace("time.sleep(600)", "os._exit(9)")


@pytest.mark.parametrize("what", ["hangs", "dies", "is stopped"])
def test_a_new_worker_that_does_not_plan_is_waited_for_for_a_minute(deployment, what):
    port = deployment.web(NOTE, "1", "worker")
    deployment.worker(NOTE, "1")
    trick = {"hangs": HANGS_AT_ITS_START, "dies": DIES_AT_ITS_START, "is stopped": ""}[what]
    newer = deployment.worker(NOTE + SECOND + trick, "2")
    if what == "is stopped":
        os.kill(newer.pid, signal.SIGSTOP)
    started = time.monotonic()
    deployment.send(port, 5)
    while deployment.calls("note") < 5 and time.monotonic() - started < 110:
        if what == "dies" and newer.poll() is not None:
            newer = deployment.worker(NOTE + SECOND + trick, "2", wait=False)
        time.sleep(1)
    took = time.monotonic() - started
    if what == "is stopped":
        os.kill(newer.pid, signal.SIGCONT)

    assert deployment.calls("note") == 5
    assert 50 < took < scaled(80)
