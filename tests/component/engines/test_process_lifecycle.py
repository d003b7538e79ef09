"""What an engine does about its process: forked children, lost descriptors, its first request, its end."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time

import pytest

from billhook import Billhook, Handlers
from billhook.engines import thread as thread_engine
from billhook.engines.descriptors import DescriptorMonitor
from billhook.errors import InboxUnavailable
from billhook.events import PingTest
from billhook.extension import get_state
from billhook.inbox import Inbox
from billhook.inbox.tables.revision import REVISION
from support.apps import deliver, inbox_at
from support.engines import handling, states
from support.inbox_view import incoming, open_inbox, rows
from support.next_release import next_release
from support.processes import few_descriptors, until

# --- forked children ------------------------------------------------------------------------------


@pytest.mark.parametrize(("error", "code"), [(None, 0), (SystemExit("no"), 1)])
def test_a_child_forked_by_a_handler_ends_when_the_handler_does(app_with, capfd, error, code):
    handlers, children = Handlers(), []

    @handlers.on(PingTest, name="forks")
    def forks(event, delivery):
        children.append(os.fork())
        if children == [0] and error is not None:
            raise error

    app = app_with(handlers=[handlers], BILLHOOK_ENGINE="inline")
    tests_own = os.getpid()
    deliver(app)
    if os.getpid() != tests_own:  # the control: without the rule the child goes on with the suite
        os._exit(77)

    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == code
    assert states(app) == ["done"]
    assert capfd.readouterr().err.endswith(
        "billhook: a child that a handler forked returned from it, and was ended\n"
    )


# --- descriptors ----------------------------------------------------------------------------------


def caused(number):
    error = RuntimeError("no connection")
    error.__cause__ = OSError(number, "no")
    return error


@pytest.mark.parametrize(
    ("errors", "exhausted"),
    [
        ([caused(errno.EMFILE)] * 5, True),
        ([caused(errno.EBADF)] * 5, True),
        ([*[caused(errno.EMFILE)] * 4, None, *[caused(errno.EMFILE)] * 4], False),
        ([ValueError(), caused(errno.ENOENT), InboxUnavailable("away")] * 20, False),
    ],
)
def test_five_failures_in_a_row_for_want_of_descriptors_are_enough(errors, exhausted):
    found = DescriptorMonitor()
    for error in errors:
        found.record(error)

    assert found.exhausted is exhausted


def test_a_process_that_has_a_few_left_cannot_open_its_inbox():
    found = DescriptorMonitor()
    with few_descriptors(8):
        for _ in range(5):
            found.record(InboxUnavailable("unable to open database file"))

    assert found.exhausted


def test_a_worker_without_descriptors_stops_and_logs_why(app_with, caplog):
    handlers, calls = Handlers(), []

    @handlers.on(PingTest, name="h", retry=[0] * 20)
    def h(event):
        calls.append(1)
        raise OSError(errno.EMFILE, "Too many open files")

    app = app_with(handlers=[handlers])
    deliver(app)
    worker = get_state(app).worker(1)

    worker.run(1.0)

    assert worker.broken
    assert len(calls) >= 5
    assert "worker stopping: out of file descriptors, or a handler closed them" in caplog.text


def test_a_worker_with_too_many_abandoned_threads_stops_broken_and_logs_why(app_with, caplog):
    """Here none is too many: the process is to be replaced then."""
    worker = get_state(app_with(handlers=[Handlers()], BILLHOOK_ENGINE="worker")).worker(1)
    before = worker.broken

    worker.run(1.0, max_abandoned_threads=0)
    worker.close()

    assert (before, worker.broken) == (False, True)
    assert "too many handlers never returned" in caplog.text


def test_a_gunicorn_worker_is_recognised_by_its_signal_handler():
    assert not thread_engine._in_a_gunicorn_worker()

    from gunicorn.config import Config
    from gunicorn.workers.gthread import ThreadWorker

    worker = ThreadWorker.__new__(ThreadWorker)
    worker.cfg = Config()
    before = signal.signal(signal.SIGTERM, worker.handle_exit)
    try:
        assert thread_engine._in_a_gunicorn_worker()
    finally:
        signal.signal(signal.SIGTERM, before)


# --- the first request ----------------------------------------------------------------------------


def shop_with(plain_app, calls, **config):
    app = plain_app(BILLHOOK_ENGINE="thread", **config)
    app.before_request(lambda: ("not yours", 403))
    hooks = Billhook(handlers=[handling(lambda event, delivery: calls.append(delivery.key), name="h")])
    hooks.init_app(app)
    return app, hooks


def test_the_first_request_of_any_kind_starts_the_thread_engine(plain_app):
    calls = []
    app, _ = shop_with(plain_app, calls)
    get_state(app).inbox.put(incoming("before"))
    time.sleep(0.3)
    assert calls == []

    assert app.test_client().get("/no-such-page").status_code == 403

    until(lambda: calls == ["before"], 20)


@pytest.mark.parametrize(("main", "begun"), [(None, False), ("true", True)])
def test_the_reloaders_parent_starts_nothing_and_its_child_does(plain_app, monkeypatch, main, begun):
    monkeypatch.setenv("FLASK_RUN_FROM_CLI", "true")
    monkeypatch.setenv("FLASK_DEBUG", "1")
    monkeypatch.delenv("WERKZEUG_RUN_MAIN", raising=False)
    if main is not None:
        monkeypatch.setenv("WERKZEUG_RUN_MAIN", main)
    app, hooks = shop_with(plain_app, [])

    hooks.start(app)

    assert any(one.name == "billhook-engine" for one in threading.enumerate()) is begun


def test_a_request_succeeds_although_the_engine_cannot_start_a_thread(plain_app, monkeypatch, caplog):
    app, _ = shop_with(plain_app, [])

    def refuse():
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(get_state(app).engine, "start", refuse)

    assert app.test_client().get("/").status_code == 403
    assert "engine could not start, retrying with the next request: can't start new thread" in caplog.text


def test_an_engine_without_descriptors_keeps_no_server_from_starting(plain_app, monkeypatch, caplog):
    app, _ = shop_with(plain_app, [])

    def refuse():
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pipe", refuse)
    get_state(app).start()

    assert "deliveries get 503 until they start: [Errno 24] Too many open files" in caplog.text


# --- the end --------------------------------------------------------------------------------------


def test_the_thread_engine_is_registered_as_a_worker_until_it_stops(app_with):
    handlers = Handlers()
    handlers.on(PingTest, name="h")(lambda event: None)
    app = app_with(handlers=[handlers], BILLHOOK_ENGINE="thread")
    query = "SELECT engine, handlers FROM billhook_worker WHERE stopped_at IS NULL"
    deliver(app)
    until(lambda: rows(inbox_at(app), query) == [("thread", 1)])

    get_state(app).engine.stop()

    assert rows(inbox_at(app), query) == []


@pytest.fixture
def hanging(app_with, monkeypatch):
    """An app whose thread engine, with such a grace, calls a handler that returns when `gate` is set."""
    gate, begun = threading.Event(), threading.Event()

    def make(grace_seconds):
        monkeypatch.setattr(thread_engine, "GRACE_SECONDS", grace_seconds)
        handlers = Handlers()
        handlers.on(PingTest, name="h")(lambda event: (begun.set(), gate.wait(60)))
        app = app_with(handlers=[handlers], BILLHOOK_ENGINE="thread", BILLHOOK_LEASE_SECONDS=30)
        deliver(app)
        assert begun.wait(20)
        return app, gate

    return make


def test_a_closed_engine_does_not_use_the_inbox_and_does_not_count_attempts_under_way(hanging):
    app, gate = hanging(0.2)
    engine = get_state(app).engine

    engine.stop(30.0)
    alive = engine._thread.is_alive()
    gate.set()
    engine._worker._poll()  # whoever comes late

    assert not alive
    found = rows(inbox_at(app), "SELECT state, attempts, runs_alone, uncounted_attempts FROM run")
    assert found == [("due", 1, 0, 1)]
    error = "the worker was stopped, and the handler did not return within the grace"
    assert rows(inbox_at(app), "SELECT error FROM failure") == [(error,)]


def test_results_that_a_newer_schema_refuses_are_not_waited_for_at_the_end(hanging, tmp_path):
    app, gate = hanging(1_000.0)
    with next_release(tmp_path / "next", oldest_compatible=REVISION):
        open_inbox(inbox_at(app)).upgrade()
    gate.set()

    get_state(app).engine.stop(1_000.0)

    assert not get_state(app).engine.running


def test_an_idle_worker_says_soon_that_the_schema_is_newer_and_handles_nothing(
    running, inbox_url, tmp_path, caplog
):
    """A poll that finds nothing writes nothing, and on a server only what is written checks the schema."""
    called = []
    app = running(handling(called.append, name="h"), BILLHOOK_ENGINE="worker")
    with next_release(tmp_path / "next", oldest_compatible=REVISION):
        Inbox(inbox_url).upgrade()

    until(lambda: "it is newer than this billhook" in caplog.text, 60)
    caplog.clear()
    deliver(app)
    until(lambda: "worker poll failed" in caplog.text, 60)

    assert "it is newer than this billhook" in caplog.text
    assert (called, states(app)) == ([], ["received"])
