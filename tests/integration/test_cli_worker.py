"""`billhook worker` as real processes on each database: how it ends, and handlers that do their worst."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.inbox_view import hung, incoming, open_inbox, place_of, rows
from support.processes import alive, children, until
from support.signing import SECRET
from support.timeouts import scaled

WORST = """
import asyncio, ctypes, os, signal, time
from billhook import Handlers
from billhook.events import InvoiceApproved, MonthEndReport, PaymentFailed, PingTest

handlers = Handlers()

def note(word, delivery):
    with open("notes.txt", "a") as output:
        output.write(f"{word} {delivery.key} {delivery.attempt} {os.getpid()}\\n")

@handlers.on(PingTest, name="act")
def act(event, delivery):
    note("begun", delivery)
    kind, _, rest = delivery.key.partition("-")
    if kind == "poison":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "exit":
        raise SystemExit(3)
    elif kind == "slow" and delivery.attempt == 1:
        time.sleep(float(rest))
    elif kind == "thread" and delivery.attempt == 1:
        asyncio.run(asyncio.to_thread(time.sleep, float(rest)))
    note("ended", delivery)

@handlers.on(InvoiceApproved, name="late", timeout_seconds=0.3)
def late(event, delivery):
    note("begun", delivery)
    time.sleep(1.5)

@handlers.on(PaymentFailed, name="hangs", timeout_seconds=0.3)
def hangs(event, delivery):
    note("begun", delivery)
    time.sleep(10_000)

@handlers.on(MonthEndReport, name="greedy", timeout_seconds=0.3, retry=[])
def greedy(event, delivery):
    note("begun", delivery)
    ctypes.PyDLL(None).sleep(10_000)  # with the GIL, so that no other thread runs
"""

SOON = """
from billhook.cli import heartbeats, main

heartbeats._MIN_SILENCE_SECONDS /= 5
main()
"""
"""`billhook`, whose children may be silent for three seconds: test_cli_serve waits for the shipped limit."""

SHOP = """
from flask import Flask
from billhook import Billhook
from worst import handlers

app = Flask(__name__, instance_path="{folder}")
app.config.from_prefixed_env()
Billhook(handlers=[handlers]).init_app(app)
"""


class Crew:
    """An inbox, and workers on it in a folder of their own."""

    def __init__(self, folder: Path, url: str, where: Path | str) -> None:
        self.folder = folder
        self.where = where
        self.inbox = open_inbox(where)
        self.started: list[subprocess.Popen[bytes]] = []
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("BILLHOOK_", "FLASK_"))}
        options = {
            "SECRETS": SECRET,
            "INBOX_URL": url,
            "LEASE_SECONDS": "1",
            "RETRY_SCHEDULE_SECONDS": "0.2,0.2",
        }
        self.environ = clean | {f"BILLHOOK_{name}": text for name, text in options.items()}
        self.environ |= {f"FLASK_BILLHOOK_{name}": text for name, text in options.items()}
        (folder / "worst.py").write_text(WORST)

    def put(self, key: str, event_type: str = "PingTest", body: bytes = b"{}") -> int:
        return self.inbox.put(incoming(key, event_type=event_type, body=body)).delivery_id

    def start(self, *arguments: str, program: tuple[str, ...] = ("billhook",)) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *program, *arguments],
                cwd=self.folder, env=self.environ, stdout=log, stderr=log,
            )  # fmt: skip
        self.started.append(process)
        return process

    def work(self, *arguments: str, processes: int = 1, **more) -> subprocess.Popen[bytes]:
        """Workers that are all up."""
        before = self.log().count("worker started with")
        process = self.start("worker", "worst.py", "--processes", str(processes), *arguments, **more)
        until(lambda: self.log().count("worker started with") - before >= processes, 30)
        return process

    def notes(self, word: str) -> list[str]:
        """The keys of what was begun, or ended, as often as it was."""
        path = self.folder / "notes.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        return [key for noted, key, *_ in map(str.split, lines) if noted == word]

    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text() if path.exists() else ""

    def states(self) -> dict[str, str]:
        return dict(rows(self.where, "SELECT key, state FROM delivery"))

    def runs(self) -> dict[str, tuple[str, int]]:
        query = "SELECT key, run.state, attempts FROM run JOIN delivery ON delivery.id = run.delivery_id"
        return {key: (state, attempts) for key, state, attempts in rows(self.where, query)}

    def failures(self, key: str) -> int:
        query = (
            "SELECT count(*) FROM failure JOIN run ON run.id = failure.run_id "
            "JOIN delivery ON delivery.id = run.delivery_id WHERE key = ?"
        )
        return rows(self.where, query, key)[0][0]


@contextmanager
def crew_on(folder: Path, url: str) -> Iterator[Crew]:
    made = Crew(folder, url, place_of(url))
    yield made
    for process in made.started:
        if process.poll() is None:
            for pid in children(process.pid):
                os.kill(pid, signal.SIGKILL)
            process.kill()
            process.wait()
    made.inbox.close()


@pytest.fixture
def crew(tmp_path, inbox_url) -> Iterator[Crew]:
    with crew_on(tmp_path, inbox_url) as made:
        yield made


@pytest.fixture
def file_crew(tmp_path) -> Iterator[Crew]:
    """For what has nothing to do with the database."""
    with crew_on(tmp_path, f"sqlite:///{tmp_path / 'billhook.db'}") as made:
        yield made


def signalled(process: subprocess.Popen[bytes], timeout_seconds: float) -> float:
    """SIGTERM; the seconds until it had ended."""
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.wait(timeout_seconds)
    return time.monotonic() - started


# --- the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [1, 2])
def test_a_running_handler_is_waited_for_and_settled_and_nothing_more_is_claimed(crew, processes):
    worker = crew.work(processes=processes)
    pids = children(worker.pid)
    crew.put("slow-3")
    until(lambda: crew.notes("begun") == ["slow-3"], 15)

    worker.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    crew.put("too late")

    assert worker.wait(20) == 0
    assert crew.notes("ended") == ["slow-3"]
    assert crew.states() == {"slow-3": "done", "too late": "received"}
    assert crew.runs() == {"slow-3": ("succeeded", 1)}
    assert len(pids) == (processes if processes > 1 else 0)
    assert alive(pids) == set()
    assert crew.log().count("worker stopped") == processes


@pytest.mark.parametrize(("processes", "kind"), [(1, "thread"), (2, "slow")])
def test_a_handler_that_outlasts_the_grace_does_not_and_is_done_later_by_another(crew, processes, kind):
    worker = crew.work("--grace", "1", processes=processes)
    pids = children(worker.pid)
    crew.put(f"{kind}-300")
    until(lambda: crew.notes("begun"), 15)

    seconds = signalled(worker, 20)

    assert worker.returncode == 0
    assert seconds < scaled(6)  # the grace, a second for threads that the handler made, and a slow machine
    assert alive(pids) == set()
    assert crew.runs() == {f"{kind}-300": ("due", 1)}  # no suspect: it was cut off, and is due after a lease
    crew.work()
    until(lambda: crew.states() == {f"{kind}-300": "done"}, 15)
    assert crew.runs() == {f"{kind}-300": ("succeeded", 2)}


@pytest.mark.parametrize("processes", [1, 2])
def test_a_second_signal_ends_it_at_once_and_not_when_the_grace_is_over(crew, processes):
    worker = crew.work(processes=processes)
    pids = children(worker.pid)
    crew.put("slow-300")
    until(lambda: crew.notes("begun"), 15)
    worker.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert worker.poll() is None

    seconds = signalled(worker, 20)

    assert seconds < scaled(3.0)  # of a grace of 25, on a machine that may be busy
    until(lambda: not alive(pids), 5)
    crew.work()
    until(lambda: crew.states() == {"slow-300": "done"}, 15)


def test_a_signal_to_the_whole_group_counts_once(file_crew):
    worker = file_crew.work(processes=2)
    file_crew.put("slow-2")
    until(lambda: file_crew.notes("begun"), 15)

    for pid in children(worker.pid):  # as systemd does, and their parent does it as well
        os.kill(pid, signal.SIGTERM)
    signalled(worker, 20)

    assert worker.returncode == 0
    assert file_crew.runs() == {"slow-2": ("succeeded", 1)}


def test_a_stopped_worker_releases_runs_it_has_not_started(crew):
    for number in range(40):
        crew.put(f"quick-{number}")
    worker = crew.work("--threads", "1")
    until(lambda: len(crew.notes("ended")) == 40, 15)  # quick ones: many are claimed at a time by now
    for number in range(6):
        crew.put(f"slow-1.{number}")
    until(lambda: len(crew.notes("begun")) > 40, 15)

    signalled(worker, 20)

    left = {key: found for key, found in crew.runs().items() if found[0] != "succeeded"}
    assert set(left.values()) <= {("due", 0)}
    assert [state for state in crew.states().values() if state == "dead"] == []


@pytest.mark.parametrize("processes", [1, 2])
def test_an_inbox_that_hangs_does_not_hold_it_up_for_long(file_crew, processes):
    worker = file_crew.work("--grace", "1", processes=processes)
    pids = children(worker.pid)
    file_crew.put("slow-0.5")
    until(lambda: file_crew.notes("begun"), 15)

    with hung(file_crew.where):
        seconds = signalled(worker, 20)

    assert seconds < scaled(8)  # the grace, and three seconds to give back what was claimed
    assert alive(pids) == set()
    assert file_crew.runs() == {"slow-0.5": ("running", 1)}


# --- the family -----------------------------------------------------------------------------------


def test_no_child_outlives_its_parent(file_crew):
    worker = file_crew.work("--grace", "1", processes=2)
    pids = children(worker.pid)
    file_crew.put("slow-300")
    until(lambda: file_crew.notes("begun"), 15)

    worker.kill()
    worker.wait()

    assert len(pids) == 2
    until(lambda: not alive(pids), 15)


def test_a_killed_child_is_replaced_and_the_others_continue(crew):
    worker = crew.work(processes=2)
    first, second = sorted(children(worker.pid))

    os.kill(first, signal.SIGKILL)
    for number in range(10):
        crew.put(f"meanwhile-{number}")
    until(lambda: len(crew.notes("ended")) == 10, 10)
    until(lambda: len(alive(children(worker.pid))) == 2, 15)

    assert second in children(worker.pid)
    assert first not in children(worker.pid)
    assert re.search(r"worker [12] exited with code 137; restarting in 0\.5 s", crew.log())


def test_stopped_children_are_replaced_and_new_deliveries_handled(crew):
    (crew.folder / "soon.py").write_text(SOON)
    worker = crew.work(processes=2, program=("soon",))
    stopped = children(worker.pid)
    until(lambda: len(workers(crew)) == 2, 20)
    time.sleep(1)  # whoever is stopped while it writes to a file keeps all others from it

    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    for number in range(10):
        crew.put(f"meanwhile-{number}")
    until(lambda: crew.log().count("sends no heartbeats (stopped or hanging): killing it") == 2, 40)
    until(lambda: Counter(crew.states().values()) == {"done": 10}, 30)

    assert len(stopped) == 2
    assert not stopped & children(worker.pid)
    assert set(crew.notes("ended")) == {f"meanwhile-{number}" for number in range(10)}


def test_a_wrong_configuration_is_refused_before_any_child_starts(file_crew):
    for arguments in (("no_such.py",), ("worst.py", "--require-all")):
        refused = file_crew.start("worker", *arguments, "--processes", "2")
        code = refused.wait(30)
        assert code == (1 if "--require-all" in arguments else 2)

    assert "there is no handlers file" in file_crew.log()
    assert "no handler for AnonymousCustomer, " in file_crew.log()
    assert file_crew.log().count("\n") == 2


def test_a_users_own_app_has_as_many_processes(file_crew):
    (file_crew.folder / "shop.py").write_text(SHOP.format(folder=file_crew.folder))
    program = ("flask", "--app", "shop", "billhook")
    worker = file_crew.start("worker", "--processes", "2", program=program)
    until(lambda: file_crew.log().count("worker started with") == 2, 30)

    file_crew.put("one")
    until(lambda: file_crew.states() == {"one": "done"}, 15)
    signalled(worker, 20)

    assert worker.returncode == 0
    assert "Traceback" not in file_crew.log()


def workers(crew):
    """The process ids and engines in the table of workers."""
    found = rows(crew.where, "SELECT owner, engine, handlers FROM billhook_worker")
    return {(int(owner.split(":")[1]), engine, handlers) for owner, engine, handlers in found}


def test_a_worker_is_in_the_table_of_workers_until_it_ends_in_order(crew):
    worker = crew.work(processes=2)
    first, second = children(worker.pid)
    until(lambda: workers(crew) == {(pid, "worker", 4) for pid in (first, second)}, 20)

    worker.kill()
    worker.wait()
    until(lambda: not alive({first, second}), 20)
    assert workers(crew) == set()
    alone = crew.work()
    until(lambda: workers(crew) == {(alone.pid, "worker", 4)}, 20)
    alone.kill()
    alone.wait()

    assert workers(crew) == {(alone.pid, "worker", 4)}  # nobody was there to say that it ended


# --- handlers that do their worst -----------------------------------------------------------------


def body_of(event_type: str) -> bytes:
    from billhook.events import EVENT_TYPES, sample

    return sample(EVENT_TYPES[event_type]).to_json()


WORST_KINDS = {
    "poison": ("PingTest", 3),
    "exit": ("PingTest", 3),
    "late": ("InvoiceApproved", 3),
    "hangs": ("PaymentFailed", 3),
    "greedy": ("MonthEndReport", 1),
}
"""Their types, and how often each is called."""
LOST = {"exit", "greedy"}


@pytest.mark.parametrize("keys", [("poison",), ("exit", "late", "hangs"), ("greedy",)], ids="-".join)
def test_the_worst_of_handlers_is_dead_after_its_schedule_and_all_else_flows(crew, keys):
    crew.work(processes=3)
    for key in keys:
        crew.put(key, WORST_KINDS[key][0], body_of(WORST_KINDS[key][0]))
    until(lambda: set(keys) <= set(crew.notes("begun")), 15)
    flowing, slowest = 0, 0.0
    while any(crew.states()[key] != "dead" for key in keys):
        started = time.monotonic()
        crew.put(f"flow-{flowing}")
        until(lambda flowing=flowing: crew.states()[f"flow-{flowing}"] == "done", 20)
        slowest = max(slowest, time.monotonic() - started)
        flowing += 1

    called, runs = Counter(crew.notes("begun")), crew.runs()
    for key in keys:
        calls = WORST_KINDS[key][1]
        # An attempt that is lost beside others does not count: it is made again alone.
        assert calls <= called[key] <= calls + (key in LOST)
        assert runs[key][1] >= calls
        assert crew.failures(key) >= calls
    assert Counter(crew.states().values()) == {"done": flowing, "dead": len(keys)}
    # A run that its worker took along waits for its lease, and perhaps for a new worker.
    assert slowest < scaled(12)


def test_a_child_that_blocks_all_threads_prints_a_traceback_and_is_replaced(file_crew):
    worker = file_crew.work(processes=2)
    before = children(worker.pid)
    file_crew.put("greedy", "MonthEndReport", body_of("MonthEndReport"))

    until(lambda: "exited with code 1; restarting" in file_crew.log(), 30)

    assert "in greedy" in file_crew.log()
    until(lambda: len(alive(children(worker.pid))) == 2, 15)
    assert len(before & children(worker.pid)) == 1


def test_a_child_with_a_hundred_abandoned_threads_is_replaced(file_crew):
    file_crew.environ["BILLHOOK_RETRY_SCHEDULE_SECONDS"] = ",".join(["0.1"] * 60)
    worker = file_crew.work("--grace", "1", processes=2)
    for number in range(4):
        file_crew.put(f"hangs-{number}", "PaymentFailed", body_of("PaymentFailed"))

    until(lambda: "has no more threads for others" in file_crew.log(), 60)
    until(lambda: "exited with code 1; restarting" in file_crew.log(), 15)
    until(lambda: len(alive(children(worker.pid))) == 2, 15)

    file_crew.put("flow")
    until(lambda: file_crew.states()["flow"] == "done", 15)


def test_control_an_unsupervised_worker_hangs_with_a_blocking_handler(file_crew):
    worker = file_crew.work()
    file_crew.put("greedy", "MonthEndReport", body_of("MonthEndReport"))
    until(lambda: file_crew.notes("begun") == ["greedy"], 15)

    file_crew.put("flow")
    worker.send_signal(signal.SIGTERM)
    time.sleep(7)  # longer than a watched one would have been silent

    assert file_crew.states()["flow"] == "received"
    assert worker.poll() is None
