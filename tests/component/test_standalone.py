"""The standalone app: options from the environment, handlers from modules and files, health and readiness."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys

import pytest

from billhook import standalone as module
from billhook.errors import ConfigError, MissingExtra
from billhook.errors.program import install_command
from billhook.extension import get_state
from billhook.inbox.sqlite.library import sqlite3
from billhook.standalone import create_app, load_handlers
from support.apps import deliver, inbox_file
from support.inbox_view import rows
from support.signing import SECRET
from support.signing_cases import without_cryptography
from support.templates import new_inbox

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
def here(tmp_path, monkeypatch, no_options):
    """A working folder of the test's own with an inbox, and nothing left of what was imported from it."""
    new_inbox(f"sqlite:///{tmp_path / 'billhook.db'}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    monkeypatch.setenv("BILLHOOK_SECRETS", SECRET)
    monkeypatch.setenv("BILLHOOK_ENGINE", "inline")
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", "") and str(tmp_path) in (sys.modules[name].__file__ or ""):
            del sys.modules[name]


ACCEPT = """
from billhook import Discard, Handlers
from billhook.events import CreditPoolDepleted, InvoiceApproved, PingTest, sample
from billhook.extension import get_state
from billhook.standalone import create_app
from billhook.testing import deliver

handlers = Handlers()

@handlers.on(InvoiceApproved, PingTest, name="shop.book", retry=[60])
def book(event, delivery):
    if delivery.key == "discarded":
        raise Discard("not ours")
    if delivery.key == "failed":
        raise RuntimeError("no\\x1b mail")

if __name__ == "__main__":
    app = create_app()
    for key in ("one", "one", "discarded", "failed"):
        deliver(app, PingTest, key=key)
    deliver(app, CreditPoolDepleted)
    get_state(app).close()
"""
LINES = [
    "INFO billhook.standalone: delivery 1 accepted: PingTest",
    "INFO billhook.standalone: handler shop.book succeeded on delivery 1 in _ ms",
    "INFO billhook.standalone: delivery 2 accepted: PingTest",
    "INFO billhook.standalone: handler shop.book discarded delivery 2 in _ ms",
    "INFO billhook.standalone: delivery 3 accepted: PingTest",
    "WARNING billhook.engines: handler shop.book failed on delivery 3 (attempt 1), retrying in",
    "INFO billhook.standalone: delivery 4 accepted: CreditPoolDepleted",
    "INFO billhook.engines: no handler for CreditPoolDepleted: ",
]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("terminal", LINES),
        pytest.param("terminal without colours", LINES, marks=pytest.mark.slow),
        ("pipe", [LINES[5], LINES[7]]),
    ],
)
def test_in_a_terminal_each_delivery_and_what_its_handlers_made_of_it_is_a_line(
    here, monkeypatch, output, expected
):
    (here / "shop.py").write_text(ACCEPT)
    monkeypatch.setenv("BILLHOOK_HANDLERS", "shop.py")
    monkeypatch.setenv("NO_COLOR", "1" if output == "terminal without colours" else "")
    ours, theirs = os.pipe() if output == "pipe" else pty.openpty()
    command = [sys.executable, "shop.py"]
    # Of a terminal both ends are one descriptor for each side; of a pipe one reads and one writes.
    process = subprocess.Popen(command, stderr=theirs, stdin=subprocess.DEVNULL)
    os.close(theirs)
    found = b""
    with contextlib.suppress(OSError):  # EIO: the process has ended
        while piece := os.read(ours, 10_000):
            found += piece
    os.close(ours)
    assert process.wait(60) == 0

    text = found.decode()
    lines = [line.split(" ", 2)[2] for line in re.sub(r"\x1b\[[0-9]*m", "", text).splitlines()]
    lines = [re.sub(r" \d+ ms", " _ ms", line) for line in lines]
    assert [line.startswith(start) for line, start in zip(lines, expected, strict=True)] == [True] * len(
        lines
    ), lines
    coloured = [code for code in re.findall(r"\x1b\[([0-9]+)m", text) if code != "0"]
    assert coloured == (["32", "32", "33"] if output == "terminal" else [])


@pytest.fixture
def standalone(here):
    made = []

    def make():
        made.append(create_app())
        return made[-1]

    yield make
    for app in made:
        get_state(app).close()


def test_a_scheme_without_its_package_is_refused_at_the_start_with_the_line_to_type(here, monkeypatch):
    without_cryptography(monkeypatch)
    environ = {"BILLHOOK_SIGNATURE": "timestamped-rsa", "BILLHOOK_SECRETS": "-----BEGIN PUBLIC KEY-----"}

    with pytest.raises(MissingExtra, match=re.escape(install_command("asymmetric"))):
        create_app(environ)


def test_the_environment_is_all_it_needs(standalone, here):
    (here / "billhook.db").unlink()
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


APP = """
from flask import Flask
from billhook import Billhook, Handlers
from billhook.events import PingTest

handlers = Handlers()
hooks = Billhook(handlers=[handlers])

@handlers.on(PingTest)
def ping(event): ...

"""
MOUNTED = [
    ("an_app", APP + "app = Flask(__name__)", "an_app"),
    ("two_apps", APP + "one, two = Flask('one'), Flask('two')", "two_apps:one"),
    ("one_app", APP + "web = Flask(__name__)", "one_app"),
    ("a_factory", APP + "def create_app(): ...", "a_factory"),
    ("no_app", APP, "…"),
    ("no_hooks", APP.replace("hooks = ", "def build(): return "), "no_hooks:build"),
    ("no_handlers", "from billhook import Billhook\nhooks = Billhook()\ndef make_app(): ...", "no_handlers"),
    ("lazy_hooks", HANDLERS + "def build():\n from billhook import Billhook", "lazy_hooks:build"),
]
"""Modules with handlers of a mounted billhook, and how `flask --app` finds the app."""


@pytest.mark.parametrize(("name", "text", "app"), MOUNTED, ids=[one for one, *_ in MOUNTED])
def test_handlers_of_an_app_are_refused_outside_it_with_the_command_that_has_it(
    standalone, here, monkeypatch, name, text, app
):
    (here / f"{name}.py").write_text(text)
    monkeypatch.setenv("BILLHOOK_HANDLERS", f"{name}.py")

    told = re.escape(f"start the worker as `flask --app {app} billhook worker`, and other commands alike")
    with pytest.raises(ConfigError, match=rf"{name}\.py has billhook in a Flask app, .*: {told}"):
        standalone()


def test_handlers_in_a_package_whose_app_has_billhook_are_refused_alike(standalone, here, monkeypatch):
    package = here / "shop_of_apps"
    package.mkdir()
    (package / "__init__.py").write_text("def create_app():\n from billhook import Billhook\n Billhook()")
    (package / "billing.py").write_text(HANDLERS)
    monkeypatch.setenv("BILLHOOK_HANDLERS", "shop_of_apps.billing")

    with pytest.raises(ConfigError, match="`flask --app shop_of_apps billhook worker`"):
        standalone()


def test_handlers_of_a_module_with_an_app_that_has_no_billhook_run(standalone, here, monkeypatch):
    text = "from flask import Flask, current_app, g, request\napp = Flask(__name__)\n"
    (here / "an_app_without.py").write_text(text + HANDLERS)
    monkeypatch.setenv("BILLHOOK_HANDLERS", "an_app_without")

    assert get_state(standalone()).handlers.count() == 1


def test_a_failing_import_in_a_handlers_module_is_raised_unchanged(here):
    (here / "shop_hooks_c.py").write_text("import not_installed_anywhere")

    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        load_handlers(["shop_hooks_c"])


def test_a_group_that_two_modules_show_is_taken_once(here):
    (here / "shop_hooks_d.py").write_text(HANDLERS)
    (here / "shop_hooks_e.py").write_text("from shop_hooks_d import handlers")

    assert len(load_handlers(["shop_hooks_d", "shop_hooks_e"])) == 1


def test_a_signed_request_for_a_wrong_path_is_answered_404_and_logged(standalone, caplog, monkeypatch):
    monkeypatch.setattr(module._misdirected, "kinds", {})
    app = standalone()
    wrong = deliver(app, path="/webhooks/biling")
    after_the_first = caplog.text
    caplog.clear()
    others = [
        deliver(app, path="/webhooks/biling").status_code,  # counted into the next line
        app.test_client().post("/webhooks/biling").status_code,
        app.test_client().get("/webhooks/biling").status_code,
        deliver(app).status_code,
    ]

    assert wrong.status_code == 404
    told = (
        "a signed request for /webhooks/biling was answered 404: deliveries are received at /webhooks/billing"
    )
    assert after_the_first.count(told) == 1
    assert others == [404, 404, 404, 200]
    assert "404" not in caplog.text


FRAME_BYTES = 4_120
"""What one commit of one page adds to the write-ahead log."""


def log_bytes(folder):
    log = folder / "billhook.db-wal"
    return log.stat().st_size if log.exists() else 0


def test_questions_for_readiness_leave_the_log_as_it_was_and_deliveries_between_them_are_stored(
    standalone, here
):
    app = standalone()
    client = app.test_client()
    deliver(app)
    before = log_bytes(here)

    statuses = {client.get("/readyz").status_code for _ in range(300)}
    after = log_bytes(here)
    delivered = []
    for number in range(5):
        statuses.add(client.get("/readyz").status_code)
        delivered.append(deliver(app, message_id=f"msg_{number}").json["status"])

    assert statuses == {200}
    assert after <= before < 50 * FRAME_BYTES
    assert delivered == ["accepted"] * 5


def test_control_a_write_for_each_question_would_fill_the_log(standalone, here):
    deliver(standalone())
    before = log_bytes(here)
    with contextlib.closing(sqlite3.connect(here / "billhook.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint=0")
        for _ in range(50):
            connection.execute("UPDATE billhook_version SET version_num = version_num")

        assert log_bytes(here) >= before + 50 * FRAME_BYTES


def test_a_configuration_error_under_the_celery_command_has_no_stack_trace(here, monkeypatch):
    monkeypatch.setenv("BILLHOOK_ENGINE", "celery")
    monkeypatch.setenv("BILLHOOK_CELERY_APP", "nope:celery")

    with pytest.raises(
        SystemExit, match="Error: BILLHOOK_CELERY_APP 'nope:celery': there is no module 'nope'"
    ):
        module.celery  # noqa: B018 - as `celery -A billhook.standalone:celery` does


@pytest.mark.parametrize("error", [MemoryError(), OSError(24, "Too many open files")])
def test_a_process_that_lacks_memory_or_descriptors_is_not_ready(standalone, monkeypatch, error):
    app = standalone()

    def fail(*_):
        raise error

    monkeypatch.setattr(app.extensions["billhook"].inbox._probe, "_write", fail)

    assert app.test_client().get("/readyz").status_code == 503


@pytest.mark.parametrize("error", [MemoryError, RuntimeError])
def test_a_health_check_that_fails_before_its_view_is_503(standalone, monkeypatch, error):
    app = standalone()

    def fail(*_):
        raise error

    monkeypatch.setattr(app, "preprocess_request", fail)

    assert app.test_client().get("/readyz").status_code == 503
