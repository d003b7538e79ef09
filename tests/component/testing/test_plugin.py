"""The pytest plugin in suites of users, each run by a pytest of its own."""

from __future__ import annotations

import importlib
import os
import sys
import tomllib
from pathlib import Path

import pytest

from support.pages import ROOT
from support.processes import run_command

HANDLERS = """
from billhook import Delivery, Handlers
from billhook.events import InvoiceApproved

handlers = Handlers()
sent = []


@handlers.on(InvoiceApproved, retry=[60])
def send(event: InvoiceApproved, delivery: Delivery) -> None:
    if event.invoice_id == "inv_bad":
        raise RuntimeError("no such invoice")
    sent.append(event.invoice_id)
"""
APP = """
from flask import Flask
from billhook import Billhook
import billing


def create_app():
    app = Flask("shop", instance_path="/nowhere")
    app.config.from_prefixed_env()
    Billhook(app, handlers=[billing.handlers])
    return app


app = Flask("shop")


def with_its_own_inbox():
    app = Flask("shop", instance_path="/nowhere")
    app.config.update(BILLHOOK_INBOX_URL="sqlite:///production.db")
    Billhook(app)
    return app
"""
TESTS = """
import billing
from billhook.events import InvoiceApproved, sample


def test_sent(deliver, settle, handled, dead, refused, billhook_clock, tmp_path):
    started = billhook_clock.now()
    assert deliver(InvoiceApproved, invoice_id="inv_1").status == 200
    assert deliver(InvoiceApproved, invoice_id="inv_bad").status == 200
    assert deliver(InvoiceApproved, signed=False).status == 401
    assert settle(0) == 2
    assert settle() == 1
    assert handled(billing.send) == [sample(InvoiceApproved, invoice_id="inv_1")]
    assert [(one.event.invoice_id, one.attempts) for one in dead()] == [("inv_bad", 2)]
    assert refused() == ["missing"]
    assert billhook_clock.now() > started
    assert (tmp_path / "billhook-test.db").exists()


def test_nothing_is_left_of_another_test(settle, refused, deliver):
    assert settle() == 0
    assert refused() == []
    assert deliver("MoonPhase").status == 200


def test_plain(delivery_of):
    event = sample(InvoiceApproved, invoice_id="inv_2")
    billing.send(event, delivery_of(event))
    assert billing.sent[-1] == "inv_2"
"""
OVERRIDDEN = """
import pytest
from billhook.testing import make_app
import billing


@pytest.fixture
def billhook_app(tmp_path):
    return make_app(tmp_path, billing.handlers)
"""


@pytest.fixture
def suite(tmp_path):
    """Runs a suite with a setting of pytest's; its result and what it printed."""

    def run(setting, tests=TESTS, conftest="", **shell):
        folder = tmp_path / "suite"
        folder.mkdir(exist_ok=True)
        for name, text in {
            "billing.py": HANDLERS,
            "shop.py": APP,
            "test_shop.py": tests,
            "conftest.py": conftest,
            "pytest.ini": f"[pytest]\npythonpath = .\nfilterwarnings = error\n{setting}\n",
        }.items():
            (folder / name).write_text(text)
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("BILLHOOK_", "FLASK_"))}
        environ |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **shell}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "billhook_pytest", "-p", "no:cacheprovider"]
        return run_command(command, cwd=folder, env=environ)

    return run


@pytest.mark.parametrize(
    "setting",
    [
        "billhook_handlers = billing",
        pytest.param("billhook_app = shop:create_app", marks=pytest.mark.slow),
    ],
)
def test_one_line_sets_a_suite_up(suite, setting):
    ran = suite(setting)

    assert "3 passed" in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.parametrize("prefix", ["BILLHOOK_", "FLASK_BILLHOOK_"])
def test_what_the_shell_has_set_is_not_the_apps(suite, tmp_path, prefix):
    shell = {
        "SECRETS_FILE": "/nowhere/secret.txt",
        "SIGNATURE": "body-hmac",
        "INBOX_URL": f"sqlite:///{tmp_path}/production.db",
        "TOLERANCE_SECONDS": "none",
    }

    ran = suite("billhook_app = shop:create_app", **{f"{prefix}{name}": text for name, text in shell.items()})

    assert "3 passed" in ran.stdout, ran.stdout + ran.stderr
    assert not (tmp_path / "production.db").exists()


@pytest.mark.slow
def test_a_suite_may_make_the_app_itself(suite):
    ran = suite("", conftest=OVERRIDDEN)

    assert "3 passed" in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.slow
def test_a_handler_that_fails_would_be_noticed(suite):
    ran = suite("billhook_handlers = billing", TESTS.replace('"inv_1"', '"inv_bad"'))

    assert "1 failed, 2 passed" in ran.stdout


UNTESTABLE = {
    "shop:with_its_own_inbox": "the app has an inbox of its own, which tests must not use",
    "shop:app": "billhook_app = shop:app is an app that is made only once; it is the app",
    "shop:nothing": "billhook_app = shop:nothing: module 'shop' has no attribute 'nothing'",
    "nowhere:app": "billhook_app = nowhere:app: No module named 'nowhere'",
}


@pytest.mark.slow
def test_an_app_that_cannot_be_tested_is_an_error_in_one_line(suite, tmp_path):
    for app, message in UNTESTABLE.items():
        ran = suite(f"billhook_app = {app}")

        assert message in ran.stdout
        assert "2 errors" in ran.stdout + ran.stderr
    assert not list(tmp_path.rglob("production.db*"))  # refused before it was opened


def test_the_plugin_imports_nothing_of_billhook():
    program = (
        "import sys, pytest, billhook_pytest; print([n for n in sys.modules if n.startswith('billhook')])"
    )

    ran = run_command([sys.executable, "-c", program], check=True)

    assert ran.stdout == "['billhook_pytest']\n"


def test_the_package_names_its_plugin_to_pytest():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    named = project["project"]["entry-points"]["pytest11"]
    shipped = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]

    # By its own name: `-p billhook_pytest` does not load it a second time then.
    assert named == {"billhook_pytest": "billhook_pytest"}
    assert Path(str(importlib.import_module("billhook_pytest").__file__)).name == "billhook_pytest.py"
    assert "src/billhook_pytest.py" in shipped
