"""Hints name the program that was called: what they say can be typed as it stands."""

from __future__ import annotations

import os
import re
import sys

import pytest
from click.testing import CliRunner
from flask.cli import cli as flask_cli

from billhook.cli import main
from billhook.program import in_program, program
from support.signing import SECRET

SHOP = """
from flask import Flask
from billhook import Billhook, Handlers
from billhook.dashboard import Dashboard
from billhook.events import PingTest

app = Flask(__name__, instance_path={folder!r})
app.config.update(BILLHOOK_SECRETS=[{secret!r}], BILLHOOK_ENGINE="worker")
handlers = Handlers()


@handlers.on(PingTest, name="send", retry=[])
def send(event):
    raise OSError("no")


Billhook(app, handlers=[handlers])
Dashboard(may_look=lambda: True, may_act=lambda: True).init_app(app)
"""
BARE = re.compile(
    r"(?<!shop_of_hints\.py )\bbillhook (?:deliveries|handlers|db|worker|status|doctor|send|check|actions)\b"
)
COMMANDS = (
    ["deliveries", "list"],
    ["deliveries", "show", "99"],
    ["deliveries", "replay", "--state", "dead", "--yes"],
    ["handlers"],
    ["handlers", "resume", "nope"],
    ["status"],
    ["doctor"],
    ["check"],
    ["db", "current"],
    ["send", "Nope"],
)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """The name by which `flask --app` finds an app with a paused handler and a dead run."""
    for name in list(os.environ):
        if name.startswith(("BILLHOOK_", "FLASK_")):
            monkeypatch.delenv(name)
    monkeypatch.delenv("COLUMNS", raising=False)  # which would break hints in tables
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop_of_hints.py").write_text(SHOP.format(folder=str(tmp_path), secret=SECRET))
    yield "shop_of_hints.py"
    app = sys.modules.pop("shop_of_hints").app
    app.extensions["billhook"].close()


def run(shop, *arguments):
    result = CliRunner().invoke(flask_cli, ["--app", shop, "billhook", *arguments])
    return result.stdout + result.stderr


def test_every_hint_of_a_mounted_app_names_flask_and_the_app(shop):
    assert "accepted" in run(shop, "send", "PingTest")
    assert "paused" in run(shop, "handlers", "pause", "send", "--reason", "a test").lower()

    said = {" ".join(command): run(shop, *command) for command in COMMANDS}

    bare = {command: BARE.findall(" ".join(text.split())) for command, text in said.items()}
    assert {command: found for command, found in bare.items() if found} == {}
    hint = f"to go on: flask --app {shop} billhook handlers resume send"
    assert hint in " ".join(said["deliveries list"].split())
    search = f"`flask --app {shop} billhook deliveries list --search inv_42`"
    assert search in run(shop, "deliveries", "show", "inv_42")  # an error of an argument, click's own


def test_the_dashboards_hints_do_too_by_the_name_of_the_app(shop):
    run(shop, "send", "PingTest")
    client = sys.modules["shop_of_hints"].app.test_client()

    texts = [client.get(f"/billhook/{page}").text for page in ("", "health", "deliveries")]

    assert any("flask --app shop_of_hints billhook" in text for text in texts)
    assert [
        re.findall(r"(?<!shop_of_hints )billhook (?:worker|db|doctor|deliveries)\b", text) for text in texts
    ] == [[]] * 3


def test_the_standalone_program_is_billhook(tmp_path, monkeypatch):
    monkeypatch.setenv("BILLHOOK_INBOX_URL", f"sqlite:///{tmp_path}/none.db")

    result = CliRunner().invoke(main, ["deliveries", "list"])

    assert program() == "billhook"
    assert in_program("run `billhook db upgrade`") == "run `billhook db upgrade`"
    assert "flask --app … billhook deliveries" in result.output  # what else it may have been
