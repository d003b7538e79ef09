"""The standalone app: options from the environment, handlers from modules and files, health and readiness."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys

import pytest

from billhook import standalone as module
from billhook.errors import ConfigError
from billhook.extension import get_state
from billhook.standalone import create_app, load_handlers
from support.apps import deliver, inbox_file
from support.inbox_view import rows
from support.signing import PATH, SECRET

HANDLERS = """
from billhook import Handlers
from billhook.events import PingTest

handlers = Handlers()
same = handlers
seen = []

@handlers.on(PingTest)
def ping(event):
    seen.append(event)
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working folder of the test's own, and nothing left of what was imported from it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    for name in list(os.environ):
        if name.startswith("BILLHOOK_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BILLHOOK_SECRETS", SECRET)
    monkeypatch.setenv("BILLHOOK_ENGINE", "inline")
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", "") and str(tmp_path) in (sys.modules[name].__file__ or ""):
            del sys.modules[name]


@pytest.fixture
def standalone(here):
    made = []

    def make():
        made.append(create_app())
        return made[-1]

    yield make
    for app in made:
        get_state(app).close()


def test_the_environment_is_all_it_needs(standalone, here):
    app = standalone()

    reply = deliver(app)

    assert reply.status_code == 200
    assert inbox_file(app) == here / "billhook.db"
    assert rows(here / "billhook.db", "SELECT event_type, state FROM delivery") == [("PingTest", "done")]


def test_handlers_come_from_modules(standalone, here, monkeypatch):
    (here / "shop_hooks_a.py").write_text(HANDLERS)
    monkeypatch.setenv("BILLHOOK_HANDLERS", "shop_hooks_a")

    deliver(standalone())

    assert len(sys.modules["shop_hooks_a"].seen) == 1
    assert rows(here / "billhook.db", "SELECT handler, state FROM run") == [
        ("shop_hooks_a.ping", "succeeded")
    ]


def test_handlers_come_from_files_with_their_relative_imports(standalone, here, monkeypatch):
    package = here / "shop_pkg" / "inner"
    package.mkdir(parents=True)
    (here / "shop_pkg" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "names.py").write_text("NAME = 'from a neighbour'")
    (package / "hooks.py").write_text("from .names import NAME\n" + HANDLERS)
    monkeypatch.setenv("BILLHOOK_HANDLERS", "shop_pkg/inner/hooks.py")

    deliver(standalone())

    assert rows(here / "billhook.db", "SELECT handler FROM run") == [("shop_pkg.inner.hooks.ping",)]


def test_a_module_without_handlers_is_refused(here):
    (here / "shop_hooks_b.py").write_text("x = 1")

    with pytest.raises(
        ConfigError, match=r"shop_hooks_b.py has no Handlers: it needs a line such as handlers ="
    ):
        load_handlers(["shop_hooks_b.py"])


def test_a_module_that_does_not_exist_is_refused(here):
    with pytest.raises(ConfigError, match="there is no handlers module 'no_such_module_here' here"):
        load_handlers(["no_such_module_here"])
    with pytest.raises(ConfigError, match=r"there is no handlers file .*missing\.py"):
        load_handlers(["missing.py"])


def test_a_failing_import_in_a_handlers_module_is_raised_unchanged(here):
    (here / "shop_hooks_c.py").write_text("import not_installed_anywhere")

    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        load_handlers(["shop_hooks_c"])


def test_a_group_that_two_modules_show_is_taken_once(here):
    (here / "shop_hooks_d.py").write_text(HANDLERS)
    (here / "shop_hooks_e.py").write_text("from shop_hooks_d import handlers")

    assert len(load_handlers(["shop_hooks_d", "shop_hooks_e"])) == 1


@pytest.mark.parametrize(
    ("prefix", "path"), [("", "/"), ("/", "/"), ("/hooks", "/hooks"), ("hooks/", "/hooks")]
)
def test_the_prefix_is_an_option(standalone, monkeypatch, prefix, path):
    monkeypatch.setenv("BILLHOOK_URL_PREFIX", prefix)

    assert deliver(standalone(), path=path).status_code == 200


def test_health_and_readiness(standalone):
    client = standalone().test_client()

    assert (client.get("/healthz").status_code, client.get("/readyz").status_code) == (200, 200)
    assert client.get("/healthz").json == {"status": "up"}
    assert client.get("/readyz").json == {"status": "ready"}


def test_readiness_is_503_without_an_inbox(standalone, here):
    client = standalone().test_client()
    (here / "billhook.db").rename(here / "aside")

    gone = client.get("/readyz")
    (here / "aside").rename(here / "billhook.db")

    assert (gone.status_code, gone.json) == (503, {"status": "unavailable"})
    assert client.get("/readyz").status_code == 200


def test_readiness_is_503_before_an_inbox_of_another_version(standalone, here):
    client = standalone().test_client()
    with contextlib.closing(sqlite3.connect(here / "billhook.db")) as connection, connection:
        connection.execute("UPDATE billhook_version SET version_num = '9999'")

    assert client.get("/readyz").status_code == 503


def test_other_paths_are_404(standalone):
    client = standalone().test_client()

    assert client.get("/").status_code == 404
    assert client.get("/static/x").status_code == 404
    assert client.get(PATH).status_code == 405


def test_wrong_options_refuse_to_start(here, monkeypatch):
    monkeypatch.setenv("BILLHOOK_LEASE", "3")

    with pytest.raises(ConfigError, match="BILLHOOK_LEASE is no option"):
        create_app()


def test_a_configuration_error_under_the_celery_command_has_no_stack_trace(here, monkeypatch):
    monkeypatch.setenv("BILLHOOK_ENGINE", "celery")
    monkeypatch.setenv("BILLHOOK_CELERY_APP", "nope:celery")

    with pytest.raises(
        SystemExit, match="Error: BILLHOOK_CELERY_APP 'nope:celery': there is no module 'nope'"
    ):
        module.celery  # noqa: B018 - as `celery -A billhook.standalone:celery` does


def test_start_handles_stored_deliveries(standalone, here, monkeypatch):
    from billhook import Billhook

    monkeypatch.setenv("BILLHOOK_ENGINE", "inline")
    app = standalone()

    Billhook().start(app)

    assert deliver(app).status_code == 200
