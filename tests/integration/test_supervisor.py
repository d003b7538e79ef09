"""The parent of workers and web servers, with children that are real and small."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import pytest
from click.testing import CliRunner
from flask.cli import FlaskGroup

from billhook import Handlers
from billhook.cli.serve import worker_children, worker_command
from billhook.events import PingTest
from billhook.supervising.processes import Child, Supervisor, stop_all
from support.processes import until
from support.supervision import child, supervise
from support.timeouts import scaled

PATIENT = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
)
SLEEP = "import time; time.sleep(60)"
LATER = [pytest.param(number, marks=pytest.mark.long) for number in (signal.SIGINT, signal.SIGHUP)]
SLOW = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), sys.exit(0)))\n"
    "print(flush=True)\n"
    "time.sleep(60)"
)


@pytest.fixture(autouse=True)
def not_under_nohup():
    """Whoever runs the tests so that a hang-up is ignored has that inherited, and it is respected."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def role(code, started=None, *, name="the worker", grace_seconds=10.0):
    return Child(name, partial(child, code, started), grace_seconds)


def web_server(*codes, started=None):
    """Its first process runs the first code, the next one the second, and so on."""
    left = iter(codes)
    return Child("the web server", lambda _: child(next(left), started), 10.0, is_web_server=True)


@pytest.mark.slow
def test_a_child_that_cannot_start_is_restarted_with_growing_pauses_of_its_own():
    messages, steady = [], []
    supervise(
        [role("raise SystemExit(3)", name="worker 1"), role(SLEEP, steady)],
        messages=messages,
        steps=[(lambda: len(messages) >= 3,)],
    )

    assert len(steady) == 1
    assert messages[:3] == [
        f"worker 1 exited with code 3; restarting in {pause} s" for pause in ("0.5", "1", "2")
    ]


def test_the_death_of_each_worker_is_recorded_but_not_that_of_a_web_server_or_of_one_that_was_asked_to_end():
    died, started = [], []
    kill = "import os; os.kill(os.getpid(), 9)"
    workers = [role(kill, started), role("raise SystemExit(1)", started), role(SLEEP)]

    supervise(
        [*workers, web_server(kill, SLEEP)],
        steps=[(lambda: len(died) >= 2,)],
        record_death=lambda pid, began, had_started: died.append((pid, had_started)),
    )

    assert set(died) == {(process.pid, False) for process in started[: len(died)]}


def test_a_web_server_that_exits_at_first_start_ends_all():
    messages, started = [], []

    code, _ = supervise([web_server("raise SystemExit(7)"), role(SLEEP, started)], messages=messages)

    assert code == 7
    assert messages == ["the web server exited with code 7"]
    assert started[0].returncode == -signal.SIGTERM


@pytest.mark.slow
def test_a_web_server_that_ran_before_is_restarted_after_any_error():
    messages = []
    codes = ["import os; os.kill(os.getpid(), 9)", *["raise SystemExit(1)"] * 2, "raise SystemExit(0)"]

    code, _ = supervise([web_server(*codes)], messages=messages)

    assert code == 0  # somebody asked the last one to end
    assert [text.split(";")[0].rsplit(" ", 1)[1] for text in messages] == ["137", "1", "1", "0"]


# --- reloading ------------------------------------------------------------------------------------

GOOD = partial(child, "raise SystemExit(0)")
BAD = partial(child, "raise SystemExit(1)")


def server_that_reloads(folder, started):
    """It notes each SIGHUP in a file, and goes on."""
    code = (
        "import signal, time\n"
        f"signal.signal(signal.SIGHUP, lambda *_: open({str(folder / 'hangups')!r}, 'a').write('h'))\n"
        "print(flush=True)\n"
        "while True: time.sleep(0.05)"
    )
    return web_server(code, started=started)


def hang_up():
    os.kill(os.getpid(), signal.SIGHUP)


def test_sighup_reloads_the_web_server_and_replaces_the_workers_one_by_one(tmp_path, monkeypatch):
    monkeypatch.setattr("billhook.supervising.processes._RELOAD_INTERVAL_SECONDS", 0.2)
    web, workers, messages, alive = [], [], [], []

    def look():
        alive.append(sum(process.poll() is None for process in workers))
        return len(workers) == 4 and all(process.poll() is not None for process in workers[:2])

    code, _ = supervise(
        [
            server_that_reloads(tmp_path, web),
            *(role(SLEEP, workers) for _ in range(2)),
        ],
        messages=messages,
        start_trial=GOOD,
        steps=[
            (lambda: len(workers) == 2 and web, hang_up),
            (look, lambda: until(lambda: (tmp_path / "hangups").exists(), 10)),
        ],
    )

    assert code == 0
    assert messages == ["reloading"]
    assert len(web) == 1
    assert (tmp_path / "hangups").read_text() == "h"
    assert min(alive) >= 1
    assert [process.returncode for process in workers] == [-signal.SIGTERM] * 4


def test_a_failed_trial_replaces_no_process(tmp_path):
    web, workers, messages = [], [], []

    supervise(
        [server_that_reloads(tmp_path, web), role(SLEEP, workers)],
        messages=messages,
        start_trial=BAD,
        steps=[(lambda: workers and web, hang_up), (lambda: messages,)],
    )

    assert messages == ["reload failed: the new code cannot be loaded; the running processes continue"]
    assert len(workers) == 1
    assert not (tmp_path / "hangups").exists()


def test_a_worker_that_does_not_make_room_within_its_grace_is_killed(monkeypatch):
    started, messages = [], []

    supervise(
        [role(PATIENT, started, grace_seconds=0.5)],
        messages=messages,
        start_trial=GOOD,
        steps=[(lambda: len(started) == 1, hang_up), (lambda: len(started) == 2,)],
    )

    assert started[0].returncode == -signal.SIGKILL
    assert messages == ["reloading"]


def test_a_closed_terminal_stops_all_also_where_sighup_reloads(monkeypatch):
    started, messages = [], []
    there = [True]
    monkeypatch.setattr("billhook.supervising.processes.has_terminal", lambda: there[0])

    def close_it():
        there[0] = False
        hang_up()

    driving = threading.Thread(target=lambda: (until(lambda: started, 20), close_it()))
    driving.start()
    code, _ = supervise([role(SLEEP, started)], messages=messages, start_trial=GOOD)
    driving.join()

    assert (code, messages) == (0, [])


def test_without_a_terminal_there_is_none_to_lose():
    """In a session of its own a process has none; with one it has."""
    ask = "from billhook.supervising.processes import has_terminal; print(has_terminal())"

    without = subprocess.check_output([sys.executable, "-c", ask], text=True, start_new_session=True)
    pid, ours = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", ask])
    found = b""
    with contextlib.suppress(OSError):  # EIO: it has ended
        while piece := os.read(ours, 100):
            found += piece
    os.waitpid(pid, 0)
    os.close(ours)

    assert (without, found) == ("False\n", b"True\r\n")


def test_user_signals_end_nothing_and_mean_to_children_what_they_always_did():
    started = []
    show = "import signal; assert signal.getsignal(10) is signal.SIG_DFL; import time; time.sleep(60)"

    user_signals = (partial(os.kill, os.getpid(), each) for each in (signal.SIGUSR1, signal.SIGUSR2))
    code, _ = supervise(
        [role(show, started)], steps=[(lambda: started, *user_signals, partial(time.sleep, 0.5))]
    )

    assert code == 0
    assert started[0].returncode == -signal.SIGTERM


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, *LATER])
def test_all_children_are_stopped_together(number):
    started = []

    code, seconds = supervise([role(SLOW, started) for _ in range(3)], signals=[(1.0, number)])

    assert code == 0
    assert [process.returncode for process in started] == [0, 0, 0]
    assert seconds < scaled(3.5)  # a second until they are asked, one each side by side, and a busy machine


@pytest.mark.parametrize(
    ("grace_seconds", "signals"),
    [(0.5, [(0.5, signal.SIGTERM)]), (10.0, [(0.5, signal.SIGTERM), (1.0, signal.SIGINT)])],
    ids=["after its grace", "by a second signal"],
)
def test_a_child_that_does_not_end_is_killed(grace_seconds, signals):
    started = []
    roles = [role(PATIENT, started, grace_seconds=grace_seconds) for _ in range(3)]

    _, seconds = supervise(roles, signals=signals)

    assert [process.returncode for process in started] == [-signal.SIGKILL] * 3
    assert 0.4 < seconds < scaled(5)


def no_task(descriptor=None):
    raise BlockingIOError(11, "Resource temporarily unavailable")


def test_the_supervisor_ends_when_it_can_start_nothing():
    with pytest.raises(OSError, match="Resource"):
        supervise([Child("b", no_task, 1.0)])


@pytest.mark.slow
def test_a_child_for_which_no_task_is_left_is_started_later_and_the_others_go_on():
    messages, started, failures = [], [], iter([None])

    def start(descriptor):
        if next(failures, 0) is None:
            no_task()
        return child(PATIENT, started)

    roles = [role(PATIENT, started, grace_seconds=0.1), Child("b", start, 0.1)]
    supervise(roles, messages=messages, steps=[(lambda: len(started) == 2,)])

    assert messages == ["b cannot be started: Resource temporarily unavailable; restarting in 0.5 s"]
    assert len(started) == 2


def test_a_reload_for_which_no_task_is_left_ends_nothing():
    messages, started = [], []
    hang_up, end = (0.5, signal.SIGHUP), (1.0, signal.SIGTERM)

    code, _ = supervise(
        [role(PATIENT, started, grace_seconds=0.1)],
        messages=messages,
        start_trial=no_task,
        signals=[hang_up, end],
    )

    assert (code, len(started)) == (0, 1)
    assert messages == ["reload failed: Resource temporarily unavailable; the running processes continue"]


@pytest.mark.slow
def test_a_web_server_that_fails_for_want_of_a_task_is_started_again():
    messages = []

    code, _ = supervise([web_server("raise SystemExit(-1)", "raise SystemExit(0)")], messages=messages)

    assert code == 0
    assert messages[0] == "the web server exited with code 255; restarting in 0.5 s"


def test_under_nohup_a_closed_terminal_stops_nothing():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        _, seconds = supervise(
            [role(SLEEP)],
            signals=[(0.3, signal.SIGHUP), (1.3, signal.SIGTERM)],
        )
    finally:
        signal.signal(signal.SIGHUP, before)

    assert seconds >= 0.9


def test_several_workers_are_numbered_in_messages():
    assert [one.name for one in worker_children(1, [], {}, 5)] == ["the worker"]
    assert [(one.name, one.grace_seconds) for one in worker_children(2, [], {}, 5)] == [
        ("worker 1", 10),
        ("worker 2", 10),
    ]


def test_a_childs_command_is_billhooks_or_that_of_the_users_app():
    own = worker_command(4, 2.5)
    theirs = worker_command(4, 2.5, flask=["--app", "shop"])

    assert " ".join(own[1:]) == "-P -m billhook worker --watched --threads 4 --grace 2.5"
    assert re.search("-m flask --app shop billhook worker --watched", " ".join(theirs))


def test_several_processes_from_a_custom_command_line_are_refused(app_with, monkeypatch):
    handlers = Handlers()
    handlers.on(PingTest, name="ping")(lambda event: None)
    app = app_with(handlers=[handlers])
    own = FlaskGroup(create_app=lambda: app, add_version_option=False)
    monkeypatch.setattr(Supervisor, "run", lambda self: pytest.fail("started"))

    result = CliRunner().invoke(own, ["billhook", "worker", "--processes", "2"])

    assert result.exit_code == 2
    assert "child processes cannot be started from a custom command line: use `flask --app" in result.stderr


def test_stopping_what_has_ended_already_is_nothing():
    process = child("pass")
    process.wait()

    stop_all([process], 1.0)

    assert process.returncode == 0
