"""`billhook serve` and `billhook worker` as real processes: they deliver, end in order, leave nothing."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import billhook
from billhook.cli.serve import SourceFiles
from billhook.posting import HttpPoster, sign
from billhook.signing import StandardWebhooks
from support.inbox_view import incoming, open_inbox, rows
from support.processes import alive, children, clean_environment, descendants, run_command, until
from support.signing import SECRET, signed
from support.timeouts import scaled

HANDLERS = """
import os
from billhook import Handlers
from billhook.events import InvoiceApproved, PingTest

handlers = Handlers()

@handlers.on(InvoiceApproved)
def note(event, delivery):
    with open("handled.txt", "a") as output:
        output.write(f"{event.invoice_id} {delivery.key} {os.getpid()}\\n")

@handlers.on(PingTest, retry=[0])
def act(event, delivery):
    if delivery.key.startswith("die") and delivery.attempt == 1:
        os._exit(9)
"""


class Cli:
    """`billhook …` in a folder of its own, with a log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []
        self.environ = clean_environment(BILLHOOK_SECRETS=SECRET, BILLHOOK_LEASE_SECONDS="1")
        (folder / "shop_handlers.py").write_text(HANDLERS)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/webhooks/billing"

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "billhook", *arguments],
                cwd=self.folder, env=self.environ, stdout=log, stderr=log,
            )  # fmt: skip
        self.started.append(process)
        return process

    def serve(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Running, with both of its children up."""
        process = self.start("serve", *arguments, "--bind", f"127.0.0.1:{self.port}", "--workers", "1")
        until(lambda: "ASGI server listening" in self.log() and "worker started with" in self.log(), 20)
        return process

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_command([sys.executable, "-m", "billhook", *arguments], cwd=self.folder, env=self.environ)

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def read(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""


@pytest.fixture
def cli(tmp_path) -> Iterator[Cli]:
    made = Cli(tmp_path)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_serve_handles_deliveries_and_stops_all_processes_on_sigterm(cli):
    server = cli.serve("shop_handlers.py")
    pids = descendants(server.pid)
    arguments = b"".join(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in {server.pid, *pids})

    sent = cli.run("send", "InvoiceApproved", "--to", cli.url, "--set", "invoiceId=inv_77", "--id", "msg-1")
    until(lambda: "inv_77 msg-1" in cli.read("handled.txt"))
    forged = run_command(
        [sys.executable, "-m", "billhook", "send", "PingTest", "--to", cli.url],
        cwd=cli.folder,
        env={**cli.environ, "BILLHOOK_SECRETS": "whsec_" + "A" * 40},
    )
    server.send_signal(signal.SIGTERM)

    assert server.wait(20) == 0
    assert (sent.returncode, forged.returncode) == (0, 1)
    assert forged.stdout.startswith("401")
    assert len(pids) == 3  # gunicorn, its worker, ours
    assert alive(pids) == set()
    assert SECRET.encode() not in arguments
    log = cli.log()
    assert f"Deliveries: POST {cli.url}" in log
    assert f"Inbox:      {cli.folder / 'billhook.db'}" in log
    assert "Handlers:   2" in log
    assert "Traceback" not in log
    assert "Shutting down: Master" in log
    assert "billhook.worker: worker stopped" in log


def status_of(url: str, credentials: str | None = None) -> int:
    """The status of GET, with or without an Authorization header."""
    request = urllib.request.Request(url, headers={"Authorization": credentials} if credentials else {})
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.slow
def test_serve_says_where_the_dashboard_and_the_metrics_are(cli):
    for name, content in (("users.txt", "alice:a-long-password"), ("token.txt", "t" * 32)):
        (cli.folder / name).write_text(content)
        (cli.folder / name).chmod(0o600)
    cli.environ |= {"BILLHOOK_DASHBOARD": "users.txt", "BILLHOOK_METRICS_TOKEN_FILE": "token.txt"}

    cli.serve("shop_handlers.py")

    root = cli.url.removesuffix("/webhooks/billing")
    found = dict(line.split(":", 1) for line in cli.log().splitlines()[:5])
    assert found["Dashboard"].strip() == f"{root}/billhook/"
    assert found["Metrics"].strip() == f"{root}/metrics"
    password = base64.b64encode(b"alice:a-long-password").decode()
    for path, credentials in (("/billhook/", f"Basic {password}"), ("/metrics", f"Bearer {'t' * 32}")):
        assert status_of(root + path) == 401
        assert status_of(root + path, credentials) == 200


@pytest.mark.slow
def test_no_process_is_left_when_serve_is_killed(cli):
    server = cli.serve("shop_handlers.py")
    pids = descendants(server.pid)

    server.kill()
    server.wait()

    until(lambda: not alive(pids), 15)


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_and_its_work_is_done(cli):
    server = cli.serve("shop_handlers")  # the module's name will do as well
    workers = cli.log().count("worker started with")

    cli.run("send", "PingTest", "--to", cli.url, "--id", "die-once")
    until(lambda: cli.log().count("worker started with") > workers, 15)

    query = "SELECT state FROM delivery"
    until(lambda: rows(cli.folder / "billhook.db", query) == [("done",)], 10)
    assert "the worker exited with code 9; restarting in 0.5 s" in cli.log()
    server.send_signal(signal.SIGINT)
    assert server.wait(20) == 0


def masters(server):
    """The gunicorns that `serve` has started."""
    return {pid for pid in children(server.pid) if b"gunicorn\0" in Path(f"/proc/{pid}/cmdline").read_bytes()}


def ask_until(cli, stop):
    """Ask on new connections until told to stop; every answer, or what went wrong."""
    answers = []
    while not stop.is_set():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{cli.port}/healthz", timeout=30) as answer:
                answers.append(answer.status)
        except OSError as error:
            answers.append(error)
        time.sleep(0.02)
    return answers


@pytest.mark.slow
def test_a_hangup_has_new_handlers_loaded_and_refuses_no_connection(cli):
    server = cli.serve("shop_handlers.py")
    before = descendants(server.pid)
    stop = threading.Event()
    with ThreadPoolExecutor() as pool:
        asking = pool.submit(ask_until, cli, stop)
        try:
            (cli.folder / "shop_handlers.py").write_text(HANDLERS.replace('"handled.txt"', '"anew.txt"'))
            server.send_signal(signal.SIGHUP)
            until(lambda: len(alive(before)) == 1, 60)  # gunicorn's master stays
            until(lambda: cli.log().count("worker started with") == 2, 60)
        finally:
            stop.set()
        answers = asking.result()

    cli.run("send", "InvoiceApproved", "--to", cli.url, "--set", "invoiceId=inv_9")
    until(lambda: "inv_9" in cli.read("anew.txt"), 30)
    assert set(answers) == {200}
    assert cli.read("handled.txt") == ""
    server.send_signal(signal.SIGTERM)
    assert server.wait(30) == 0


@pytest.mark.slow
def test_with_reload_a_changed_file_has_new_handlers_loaded(cli):
    (cli.folder / "helper.py").write_text("NAME = 'handled.txt'\n")
    handlers = HANDLERS.replace('"handled.txt"', "NAME")
    (cli.folder / "shop_handlers.py").write_text("from helper import NAME\n" + handlers)
    server = cli.serve("shop_handlers.py", "--reload")

    (cli.folder / "helper.py").write_text("this is no Python")
    until(lambda: "reload failed" in cli.log(), 30)
    (cli.folder / "helper.py").write_text("NAME = 'anew.txt'\n")
    until(lambda: cli.log().count("worker started with") == 2, 30)

    cli.run("send", "InvoiceApproved", "--to", cli.url, "--set", "invoiceId=inv_9")
    until(lambda: "inv_9" in cli.read("anew.txt"), 30)
    assert cli.log().count("billhook.serve: reloading") == 1
    server.send_signal(signal.SIGTERM)
    assert server.wait(30) == 0


def test_only_the_users_own_files_are_watched(tmp_path, monkeypatch):
    (tmp_path / "own_module.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_module", raising=False)
    importlib.import_module("own_module")
    now = [1_000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    files = SourceFiles()
    found = []
    for name in ("own_module.py", "beside.py", "notes.txt"):
        (tmp_path / name).write_text("x = 1")
        os.utime(tmp_path / name, (now[0], now[0]))
        now[0] += 1
        found += [files.is_changed(), files.is_changed()]
    (tmp_path / "beside.py").unlink()
    now[0] += 1

    assert [*found, files.is_changed()] == [True, False, True, False, False, False, True]
    assert not any(path.is_relative_to(Path(billhook.__file__).parent) for path in files._read())
    assert not any("site-packages" in path.parts for path in files._read())


@pytest.mark.slow
def test_export_into_a_pipe_that_closes_is_no_stack_trace(cli):
    inbox = open_inbox(cli.folder / "billhook.db")
    for number in range(300):
        inbox.put(incoming(f"m{number}", body=b"x" * 2_000))
    inbox.close()

    command = f"{sys.executable} -m billhook deliveries export | head -1"
    done = run_command(["sh", "-c", command], cwd=cli.folder, env=cli.environ)

    assert json.loads(done.stdout)["key"] == "m0"
    assert done.stderr == ""


HOLDS_THE_LOCK = """
import ctypes, os, signal
from pathlib import Path
from billhook import Handlers
from billhook.events import PingTest
from billhook.inbox.sqlite.driver import WriteLock

handlers = Handlers()

@handlers.on(PingTest, retry=[0])
def hold(event, delivery):
    if delivery.attempt == 1 and delivery.key == "hold":
        with WriteLock(Path("billhook.db-lock")).held():
            STOP
"""
KEEPS_THE_INTERPRETER = "ctypes.PyDLL(None).sleep(10**6)"
IS_FROZEN = "os.kill(os.getpid(), signal.SIGSTOP)"


@pytest.mark.slow
@pytest.mark.parametrize("stop", [KEEPS_THE_INTERPRETER, IS_FROZEN], ids=["interpreter", "frozen"])
def test_a_worker_that_stops_amid_a_transaction_holds_the_receiver_up_for_seconds_only(cli, stop):
    (cli.folder / "shop_handlers.py").write_text(HOLDS_THE_LOCK.replace("STOP", stop))
    cli.environ["BILLHOOK_LEASE_SECONDS"] = "30"  # as shipped: the watchdog and the parent wait for longer
    server = cli.serve("shop_handlers.py")
    (worker,) = set(children(server.pid)) - masters(server)

    cli.run("send", "PingTest", "--to", cli.url, "--id", "hold")
    held = f"process {worker} holds the write lock"  # logged with a refusal
    until(lambda: [refused(cli), held in cli.log()][1], scaled(25))
    began = time.monotonic()
    until(lambda: not refused(cli), scaled(25))

    assert time.monotonic() - began < scaled(8)
    server.send_signal(signal.SIGTERM)
    assert server.wait(40) == 0


def refused(cli):
    """Whether a delivery is refused. A process for it might take as long as the lock is held."""
    headers = sign(StandardWebhooks(), SECRET, "PingTest", b"{}", datetime.now(UTC))
    with HttpPoster(urlsplit(cli.url), 10.0) as poster:
        return poster.post(b"{}", headers).status != 200


REPLACES_STANDARD_ERROR = """
import sys
from billhook import Handlers
from billhook.events import PingTest

class ToLog:
    def write(self, text): pass
    def flush(self): pass

sys.stderr = ToLog()
handlers = Handlers()

@handlers.on(PingTest)
def note(event):
    open("noted", "a").write("x")
"""


@pytest.mark.slow
def test_handlers_that_replace_standard_error_hold_nothing_up(cli):
    (cli.folder / "shop_handlers.py").write_text(REPLACES_STANDARD_ERROR)
    server = cli.serve("shop_handlers.py")

    assert not any(refused(cli) for _ in range(3))
    until(lambda: (cli.folder / "noted").exists() and (cli.folder / "noted").read_text() == "xxx", 15)
    server.send_signal(signal.SIGTERM)
    assert server.wait(40) == 0


FAILS = """
from billhook import Handlers
from billhook.events import PingTest

handlers = Handlers()

@handlers.on(PingTest, retry=[0, 0])
def fail(event, delivery):
    raise RuntimeError("x" * 2000)
"""


@pytest.mark.slow
def test_a_log_that_nobody_reads_holds_no_answer_up(cli):
    (cli.folder / "shop_handlers.py").write_text(FAILS)
    cli.environ["BILLHOOK_ENGINE"] = "thread"  # handlers that fail, in the process that answers
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4_096)
    command = [sys.executable, "-P", "-m", "gunicorn", "--config", "python:billhook.gunicorn_conf"]
    command += ["--bind", f"127.0.0.1:{cli.port}", "--workers", "1", "billhook.standalone:create_asgi_app()"]
    cli.environ["BILLHOOK_HANDLERS"] = "shop_handlers.py"
    server = subprocess.Popen(command, cwd=cli.folder, env=cli.environ, stdout=writer, stderr=writer)
    cli.started.append(server)
    os.close(writer)
    root = f"http://127.0.0.1:{cli.port}"
    until(lambda: answers(f"{root}/healthz"), 20)

    slowest = 0.0
    for number in range(300):
        began = time.monotonic()
        body = b"{}"
        headers = signed(body, message_id=f"msg-{number}")
        request = urllib.request.Request(cli.url, body, headers, method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 200
        slowest = max(slowest, time.monotonic() - began)
    assert status_of(f"{root}/readyz") == 200

    assert slowest < scaled(2.5)
    failed = "SELECT count(*) FROM run WHERE state = 'dead'"
    until(lambda: rows(cli.folder / "billhook.db", failed) == [(300,)], 60)
    server.send_signal(signal.SIGTERM)
    server.wait(40)
    os.close(reader)


def answers(url):
    try:
        return status_of(url) == 200
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("redirection", ["> /dev/full", ">&-"])
def test_serve_starts_where_nothing_can_be_written_to_standard_output(cli, redirection):
    command = f'exec "{sys.executable}" -m billhook serve shop_handlers.py --bind 127.0.0.1:{cli.port} '
    with (cli.folder / "log").open("ab") as log:
        server = subprocess.Popen(
            ["/bin/sh", "-c", command + redirection], cwd=cli.folder, env=cli.environ, stderr=log
        )
    cli.started.append(server)

    until(lambda: answers(f"http://127.0.0.1:{cli.port}/readyz"), 30)
    server.send_signal(signal.SIGTERM)

    assert server.wait(30) == 0


TAKES_ALL = """
import mmap, os
from billhook import Handlers
from billhook.events import PingTest

handlers, kept = Handlers(), []

@handlers.on(PingTest, retry=[0, 0])
def take(event, delivery):
    if delivery.key == "take":
        while True:
            kept.append(TAKE)
"""
DESCRIPTORS = ("os.open(os.devnull, os.O_RDONLY)", "ulimit -n 500")
MEMORY = ("mmap.mmap(-1, 1 << 20)", "ulimit -v 1500000")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "take", "limit"),
    [("file descriptors", *DESCRIPTORS), ("memory", *MEMORY)],
    ids=["files", "memory"],
)
def test_a_web_process_that_has_none_left_is_replaced(cli, what, take, limit):
    (cli.folder / "shop_handlers.py").write_text(TAKES_ALL.replace("TAKE", take))
    cli.environ |= {"BILLHOOK_ENGINE": "thread", "BILLHOOK_HANDLERS": "shop_handlers.py"}
    command = f'{limit}; exec "{sys.executable}" -P -m gunicorn --config python:billhook.gunicorn_conf '
    command += f"--bind 127.0.0.1:{cli.port} --workers 1 'billhook.standalone:create_asgi_app()'"
    with (cli.folder / "log").open("ab") as log:
        server = subprocess.Popen(["/bin/sh", "-c", command], cwd=cli.folder, env=cli.environ, stderr=log)
    cli.started.append(server)
    ready = f"http://127.0.0.1:{cli.port}/readyz"
    until(lambda: answers(ready), 20)
    before = children(server.pid)

    cli.run("send", "PingTest", "--to", cli.url, "--id", "take")
    found = ask_until_replaced(ready, lambda: set(before) & set(children(server.pid)))

    assert 200 in found
    assert 500 not in found
    assert f"has no {what} left" in cli.log()


def ask_until_replaced(url, is_there):
    """What is answered, connections that fail left out, until another process answers with 200."""
    found, end = [], time.monotonic() + scaled(40)
    while is_there() or not answers(url):
        assert time.monotonic() < end
        with contextlib.suppress(OSError):
            found.append(status_of(url))
        time.sleep(0.05)
    return [*found, status_of(url)]
