"""`billhook serve` and `billhook worker` as real processes: they deliver, end in order, leave nothing."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import importlib
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

import billhook
from billhook.cli.serve import SourceFiles
from support.examples import free_port
from support.inbox_view import incoming, open_inbox, rows
from support.processes import alive, children, descendants, run_command, until
from support.server import ask, get, is_up, request
from support.signing import SECRET, signed
from support.timeouts import scaled
from support.worker_group import HANDLERS, Programs

NOTING = """
@handlers.on(InvoiceApproved)
def note(event, delivery):
    with open("handled.txt", "a") as output:
        output.write(f"{event.invoice_id} {delivery.key} {os.getpid()}\\n")
@handlers.on(PingTest, retry=[0])
def act(event, delivery):
    if delivery.key.startswith("die") and delivery.attempt == 1:
        os._exit(9)
"""


class Cli(Programs):
    """`billhook …` in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, BILLHOOK_SECRETS=SECRET, BILLHOOK_LEASE_SECONDS="1")
        self.handle_by(NOTING)
        self.port = free_port()
        self.bind = ("--bind", f"127.0.0.1:{self.port}", "--workers", "1")
        self.url = f"http://127.0.0.1:{self.port}/webhooks/billing"

    def handle_by(self, code: str) -> None:
        (self.folder / "shop_handlers.py").write_text(HANDLERS + code)

    def serve(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Running, with both of its children up."""
        process = self.start("serve", *(arguments or ["shop_handlers.py"]), *self.bind)
        until(lambda: "ASGI server listening" in self.log() and "worker started with" in self.log(), 20)
        return process

    def serve_in_process(self, before: str = "", **options: Any) -> subprocess.Popen[bytes]:
        """gunicorn as `serve` has it, with the handlers in the process that answers; ready."""
        self.environ |= {"BILLHOOK_ENGINE": "thread", "BILLHOOK_HANDLERS": "shop_handlers.py"}
        gunicorn = [sys.executable, "-P", "-m", "gunicorn", "--config", "python:billhook.gunicorn_conf"]
        command = [*gunicorn, *self.bind, "billhook.standalone:create_asgi_app()"]
        process = self.run(["/bin/sh", "-c", f"{before}exec {shlex.join(command)}"], **options)
        until(lambda: is_up(self.port, "/readyz", 200), 20)
        return process

    def call(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "billhook", *arguments]
        return run_command(command, cwd=self.folder, env={**self.environ, **environ})

    def send(self, event_type: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return self.call("send", event_type, "--to", self.url, *arguments, **environ)

    def refuses(self, key: str | None = None) -> bool:
        """Whether a delivery is refused. A process for it might take as long as a lock is held."""
        return ask(self.port, request(b"{}", signed(message_id=key))).status != 200

    def states(self, table: str = "delivery") -> list[Any]:
        return rows(self.folder / "billhook.db", f"SELECT state, count(*) FROM {table} GROUP BY state")


def end(server: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> None:
    """It ends in order."""
    server.send_signal(number)
    assert server.wait(40) == 0


@pytest.fixture
def cli(tmp_path) -> Iterator[Cli]:
    with contextlib.closing(Cli(tmp_path)) as made:
        yield made


def test_serve_handles_deliveries_and_stops_all_processes_on_sigterm(cli):
    server = cli.serve()
    pids = descendants(server.pid)
    arguments = b"".join(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in {server.pid, *pids})

    sent = cli.send("InvoiceApproved", "--set", "invoiceId=inv_77", "--id", "msg-1")
    until(lambda: "inv_77 msg-1" in cli.read("handled.txt"))
    forged = cli.send("PingTest", BILLHOOK_SECRETS="whsec_" + "A" * 40)
    end(server)

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


@pytest.mark.slow
def test_serve_says_where_the_dashboard_and_the_metrics_are(cli):
    for name, content in (("users.txt", "alice:a-long-password"), ("token.txt", "t" * 32)):
        (cli.folder / name).write_text(content)
        (cli.folder / name).chmod(0o600)
    cli.environ |= {"BILLHOOK_DASHBOARD": "users.txt", "BILLHOOK_METRICS_TOKEN_FILE": "token.txt"}

    cli.serve()

    root = f"http://127.0.0.1:{cli.port}"
    found = dict(line.split(":", 1) for line in cli.log().splitlines()[:5])
    assert found["Dashboard"].strip() == f"{root}/billhook/"
    assert found["Metrics"].strip() == f"{root}/metrics"
    password = base64.b64encode(b"alice:a-long-password").decode()
    for path, credentials in (("/billhook/", f"Basic {password}"), ("/metrics", f"Bearer {'t' * 32}")):
        assert get(cli.port, path).status == 401
        assert get(cli.port, path, Authorization=credentials).status == 200


@pytest.mark.slow
def test_no_process_is_left_when_serve_is_killed(cli):
    server = cli.serve()
    pids = descendants(server.pid)

    server.kill()
    server.wait()

    until(lambda: not alive(pids), 15)


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_and_its_work_is_done(cli):
    server = cli.serve("shop_handlers")  # the module's name will do as well
    workers = cli.log().count("worker started with")

    cli.send("PingTest", "--id", "die-once")
    until(lambda: cli.log().count("worker started with") > workers, 15)

    until(lambda: cli.states() == [("done", 1)], 10)
    assert "the worker exited with code 9; restarting in 0.5 s" in cli.log()
    end(server, signal.SIGINT)


def masters(server):
    """The gunicorns that `serve` has started."""
    return {pid for pid in children(server.pid) if b"gunicorn\0" in Path(f"/proc/{pid}/cmdline").read_bytes()}


def ask_until(cli, stop):
    """Ask on new connections until told to stop; every answer, or what went wrong."""
    answers = []
    while not stop.is_set():
        try:
            answers.append(get(cli.port, "/healthz").status)
        except (OSError, HTTPException) as error:
            answers.append(error)
        time.sleep(0.02)
    return answers


@pytest.mark.slow
def test_a_hangup_has_new_handlers_loaded_and_refuses_no_connection(cli):
    server = cli.serve()
    before = descendants(server.pid)
    stop = threading.Event()
    with ThreadPoolExecutor() as pool:
        asking = pool.submit(ask_until, cli, stop)
        try:
            cli.handle_by(NOTING.replace('"handled.txt"', '"anew.txt"'))
            server.send_signal(signal.SIGHUP)
            until(lambda: len(alive(before)) == 1, 60)  # gunicorn's master stays
            until(lambda: cli.log().count("worker started with") == 2, 60)
        finally:
            stop.set()
        answers = asking.result()

    cli.send("InvoiceApproved", "--set", "invoiceId=inv_9")
    until(lambda: "inv_9" in cli.read("anew.txt"), 30)
    assert set(answers) == {200}
    assert cli.read("handled.txt") == ""
    end(server)


@pytest.mark.slow
def test_with_reload_a_changed_file_has_new_handlers_loaded(cli):
    (cli.folder / "helper.py").write_text("NAME = 'handled.txt'\n")
    handlers = NOTING.replace('"handled.txt"', "NAME")
    cli.handle_by("from helper import NAME\n" + handlers)
    server = cli.serve("shop_handlers.py", "--reload")

    (cli.folder / "helper.py").write_text("this is no Python")
    until(lambda: "reload failed" in cli.log(), 30)
    (cli.folder / "helper.py").write_text("NAME = 'anew.txt'\n")
    until(lambda: cli.log().count("worker started with") == 2, 30)

    cli.send("InvoiceApproved", "--set", "invoiceId=inv_9")
    until(lambda: "inv_9" in cli.read("anew.txt"), 30)
    assert cli.log().count("billhook.serve: reloading") == 1
    end(server)


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
from billhook.inbox.sqlite.driver import WriteLock
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
    cli.handle_by(HOLDS_THE_LOCK.replace("STOP", stop))
    cli.environ["BILLHOOK_LEASE_SECONDS"] = "30"  # as shipped: the watchdog and the parent wait for longer
    server = cli.serve()
    (worker,) = set(children(server.pid)) - masters(server)

    cli.send("PingTest", "--id", "hold")
    held = f"process {worker} holds the write lock"  # logged with a refusal
    until(lambda: [cli.refuses(), held in cli.log()][1], scaled(25))
    began = time.monotonic()
    until(lambda: not cli.refuses(), scaled(25))

    assert time.monotonic() - began < scaled(8)
    end(server)


REPLACES_STANDARD_ERROR = """
class ToLog:
    def write(self, text): pass
    def flush(self): pass
sys.stderr = ToLog()
@handlers.on(PingTest)
def note(event):
    open("noted", "a").write("x")
"""


@pytest.mark.slow
def test_handlers_that_replace_standard_error_hold_nothing_up(cli):
    cli.handle_by(REPLACES_STANDARD_ERROR)
    server = cli.serve()

    assert not any(cli.refuses() for _ in range(3))
    until(lambda: cli.read("noted") == "xxx", 15)
    end(server)


FAILS = """
@handlers.on(PingTest, retry=[0, 0])
def fail(event, delivery):
    raise RuntimeError("x" * 2000)
"""


@pytest.mark.slow
def test_a_log_that_nobody_reads_holds_no_answer_up(cli):
    cli.handle_by(FAILS)
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4_096)
    server = cli.serve_in_process(stdout=writer, stderr=writer)  # handlers that fail where it is answered
    os.close(writer)

    slowest = 0.0
    for number in range(300):
        began = time.monotonic()
        assert not cli.refuses(f"msg-{number}")
        slowest = max(slowest, time.monotonic() - began)

    assert is_up(cli.port, "/readyz", 200)
    assert slowest < scaled(2.5)
    until(lambda: cli.states("run") == [("dead", 300)], 60)
    server.send_signal(signal.SIGTERM)
    server.wait(40)
    os.close(reader)


@pytest.mark.slow
@pytest.mark.parametrize("redirection", ["> /dev/full", ">&-"])
def test_serve_starts_where_nothing_can_be_written_to_standard_output(cli, redirection):
    command = f'exec "{sys.executable}" -m billhook serve shop_handlers.py --bind 127.0.0.1:{cli.port} '
    server = cli.run(["/bin/sh", "-c", command + redirection], stdout=None)
    until(lambda: is_up(cli.port, "/readyz", 200), 30)
    end(server)


TAKES_ALL = """
import mmap
kept = []
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
    cli.handle_by(TAKES_ALL.replace("TAKE", take))
    server = cli.serve_in_process(f"{limit}; ")
    before = children(server.pid)

    cli.send("PingTest", "--id", "take")
    found = ask_until_replaced(cli.port, lambda: before & children(server.pid))

    assert 200 in found
    assert 500 not in found
    assert f"has no {what} left" in cli.log()


def ask_until_replaced(port, is_there):
    """What is answered, connections that fail left out, until another process answers with 200."""
    found, end = [], time.monotonic() + scaled(40)
    while is_there() or not is_up(port, "/readyz", 200):
        assert time.monotonic() < end
        with contextlib.suppress(OSError, HTTPException):
            found.append(get(port, "/readyz").status)
        time.sleep(0.05)
    return [*found, get(port, "/readyz").status]
