"""`billhook worker --processes`: children that are killed, stopped and replaced."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections import Counter

import pytest

from support.inbox_view import rows
from support.processes import alive, children, until
from support.worker_group import signalled

SOON = """
from billhook.cli import main, processes

processes._MIN_SILENCE_SECONDS /= 5
main()
"""
"""`billhook`, whose children may be silent for three seconds."""

SHOP = """
from flask import Flask
from billhook import Billhook
from worst import handlers

app = Flask(__name__, instance_path="{folder}")
app.config.from_prefixed_env()
Billhook(handlers=[handlers]).init_app(app)
"""


@pytest.mark.slow
def test_no_child_outlives_its_parent(group):
    worker = group.work("--grace", "1", processes=2)
    pids = children(worker.pid)
    group.put("slow-300")
    until(lambda: group.notes("begun"), 15)

    worker.kill()
    worker.wait()

    assert len(pids) == 2
    until(lambda: not alive(pids), 15)


@pytest.mark.slow
def test_a_killed_child_is_replaced_and_the_others_continue(group):
    worker = group.work(processes=2)
    first, second = sorted(children(worker.pid))

    os.kill(first, signal.SIGKILL)
    for number in range(10):
        group.put(f"meanwhile-{number}")
    until(lambda: len(group.notes("ended")) == 10, 10)
    until(lambda: len(alive(children(worker.pid))) == 2, 15)

    assert second in children(worker.pid)
    assert first not in children(worker.pid)
    assert re.search(r"worker [12] exited with code 137; restarting in 0\.5 s", group.log())


@pytest.mark.long
def test_stopped_children_are_replaced_and_new_deliveries_handled(group):
    (group.folder / "soon.py").write_text(SOON)
    worker = group.work(processes=2, program=("soon",))
    stopped = children(worker.pid)
    until(lambda: len(workers(group)) == 2, 20)
    time.sleep(1)  # whoever is stopped while it writes to a file keeps all others from it

    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    for number in range(10):
        group.put(f"meanwhile-{number}")
    until(lambda: group.log().count("sends no heartbeats (stopped or hanging): killing it") == 2, 40)
    until(lambda: Counter(group.states().values()) == {"done": 10}, 30)

    assert len(stopped) == 2
    assert not stopped & children(worker.pid)
    assert set(group.notes("ended")) == {f"meanwhile-{number}" for number in range(10)}


@pytest.mark.slow
def test_a_wrong_configuration_is_refused_before_any_child_starts(group):
    for arguments in (("no_such.py",), ("worst.py", "--require-all")):
        refused = group.start("worker", *arguments, "--processes", "2")
        code = refused.wait(30)
        assert code == (1 if "--require-all" in arguments else 2)

    assert "there is no handlers file" in group.log()
    assert "no handler for AnonymousCustomer, " in group.log()
    assert group.log().count("\n") == 2


@pytest.mark.slow
def test_the_worker_of_a_users_own_app_logs_json_if_it_says_so(group):
    (group.folder / "shop.py").write_text(SHOP.format(folder=group.folder))
    group.environ["FLASK_BILLHOOK_LOG_FORMAT"] = "json"

    worker = group.start("worker", "--drain", program=("flask", "--app", "shop", "billhook"))

    assert worker.wait(60) == 0
    records = [json.loads(line) for line in group.log().splitlines()]
    assert [record["message"] for record in records] == ["worker started with 8 threads", "worker stopped"]


@pytest.mark.slow
def test_a_users_own_app_has_as_many_processes(group):
    (group.folder / "shop.py").write_text(SHOP.format(folder=group.folder))
    program = ("flask", "--app", "shop", "billhook")
    worker = group.start("worker", "--processes", "2", program=program)
    until(lambda: group.log().count("worker started with") == 2, 30)

    group.put("one")
    until(lambda: group.states() == {"one": "done"}, 15)
    signalled(worker, 20)

    assert worker.returncode == 0
    assert "Traceback" not in group.log()


def workers(group):
    """The process ids and engines in the table of workers."""
    found = rows(group.where, "SELECT owner, engine, handlers FROM billhook_worker")
    return {(int(owner.split(":")[1]), engine, handlers) for owner, engine, handlers in found}


@pytest.mark.long
def test_a_worker_is_in_the_table_of_workers_until_it_ends_in_order(group):
    worker = group.work(processes=2)
    first, second = children(worker.pid)
    until(lambda: workers(group) == {(pid, "worker", 4) for pid in (first, second)}, 20)

    worker.kill()
    worker.wait()
    until(lambda: not alive({first, second}), 20)
    assert workers(group) == set()
    alone = group.work()
    until(lambda: workers(group) == {(alone.pid, "worker", 4)}, 20)
    alone.kill()
    alone.wait()

    assert workers(group) == {(alone.pid, "worker", 4)}  # nobody was there to say that it ended
