"""Fixtures of the core's tests. Nothing of billhook is replaced here: files, sockets and threads are real.

A test that asks for `inbox`, `where` or `inbox_url` runs twice: on a SQLite file, and on PostgreSQL.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from billhook.clock import FrozenClock
from billhook.engines import Worker
from billhook.errors import program
from billhook.extension import get_state
from billhook.inbox import Inbox
from support.apps import bare_app, make_app
from support.compiled import keep_compiled
from support.inbox_view import close_inboxes, hang_up, open_inbox, place_of
from support.postgres import (
    BOTH,
    OwnServer,
    SharedServer,
    administrator,
    close_administrators,
    fresh_database,
    fresh_schema,
    required,
    start_own_server,
)
from support.processes import clean_environment
from support.server import Server, gunicorn
from support.templates import drop_spares, keep_spare, new_inbox


def pytest_configure(config: pytest.Config) -> None:
    """Make the tests mean the same however they were started."""
    if sys.dont_write_bytecode:
        # Without bytecode each of some thousand processes compiles all that it imports, and pytest rewrites
        # every test in every run. It goes into a folder of pytest's own, not beside the source.
        sys.dont_write_bytecode = False
        sys.pycache_prefix = sys.pycache_prefix or str(config.rootpath / ".pytest_cache" / "bytecode")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    # What the garbage collector finds during a test was often left by another: it is shown and fails none.
    config.addinivalue_line("filterwarnings", "default::pytest.PytestUnraisableExceptionWarning")
    config.addinivalue_line("markers", "slow: takes some seconds, and is left out without --slow")
    config.addinivalue_line("markers", "long: takes minutes, and is left out without --long")
    keep_compiled()
    load_profile(slow=config.getoption("--slow"))
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = (
            False  # xdist would sort by the number of tests, not by what they cost
        )
    # Under `nohup`, or in the background of a shell, the processes that tests start would inherit that a
    # hang-up or Ctrl-C is ignored.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Options for this run are none for the pytest that a test starts in a reader's folder.
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        os.environ.pop("PYTEST_ADDOPTS", None)


def load_profile(*, slow: bool) -> None:
    """Have property tests try some examples, and fail for none that takes long: it says nothing."""
    from hypothesis import HealthCheck, settings  # rewritten by pytest: only now bytecode is written

    settings.register_profile(
        "billhook",
        max_examples=100 if slow else 25,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("billhook")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also what takes minutes, with large numbers")
    parser.addoption("--slow", action="store_true", help="also what takes longest, as `.ci/run` does")


SLOWEST_FIRST = (
    "test_sandbox_openapi",
    "test_readme",
    "test_cli_",
    "test_engine_deadly",
    "acceptance/",
    "integration/",
    "model/test_model",
    "component/",
)
"""Parts of the paths of test files, in the order in which they begin under xdist; the fast rest follows."""


def _rank(item: pytest.Item) -> int:
    path = item.path.as_posix()
    return next((n for n, part in enumerate(SLOWEST_FIRST) if part in path), len(SLOWEST_FIRST))


ON_SQLITE_UNLESS_SLOW = (
    "component/cli/",
    "component/dashboard/",
    "component/engines/",
    "component/inbox/watching/",
    "component/notify/",
    "component/sandbox/",
)
"""What works above the inbox: its other tests, those of all statements, and the model run on SQLite and
PostgreSQL in any case."""


def is_slow(item: pytest.Item) -> bool:
    """Return whether a test is left out without --slow."""
    if item.get_closest_marker("slow") is not None:
        return True
    callspec = getattr(item, "callspec", None)
    # Only texts are compared: an object of a library may refuse it.
    values = callspec.params.values() if callspec is not None else ()
    on_postgresql = any(isinstance(each, str) and each == "postgresql" for each in values)
    return on_postgresql and any(part in item.path.as_posix() for part in ON_SQLITE_UNLESS_SLOW)


def _names_files(config: pytest.Config) -> bool:
    return any(".py" in argument for argument in config.args)


def deselect_slow(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what no option asks for: long tests, and slow ones unless files or tests were named."""
    if config.getoption("--long"):
        return
    with_slow = config.getoption("--slow") or _names_files(config)
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        is_kept = item.get_closest_marker("long") is None and (with_slow or not is_slow(item))
        (kept if is_kept else left_out).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave slow tests out, and bound every test.

    In pyproject.toml a user's pytest without the plugin would refuse the option.
    """
    deselect_slow(config, items)
    if os.environ.get("PYTEST_XDIST_WORKER"):
        items.sort(
            key=_rank
        )  # a long file that begins last keeps one process busy while the others have ended
    if config.pluginmanager.hasplugin("timeout") and config.getoption("timeout") is None:
        for item in items:
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))


def pytest_collection_finish() -> None:
    """Have no collection of garbage go through what was imported: half a million objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def loggers_are_left_as_they_were() -> Iterator[None]:
    """Fail the test that leaves a logger changed, not the later ones of its process that read the log.

    It is before `monkeypatch`, which has put back what it changed when this looks.
    """
    loggers = [logging.getLogger(name) for name in (None, "billhook", "gunicorn.error")]
    before = [(log.name, log.level, log.propagate, log.disabled, log.filters[:]) for log in loggers]
    yield
    assert [(log.name, log.level, log.propagate, log.disabled, log.filters[:]) for log in loggers] == before


@pytest.fixture(autouse=True)
def failing_pages_raise(loggers_are_left_as_they_were: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what fails in a page fail the test too, instead of being answered with 503."""
    monkeypatch.setattr("billhook.pages.pages.RAISE_AGAIN", True)


def _forget_new_apps() -> Iterator[None]:
    """Have hints name no app that was made meanwhile: many follow each other, and not all are closed."""
    before = dict(program._programs)
    yield
    program._programs.clear()
    program._programs.update(before)


apps_of_this_module = pytest.fixture(autouse=True, scope="module")(_forget_new_apps)
apps_of_this_test = pytest.fixture(autouse=True)(_forget_new_apps)


@pytest.fixture
def no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no option of billhook, Flask or gunicorn in the environment."""
    for name in os.environ.keys() - clean_environment().keys():
        monkeypatch.delenv(name)


@pytest.fixture
def frozen_clock() -> FrozenClock:
    """A clock that stands at the present second until a test moves it."""
    from datetime import UTC, datetime

    return FrozenClock(datetime.now(UTC).replace(microsecond=0))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[SharedServer]:
    """The PostgreSQL server of the session; whoever asks for its `url` first starts it."""
    shared = SharedServer()
    yield shared
    if shared.is_used:
        drop_spares(administrator(shared.url))
        close_administrators()
    shared.stop()


@pytest.fixture(scope="session")
def frail_server() -> Iterator[OwnServer]:
    """A PostgreSQL server for tests that freeze, kill or reconfigure it; each leaves it well."""
    server = start_own_server()
    yield server
    server.stop()


def _lent(url: str) -> Iterator[str]:
    """The URL, and nothing that has it open afterwards."""
    yield url
    close_inboxes()
    hang_up(url)


@pytest.fixture
def frail_url(frail_server) -> Iterator[str]:
    """The URL of a new inbox on the frail server."""
    with fresh_schema(frail_server.url) as url:
        yield from _lent(new_inbox(url))


@pytest.fixture
def postgres_url(postgres_server) -> Iterator[str]:
    """The URL of an empty schema on PostgreSQL."""
    with fresh_schema(postgres_server.url, keep_spare) as url:
        yield from _lent(url)


@pytest.fixture
def database_url(postgres_server) -> Iterator[str]:
    """The URL of an empty database on PostgreSQL, for tests of where in it an inbox is."""
    with fresh_database(postgres_server.url) as url:
        yield from _lent(url)


@pytest.fixture(params=BOTH)
def bare_url(request, tmp_path) -> Iterator[str]:
    """The URL of a place for an inbox, on each kind of database, with nothing in it yet."""
    if request.param == "postgresql":
        yield request.getfixturevalue("postgres_url")
    else:
        path = tmp_path / "billhook.db"
        path.touch(0o600)
        yield f"sqlite:///{path}"
    close_inboxes()


@pytest.fixture
def inbox_url(bare_url) -> str:
    """The URL of a new inbox on each kind of database, its schema made as users make it."""
    return new_inbox(bare_url)


@pytest.fixture
def where(inbox_url) -> Path | str:
    """Where the inbox is, as `rows` and `value` of support.inbox_view take it."""
    return place_of(inbox_url)


@pytest.fixture
def inbox(where) -> Iterator[Inbox]:
    """A prepared inbox."""
    opened = open_inbox(where)
    yield opened
    opened.close()


@pytest.fixture
def amqp_url() -> str:
    """A broker that speaks AMQP, shared with others: use names of your own."""
    return required("BILLHOOK_TEST_AMQP_URL", "AMQP broker")


@pytest.fixture
def redis_url() -> str:
    """A Redis, shared with others: use names of your own."""
    return required("BILLHOOK_TEST_REDIS_URL", "Redis")


@pytest.fixture
def app_with(request, tmp_path) -> Iterator[Callable[..., Flask]]:
    """Makes apps with a Billhook on an inbox in the test's folder, and closes what they opened.

    In a test that uses `inbox_url`, on that one.
    """
    made: list[Flask] = []
    config = {}
    if "inbox_url" in request.fixturenames:
        config["BILLHOOK_INBOX_URL"] = request.getfixturevalue("inbox_url")

    def make(**arguments: Any) -> Flask:
        app = make_app(tmp_path, **{**config, **arguments})
        made.append(app)
        return app

    yield make
    for app in made:
        app.extensions["billhook"].close()


@pytest.fixture
def running(app_with):
    """An app, and loops on its inbox in threads of their own; all are stopped at the end."""
    loops: list[tuple[Worker, threading.Thread]] = []

    def start(app: Flask, threads: int = 2) -> Worker:
        worker = get_state(app).worker(threads)
        thread = threading.Thread(target=worker.run, args=(3.0,))
        thread.start()
        loops.append((worker, thread))
        return worker

    def make(handlers, *, threads=2, count=1, start_now=True, **config):
        app = app_with(handlers=[handlers], **{"BILLHOOK_LEASE_SECONDS": 0.5, **config})
        for _ in range(count if start_now else 0):
            start(app, threads)
        return app

    make.start = start
    yield make
    for worker, _ in loops:
        worker.stop()
    for _, thread in loops:
        thread.join(10)
        assert not thread.is_alive()


@pytest.fixture
def plain_app(tmp_path) -> Iterator[Callable[..., Flask]]:
    """Makes configured apps without a Billhook; closes the one they get."""
    made: list[Flask] = []

    def make(**config: Any) -> Flask:
        made.append(bare_app(tmp_path, **config))
        return made[-1]

    yield make
    for app in made:
        if "billhook" in app.extensions:
            app.extensions["billhook"].close()


@pytest.fixture(scope="session", params=["asgi", "asgi-fast", "gthread"])
def server(request, tmp_path_factory) -> Iterator[Server]:
    """One receiver behind each door for all tests of the HTTP contract; each test has its own message ids."""
    with gunicorn(tmp_path_factory.mktemp("server"), door=request.param) as running:
        yield running
