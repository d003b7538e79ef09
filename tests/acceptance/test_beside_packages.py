"""In other people's apps, beside their packages, billhook receives deliveries and changes nothing else.

Each has an environment of its own with the newest releases: python -m pytest --long -s names the times.
"""

from __future__ import annotations

import json
import re
import sys
import time
import tomllib
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from packaging.requirements import Requirement

from billhook.events import InvoiceApproved, sample
from support.examples import answers, free_port
from support.pages import ROOT, block
from support.processes import logged, output_of, strangers_environment, until
from support.server import ask, request
from support.signing import SECRET, signed_by_package

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NAMES = {Requirement(line).name for line in PROJECT["dependencies"]}
PINS = """
from importlib.metadata import requires
for line in requires("ckan"):
    requirement, _, marker = line.partition(";")
    if "requirements" in marker:
        print(requirement.strip())
"""
# The two lines of the README's mounted app, and what they import.
MOUNTED = (
    "\nfrom billhook import Billhook\nfrom billing import handlers\n"
    + re.search(r"^hooks = .*", block("file: shop.py"), re.MULTILINE | re.DOTALL)[0]
)
LOOK = """
import importlib, json, logging, sys
app = importlib.import_module(sys.argv[1]).app
root = logging.getLogger()
told = {"root": [root.level, [type(each).__name__ for each in root.handlers]]}
told["routes"] = sorted(f"{rule} {rule.endpoint} {sorted(rule.methods)}" for rule in app.url_map.iter_rules())
told["answers"] = {}
for path in sys.argv[2:]:
    answer = app.test_client().get(path, base_url="http://localhost:5000")
    fixed = [answer.status_code, answer.headers.get("Location"), answer.content_type]
    told["answers"][path] = [*fixed, answer.get_data(as_text=True)]
print("TOLD", json.dumps(told))
"""


class App(NamedTuple):
    """An app of other people's: what is installed, the lines that make `app`, and pages of it."""

    package: str
    lines: str
    paths: tuple[str, ...]


CKAN = App("ckan", "from flask import Flask\napp = Flask('shop')", ("/nowhere",))
MLFLOW = App(
    "mlflow",
    "from mlflow.server import app",
    ("/health", "/version", "/nowhere", "/ajax-api/2.0/mlflow/nowhere"),
)
APPBUILDER = App(
    "flask-appbuilder",
    """
from flask import Flask
from flask_appbuilder import AppBuilder
from flask_appbuilder.utils.legacy import get_sqla_class
from flask_wtf import CSRFProtect

app = Flask("shop")
app.config.update(SECRET_KEY="of this test", SQLALCHEMY_DATABASE_URI="sqlite:///shop.db")
db = get_sqla_class()(app)
CSRFProtect(app)
with app.app_context():
    AppBuilder(app, db.session)
""",
    ("/", "/login/", "/users/list/", "/api/v1/security/login", "/nowhere"),
)
DASH = App(
    "dash",
    """
from dash import Dash, Input, Output, dcc, html

dashboard = Dash("shop")
dashboard.layout = html.Div([dcc.Input(id="given"), html.Div(id="shown")])


@dashboard.callback(Output("shown", "children"), Input("given", "value"))
def show(given):
    return given


app = dashboard.server
""",
    ("/", "/_dash-layout", "/_dash-dependencies", "/nowhere"),
)


call = partial(output_of, timeout=1200)


def pin_as_ckan(python: Path) -> None:
    """Install what ckan pins of the packages that billhook needs too; the rest wants a compiler."""
    pins = dict(line.split("==") for line in call(python, "-c", PINS).split() if "==" in line)
    kept = [f"{name}=={pin}" for name, pin in pins.items() if name.partition("[")[0] in NAMES]
    assert any(each.startswith("sqlalchemy==") for each in kept), pins
    call(python, "-m", "pip", "install", "--quiet", *kept)


def deliver(port: int, key: str) -> tuple[int, str]:
    """Send a delivery that the standardwebhooks package has signed."""
    body = sample(InvoiceApproved, invoice_id="inv_42").to_json()
    reply = ask(port, request(body, signed_by_package(body, "InvoiceApproved", key)))
    return reply.status, reply.body.decode()


def look(python: Path, module: str, app: App, **options: Any) -> dict[str, Any]:
    """The routes, the root logger and the pages of an app."""
    told = call(python, "-c", LOOK, module, *app.paths, **options)
    return json.loads(told.partition("TOLD ")[2].splitlines()[0])


@pytest.mark.parametrize("app", [CKAN, MLFLOW, APPBUILDER, DASH], ids=lambda app: app.package)
def test_no_version_and_nothing_of_the_app_changes_and_it_receives(tmp_path, app, capsys):
    call(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    programs = tmp_path / "venv" / "bin"
    python = programs / "python"
    began = time.monotonic()
    call(python, "-m", "pip", "install", "--quiet", app.package)
    if app is CKAN:
        pin_as_ckan(python)
    installed = time.monotonic() - began
    before = set(call(python, "-m", "pip", "freeze").splitlines())

    began = time.monotonic()
    call(python, "-m", "pip", "install", "--quiet", str(ROOT))
    added = time.monotonic() - began

    after = set(call(python, "-m", "pip", "freeze").splitlines())
    assert before - after == set()
    call(python, "-m", "pip", "check")

    url = f"sqlite:///{tmp_path / 'billhook.db'}"
    own = {"BILLHOOK_SECRETS": SECRET, "PYTHONUNBUFFERED": "1", "BILLHOOK_INBOX_URL": url}
    for name, text in (
        ("plain.py", app.lines),
        ("shop.py", app.lines + MOUNTED),
        ("billing.py", block("file: billing.py")),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
    options = {"env": strangers_environment(**own), "cwd": tmp_path}
    plain, again, mounted = (look(python, module, app, **options) for module in ("plain", "plain", "shop"))

    # What differs from one start to the next, such as a token in a form, is compared without its text.
    for path, answer in again["answers"].items():
        if plain["answers"][path] != answer:
            for told in (plain, mounted):
                del told["answers"][path][3:]
    own = plain["routes"]
    routes = [route for route in mounted["routes"] if route not in own]
    assert mounted == {**plain, "routes": sorted([*own, *routes])}
    assert routes
    assert all(route.startswith("/webhooks/billing") for route in routes), routes

    checked = call(programs / "flask", "--app", "shop", "billhook", "check", **options)
    assert "verified and answered by billhook" in checked
    assert "WRONG" not in checked
    port = free_port()
    began = time.monotonic()
    log, server = (
        tmp_path / "log",
        [programs / "gunicorn", "-c", "python:billhook.gunicorn_conf", "-k", "gthread"],
    )
    server += ["--worker-connections", "1000", "--bind", f"127.0.0.1:{port}", "shop:app"]
    with logged(server, log, ready=lambda: answers(port), **options):
        assert deliver(port, "msg_1") == (200, '{"status": "accepted"}')
        assert deliver(port, "msg_1") == (200, '{"status": "duplicate"}')
        until(lambda: re.search(r"invoice inv_42 approved at \d\d:\d\d, delivery msg_1", log.read_text()), 60)
    handled = time.monotonic() - began
    with capsys.disabled():
        sys.stdout.write(
            f"\n{app.package}: {len(before)} packages in {installed:.0f} s, billhook in {added:.0f} s with "
            f"{len(after - before)} more; it started and handled a delivery in {handled:.1f} s\n"
        )
