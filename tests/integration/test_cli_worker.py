"""`billhook worker` as real processes: how it ends."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from support.inbox_view import hung
from support.processes import alive, children, clean_environment, run_command, until
from support.signing import SECRET
from support.timeouts import scaled
from support.worker_group import signalled

pytestmark = pytest.mark.slow

SEVERAL = pytest.param(2, marks=pytest.mark.long)


@pytest.mark.parametrize("processes", [1, SEVERAL])
def test_a_running_handler_is_waited_for_and_settled_and_nothing_more_is_claimed(group, processes):
    worker = group.work(processes=processes)
    pids = children(worker.pid)
    group.put("slow-2")
    until(lambda: group.notes("begun") == ["slow-2"], 15)

    worker.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    group.put("too late")

    assert worker.wait(20) == 0
    assert group.notes("ended") == ["slow-2"]
    assert group.states() == {"slow-2": "done", "too late": "received"}
    assert group.runs() == {"slow-2": ("succeeded", 1)}
    assert len(pids) == (processes if processes > 1 else 0)
    assert alive(pids) == set()
    assert group.log().count("worker stopped") == processes


@pytest.mark.parametrize(
    ("processes", "kind"), [(1, "thread"), pytest.param(2, "slow", marks=pytest.mark.long)]
)
def test_a_handler_that_outlasts_the_grace_period_is_called_again_by_another_worker(group, processes, kind):
    worker = group.work("--grace", "1", processes=processes)
    pids = children(worker.pid)
    group.put(f"{kind}-300")
    until(lambda: group.notes("begun"), 15)

    seconds = signalled(worker, 20)

    assert worker.returncode == 0
    assert seconds < scaled(6)  # the grace, a second for threads that the handler made, and a slow machine
    assert alive(pids) == set()
    assert group.runs() == {f"{kind}-300": ("due", 1)}  # no suspect: it was cut off, and is due after a lease
    group.work()
    until(lambda: group.states() == {f"{kind}-300": "done"}, 15)
    assert group.runs() == {f"{kind}-300": ("succeeded", 2)}


@pytest.mark.parametrize("processes", [1, SEVERAL])
def test_a_second_signal_ends_it_at_once_and_not_when_the_grace_is_over(group, processes):
    worker = group.work(processes=processes)
    pids = children(worker.pid)
    group.put("slow-300")
    until(lambda: group.notes("begun"), 15)
    worker.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert worker.poll() is None

    seconds = signalled(worker, 20)

    assert seconds < scaled(3.0)  # of a grace of 25, on a machine that may be busy
    until(lambda: not alive(pids), 5)
    group.work()
    until(lambda: group.states() == {"slow-300": "done"}, 15)


@pytest.mark.long
def test_a_signal_to_the_whole_group_counts_once(group):
    worker = group.work(processes=2)
    group.put("slow-2")
    until(lambda: group.notes("begun"), 15)

    for pid in children(worker.pid):  # as systemd does, and their parent does it as well
        os.kill(pid, signal.SIGTERM)
    signalled(worker, 20)

    assert worker.returncode == 0
    assert group.runs() == {"slow-2": ("succeeded", 1)}


@pytest.mark.parametrize("processes", [1, SEVERAL])
def test_an_inbox_that_hangs_does_not_hold_it_up_for_long(group, processes):
    worker = group.work("--grace", "1", processes=processes)
    pids = children(worker.pid)
    group.put("slow-0.5")
    until(lambda: group.notes("begun"), 15)

    with hung(group.where):
        seconds = signalled(worker, 20)

    assert seconds < scaled(8)  # the grace, and three seconds to give back what was claimed
    assert alive(pids) == set()
    assert group.runs() == {"slow-0.5": ("running", 1)}


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        (["billhook", "worker"], "celery -A billhook.standalone:celery worker"),
        pytest.param(
            ["billhook", "serve"], "celery -A billhook.standalone:celery worker", marks=pytest.mark.long
        ),
        pytest.param(
            ["flask", "--app", "shop", "billhook", "worker"],
            "celery -A MODULE:NAME worker",
            marks=pytest.mark.long,
        ),
    ],
)
def test_billhooks_own_workers_are_refused_in_a_sentence_that_names_celerys(tmp_path, command, instead):
    (tmp_path / "tasks.py").write_text("from celery import Celery\ncelery = Celery(broker='memory://')\n")
    (tmp_path / "shop.py").write_text(
        "from flask import Flask\nfrom billhook import Billhook\napp = Flask(__name__)\n"
        "app.config.from_prefixed_env()\nBillhook(app)\n"
    )
    options = {"SECRETS": SECRET, "ENGINE": "celery", "CELERY_APP": "tasks:celery"}
    environ = clean_environment()
    for name, text in options.items():
        environ |= {f"BILLHOOK_{name}": text, f"FLASK_BILLHOOK_{name}": text}

    ran = run_command([sys.executable, "-m", *command], cwd=tmp_path, env=environ)

    assert ran.returncode == 2
    assert f"handlers run in Celery's workers: start them as `{instead}`" in ran.stderr
    assert "Traceback" not in ran.stderr
