"""Installed beside other people's packages billhook changes none of them, and receives deliveries there."""

from __future__ import annotations

import os
import sys
import tomllib

import pytest
from packaging.requirements import Requirement

from support.pages import ROOT
from support.processes import run_command
from support.signing import SECRET

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
SHOP = """
from billhook import Billhook, Handlers
from billhook.events import InvoiceApproved

handlers = Handlers()

@handlers.on(InvoiceApproved)
def book(event: InvoiceApproved) -> None:
    print("booked", event.invoice_id)

hooks = Billhook(handlers=[handlers])
hooks.init_app(app, url_prefix="/webhooks/billing")
"""
PLAIN = "from flask import Flask; app = Flask('shop')"
DELIVER = """
import os
from datetime import UTC, datetime
from billhook.events import InvoiceApproved, sample
from billhook.signing import StandardWebhooks
from shop import app
body = sample(InvoiceApproved, invoice_id="inv_42").to_json()
signed = StandardWebhooks().sign(
    body, os.environ["BILLHOOK_SECRETS"], event_type="InvoiceApproved", now=datetime.now(UTC)
)
headers = {**signed, "X-Webhook-Type": "InvoiceApproved", "Content-Type": "application/json"}
answer = app.test_client().post("/webhooks/billing", data=body, headers=headers)
print(answer.status_code, answer.text)
"""


def call(*command, **options):
    done = run_command(command, timeout=1200, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ckan(python):
    """Install what ckan pins of the packages that billhook needs too; the rest wants a compiler."""
    call(python, "-m", "pip", "install", "--quiet", "ckan")
    pins = dict(line.split("==") for line in call(python, "-c", PINS).split() if "==" in line)
    kept = [f"{name}=={pin}" for name, pin in pins.items() if name.partition("[")[0] in NAMES]
    assert any(each.startswith("sqlalchemy==") for each in kept), pins
    call(python, "-m", "pip", "install", "--quiet", *kept)
    return PLAIN


def mlflow(python):
    """Install it; its server is a Flask app."""
    call(python, "-m", "pip", "install", "--quiet", "mlflow")
    return "from mlflow.server import app"


@pytest.mark.parametrize("package", [ckan, mlflow])
def test_no_version_changes_and_a_mounted_app_receives(tmp_path, package):
    call(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    programs = tmp_path / "venv" / "bin"
    python = programs / "python"
    app = package(python)
    before = set(call(python, "-m", "pip", "freeze").splitlines())

    call(python, "-m", "pip", "install", "--quiet", str(ROOT))

    after = set(call(python, "-m", "pip", "freeze").splitlines())
    assert before - after == set()
    call(python, "-m", "pip", "check")

    environ = {name: text for name, text in os.environ.items() if not name.startswith(("BILLHOOK", "PYTHON"))}
    environ |= {"BILLHOOK_SECRETS": SECRET, "BILLHOOK_ENGINE": "inline"}
    environ["BILLHOOK_INBOX_URL"] = f"sqlite:///{tmp_path / 'billhook.db'}"
    (tmp_path / "shop.py").write_text(f"{app}\n{SHOP}", encoding="utf-8")

    checked = call(programs / "flask", "--app", "shop", "billhook", "check", env=environ, cwd=tmp_path)
    delivered = call(python, "-c", DELIVER, env=environ, cwd=tmp_path)

    assert "verified and answered by billhook" in checked
    assert "booked inv_42" in delivered
    assert delivered.endswith('200 {"status": "accepted"}\n')
