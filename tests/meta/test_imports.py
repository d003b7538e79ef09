"""What an import brings along, and what it must not: each asked of a process of its own."""

from __future__ import annotations

import sys

import pytest

from support.processes import run_command

WATCHED = {
    *("alembic", "billhook.cli", "billhook.client", "billhook.resources", "cryptography", "gunicorn"),
    *("httpx2", "opentelemetry", "rich", "sqlalchemy"),
}
APP = """
import billhook, flask
app = flask.Flask("shop", instance_path="/nowhere")
app.config.update(BILLHOOK_SECRETS="MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", BILLHOOK_INBOX_URL="sqlite:///inbox.db")
billhook.Billhook(app)
"""
HELP = """
import billhook.cli
from click.testing import CliRunner
assert "api" in CliRunner().invoke(billhook.cli.main, ["--help"]).output
"""
BROUGHT = [
    ("import billhook", set()),
    ("import billhook.resources", {"billhook.resources"}),
    ("import billhook.client", {"billhook.client", "billhook.resources", "httpx2"}),
    ("import billhook.standalone, billhook.tracing, billhook.engines", {"sqlalchemy"}),
    (APP, {"alembic", "sqlalchemy"}),  # it makes the inbox
    (HELP, {"billhook.cli"}),
]


@pytest.mark.parametrize(("program", "brought"), BROUGHT)
def test_a_process_imports_what_it_needs_and_nothing_else(program, brought, tmp_path):
    code = f"import sys\n{program}\nprint(*sys.modules)"

    ran = run_command([sys.executable, "-c", code], cwd=tmp_path, check=True)

    assert WATCHED.intersection(ran.stdout.split()) == brought


def test_shared_secrets_never_import_cryptography():
    program = """
import sys
from datetime import UTC, datetime
from billhook.signing import *
now = datetime.now(UTC)
secret = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
for scheme in (StandardWebhooks(), TimestampedHMAC(), BodyHMAC("X-S", replay_protection="dedupe-only"),
               SignatureTemplate()):
    headers = scheme.sign(b"{}", secret, event_type="PingTest", now=now)
    scheme.verify(headers, b"{}", scheme.load([secret]), event_type="PingTest", now=now, tolerance_seconds=9)
TimestampedRSA()
print("before", "cryptography" in sys.modules)
StandardWebhooks().load(["whpk_" + "A" * 42 + "E="])
print("after", "cryptography" in sys.modules)
"""
    done = run_command([sys.executable, "-c", program], check=True)

    assert done.stdout.split() == ["before", "False", "after", "True"]
