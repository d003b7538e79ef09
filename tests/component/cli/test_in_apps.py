"""The commands inside a user's app: by its own command line, in its tests, and without a server."""

from __future__ import annotations

import json
import sys

import pytest
from click.testing import CliRunner
from flask.cli import FlaskGroup

from billhook import Billhook, Handlers, Source
from billhook.cli import main
from billhook.errors import ConfigError
from billhook.events import InvoiceApproved, PingTest
from billhook.signing import TimestampedRSA
from support.apps import bare_app, deliver
from support.inbox_view import change
from support.processes import until
from support.signing import OTHER_SECRET, SECRET
from support.signing_cases import rsa_pems


@pytest.fixture
def app(app_with, monkeypatch, no_options):
    monkeypatch.delenv("COLUMNS", raising=False)  # with a width, tables would break hints
    handlers = Handlers()
    handlers.on(InvoiceApproved, name="book")(lambda event: None)
    eu = Source("eu", secrets=[OTHER_SECRET])
    return app_with(handlers=[handlers], sources=[eu], BILLHOOK_ENGINE="inline")


def run(app, *arguments: str):
    return app.test_cli_runner().invoke(args=["billhook", *arguments])


def deliveries(app) -> list[tuple[str, str]]:
    listed = run(app, "deliveries", "list", "--json")
    assert listed.exit_code == 0, listed.output
    return [(one["source"], one["standing"]) for one in json.loads(listed.stdout)]


def test_a_mistyped_command_is_named_where_another_lacks_its_extra(app, monkeypatch):
    monkeypatch.setitem(sys.modules, "billhook.cli.api", None)  # importing it fails

    result = run(app, "statu")

    assert result.exit_code == 2
    assert "No such command 'statu'. Did you mean 'status'?" in result.stderr


@pytest.mark.parametrize(("typed", "meant"), [("replay", "deliveries replay"), ("pause", "handlers pause")])
def test_a_command_of_a_group_is_named_with_its_group(app, typed, meant):
    result = run(app, typed)

    assert result.exit_code == 2
    assert f"No such command '{typed}'. Did you mean '{meant}'?" in result.stderr


def test_send_without_a_url_posts_to_the_app_itself(app):
    result = run(app, "send", "InvoiceApproved")

    assert result.exit_code == 0, result.output
    assert result.stdout.startswith('200 {"status": "accepted"}')
    assert (
        "note: posting to the app itself, at /webhooks/billing; use --to URL to post to a server"
        in result.stderr
    )
    assert deliveries(app) == [("default", "done")]


def test_send_through_an_app_with_the_thread_engine_stores_and_runs_no_handler(app_with):
    calls, handlers = [], Handlers()
    handlers.on(PingTest, name="ping")(calls.append)
    made = app_with(handlers=[handlers], BILLHOOK_ENGINE="thread")

    result = run(made, "send", "PingTest", "--count", "3")

    assert result.exit_code == 0, result.output
    assert "note: stored, but not handled yet. No worker is running; start the app" in result.stderr
    assert not made.extensions["billhook"].engine.running
    assert calls == []
    assert [standing for _, standing in deliveries(made)] == ["received"] * 3

    deliver(made)  # a request to an app that serves, in a process that goes on
    until(lambda: len(calls) == 4)


def test_send_plays_a_source_of_the_app(app):
    assert run(app, "send", "InvoiceApproved", "--source", "eu").exit_code == 0
    assert deliveries(app) == [("eu", "done")]
    wrong = run(app, "send", "InvoiceApproved", "--source", "us")
    assert "the app has no source 'us': give --source one of default, eu" in wrong.stderr


def test_send_signs_for_the_source_of_the_urls_path(app):
    from billhook.receiver.blueprint import find_route

    at = "http://127.0.0.1:8001/webhooks/billing"

    assert [find_route(app, None, url).source.name for url in (at, f"{at}/eu", f"{at}/eu/", None)] == [
        "default", "eu", "eu", "default",
    ]  # fmt: skip


def test_the_only_source_needs_no_name_and_one_of_several_does(tmp_path):
    from billhook.receiver.blueprint import find_route

    def made(name: str, *sources: str):
        app = bare_app(tmp_path / name)
        del app.config["BILLHOOK_SECRETS"]
        hooks = Billhook(sources=[Source(each, secrets=[SECRET]) for each in sources])
        hooks.init_app(app)
        app.extensions["billhook"].close()
        return app

    assert find_route(made("a", "eu"), None).path == "/webhooks/billing/eu"
    with pytest.raises(ConfigError, match="the app has several sources: give --source one of eu, us"):
        find_route(made("b", "us", "eu"), None)


def test_a_source_with_a_public_key_needs_the_private_one(app_with):
    scheme = TimestampedRSA(key_id_header="X-Key")
    eu = Source("eu", scheme=scheme, secrets=[{"a": rsa_pems("case")[1]}])

    result = run(app_with(sources=[eu]), "send", "InvoiceApproved", "--source", "eu")

    assert result.exit_code == 2
    assert "only public keys: give the private key with --secret-file" in result.stderr


def test_send_reports_an_app_that_raises(app):
    app.config["TESTING"] = True
    app.before_request(lambda: 1 // 0)

    result = run(app, "send", "InvoiceApproved")

    assert result.exit_code == 1
    assert "no answer: the app raised ZeroDivisionError" in result.stdout


def test_send_reports_an_app_that_answers_in_place_of_billhook(app):
    answers = [("<title>Log in", 401), ("Not Found", 404), ("<html>", 500)]
    told = "the app answered, not billhook; run `shop billhook check` to see why"
    app.before_request(lambda: answers[0])

    while answers:
        assert run(app, "send", "InvoiceApproved").stdout.startswith(f"{answers[0][1]} {told} (")
        del answers[0]

    app.before_request_funcs.clear()
    assert deliveries(app) == []


def test_flask_lists_the_group_once(app, tmp_path):
    listed = FlaskGroup(create_app=lambda: app)
    context = listed.make_context("flask", ["--help-not"], resilient_parsing=True)

    assert listed.list_commands(context).count("billhook") == 1


def test_standalone_send_refuses_a_source_of_a_flask_app(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BILLHOOK_SECRETS", SECRET)

    result = CliRunner().invoke(main, ["send", "PingTest", "--source", "eu"])

    assert result.exit_code == 2
    assert "`flask --app … billhook send --source eu`" in result.stderr


def test_standalone_send_without_a_url_posts_to_serves_address(monkeypatch):
    from billhook.cli.send import open_target

    monkeypatch.setattr("billhook.cli.send.user_app", lambda: None)
    monkeypatch.setattr("billhook.cli.send.load_settings", lambda: type("S", (), {"url_prefix": "hooks/"}))

    with open_target(None, None, 1.0) as (place, _):
        assert place == "http://127.0.0.1:8000/hooks"


def test_a_worker_of_an_app_whose_inbox_has_another_schema_does_not_start(app_with, tmp_path):
    handlers = Handlers()
    handlers.on(PingTest, name="ping")(lambda event: None)
    app_with()
    change(tmp_path / "billhook.db", "UPDATE billhook_version SET version_num = '9999'")
    app = app_with(handlers=[handlers])

    result = run(app, "worker")

    assert result.exit_code == 2
    assert "the inbox has schema 9999" in result.stderr
