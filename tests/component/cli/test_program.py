"""Hints name the program that was called: what they say can be typed as it stands."""

from __future__ import annotations

import gc
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from weakref import WeakKeyDictionary

import click
import pytest
from celery.bin.celery import celery
from click.testing import CliRunner
from flask import Flask
from flask.cli import ScriptInfo
from flask.cli import cli as flask_cli

from billhook.cli import main
from billhook.errors import ConfigError, MissingExtra, SchemaMismatch
from billhook.errors.program import add_app, in_program, install_command, program, remove_app
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
def shop(tmp_path, monkeypatch, no_options):
    """The name by which `flask --app` finds an app with a paused handler and a dead run."""
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


WRAPPER = "sudo shop-billhook"


def test_every_hint_begins_as_the_option_says(shop, monkeypatch):
    monkeypatch.setenv("BILLHOOK_COMMAND", WRAPPER)
    run(shop, "send", "PingTest")
    run(shop, "handlers", "pause", "send")

    said = {" ".join(command): " ".join(run(shop, *command).split()) for command in COMMANDS}
    app = sys.modules["shop_of_hints"].app
    page = app.test_client().get("/billhook/").get_data(as_text=True)

    other = re.compile(rf"(?<!sudo shop-)\bbillhook {BARE.pattern.rpartition('billhook ')[2]}|flask --app")
    assert {command: found for command, text in said.items() if (found := other.findall(text))} == {}
    assert f"to go on: {WRAPPER} handlers resume send" in said["deliveries list"]
    assert f"<code>{WRAPPER} " in page
    assert not other.search(page)


@pytest.mark.usefixtures("no_app", "no_options")
def test_the_option_of_an_app_goes_before_the_environment_and_what_was_typed(app_with, monkeypatch):
    app_with(handlers=[], BILLHOOK_COMMAND=WRAPPER)
    monkeypatch.setenv("BILLHOOK_COMMAND", "shop")
    with main.make_context("billhook", ["status"]):
        assert program() == WRAPPER
        text = str(ConfigError(f"{SchemaMismatch('0001', '0002')}, or see `billhook options`"))
        assert text.endswith(f": run `{WRAPPER} db upgrade`, or see `{WRAPPER} options`")
        assert in_program(text) == text
    app_with(handlers=[])  # by the environment
    assert program() == "shop"


WRONG = ["bill\x1b[31mhook", "two\nlines", "shop\u202e", "x" * 201, " shop", "whsec_abc", "-----BEGIN KEY"]


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.usefixtures("no_app")
def test_a_command_that_cannot_be_shown_is_refused_and_never_shown(app_with, monkeypatch, value):
    monkeypatch.setenv("BILLHOOK_COMMAND", value)

    with pytest.raises(ConfigError, match=r"BILLHOOK_COMMAND is .*at most 200 printable") as raised:
        app_with(handlers=[])

    assert program() == "billhook"
    assert value == " shop" or value not in str(raised.value)


@pytest.mark.parametrize("options", [{}, {"BILLHOOK_RELEASE": "1"}], ids=["none", "one"])
@pytest.mark.parametrize(
    "command",
    [
        ["check"],
        ["send", "PingTest"],
        ["status"],
        ["notify", "test"],
        ["api", "login"],
        ["subscribe", "--callback-url", "https://shop.example"],
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("no_options")
def test_an_error_for_want_of_an_option_says_when_there_is_none_at_all(
    command, options, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name, value in options.items():
        monkeypatch.setenv(name, value)

    result = CliRunner().invoke(main, command)

    assert result.exit_code in (1, 2)
    expected = "; no BILLHOOK_ variable is set in this environment: the service's environment has them"
    assert (expected in " ".join(result.output.split())) == (not options)


@pytest.fixture
def no_app(monkeypatch):
    """As in a process whose apps are those of the test alone."""
    monkeypatch.setattr("billhook.errors.program._programs", WeakKeyDictionary())


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["shop"], "flask --app shop billhook"),
        (["shop", "shop"], "flask --app shop billhook"),  # a factory, called twice
        (["shop", "store"], "flask --app … billhook"),
        (["__main__"], "flask --app … billhook"),
        ([], "billhook"),
    ],
)
@pytest.mark.usefixtures("no_app")
def test_an_error_names_the_command_of_its_process_in_every_thread(names, expected):
    apps = [Flask(name, root_path="/") for name in names]
    for app in apps:
        add_app(app, standalone=False)
    error = SchemaMismatch("0001", "0002")

    with ThreadPoolExecutor(1) as pool:
        texts = [str(error), pool.submit(str, error).result(), str(ConfigError(f"no start: {error}"))]

    assert all(text.endswith(f": run `{expected} db upgrade`") for text in texts)
    for app in apps:
        remove_app(app)
    assert str(error).endswith(": run `billhook db upgrade`")


@pytest.mark.usefixtures("no_app")
def test_beside_the_standalone_app_and_under_its_commands_it_is_billhook():
    apps = Flask("shop", root_path="/"), Flask("billhook", root_path="/")
    add_app(apps[0], standalone=False)
    with main.make_context("billhook", ["status"]):
        assert program() == "billhook"
    with celery.make_context("celery", ["worker"]):  # a command of something else
        assert program() == "flask --app shop billhook"
    add_app(apps[1], standalone=True)

    assert program() == "billhook"


@pytest.mark.usefixtures("no_app")
def test_an_app_is_forgotten_when_it_is_closed_or_gone(app_with):
    app = app_with(handlers=[])
    assert program() == f"flask --app {app.import_name} billhook"
    app.extensions["billhook"].close()
    assert program() == "billhook"
    gone = Flask("shop", root_path="/")
    add_app(gone, standalone=False)
    assert program() == "flask --app shop billhook"

    del gone
    gc.collect()

    assert program() == "billhook"


@pytest.mark.parametrize("path", [None, "shop", "my shop.py:create_app()"])
@pytest.mark.usefixtures("no_app")
def test_a_text_around_one_that_was_converted_is_converted_as_well(path):
    context = click.Context(flask_cli, obj=ScriptInfo(app_import_path=path))
    with context:
        text = str(ConfigError(f"{SchemaMismatch('0001', '0002')}, or see `billhook options`"))

        name = program()
        assert text.endswith(f": run `{name} db upgrade`, or see `{name} options`")
        assert in_program(text) == text


def test_the_standalone_program_is_billhook(tmp_path, monkeypatch):
    monkeypatch.setenv("BILLHOOK_INBOX_URL", f"sqlite:///{tmp_path}/none.db")

    result = CliRunner().invoke(main, ["deliveries", "list"])

    assert program() == "billhook"
    assert in_program("run `billhook db upgrade`") == "run `billhook db upgrade`"
    assert "flask --app … billhook deliveries" in result.output  # what else it may have been


FORGE = "https://git.example.com/tools/billhook"


@pytest.mark.parametrize(
    ("noted", "command"),
    [
        (None, "pip install 'billhook[client]'"),
        ({"url": "file:///srv/bill%20hook", "dir_info": {}}, "pip install '/srv/bill hook[client]'"),
        (
            {"url": "file:///srv/billhook", "dir_info": {"editable": True}},
            "pip install --editable '/srv/billhook[client]'",
        ),
        (
            {"url": FORGE, "vcs_info": {"vcs": "git", "commit_id": "0f1e", "requested_revision": "v1"}},
            f"pip install 'billhook[client] @ git+{FORGE}@v1'",
        ),
        (
            {"url": "ssh://git@git.example.com/billhook", "vcs_info": {"vcs": "git", "commit_id": "0f1e"}},
            "pip install 'billhook[client] @ git+ssh://git@git.example.com/billhook@0f1e'",
        ),
        (
            {"url": "https://me:secret@files.example.com/billhook.whl", "archive_info": {}},
            "pip install 'billhook[client] @ https://files.example.com/billhook.whl'",
        ),
    ],
    ids=["index", "folder", "editable", "git", "git by ssh", "file"],
)
def test_a_missing_extra_is_installed_from_where_billhook_was(tmp_path, monkeypatch, noted, command):
    metadata = tmp_path / "billhook-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.4\nName: billhook\nVersion: 0.1.0\n")
    if noted is not None:
        (metadata / "direct_url.json").write_text(json.dumps(noted))
    monkeypatch.syspath_prepend(tmp_path)

    assert install_command("client") == command
    assert str(MissingExtra("billhook.client", "client")).endswith(f": {command}")
