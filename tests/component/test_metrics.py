"""Metrics: what a scrape gives, from one inbox for all processes; who may read them."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest
from click.testing import CliRunner
from flask import abort
from prometheus_client import generate_latest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from billhook.cli import main
from billhook.clock import FrozenClock
from billhook.errors import ConfigError
from billhook.inbox import Inbox, WorkerRecord
from billhook.metrics import InboxCollector, _registry, metrics_blueprint, metrics_text
from billhook.standalone import create_app
from support.apps import deliver
from support.inbox_view import NOON, incoming, open_inbox
from support.signing import SECRET
from support.templates import new_inbox

TOKEN = "a-token-of-many-characters"


@pytest.fixture
def inbox_url(tmp_path) -> str:
    """On SQLite alone: what is read is tested with the inbox, on both databases."""
    return new_inbox(f"sqlite:///{tmp_path / 'billhook.db'}")


def samples(text):
    """The values of a scrape by name and labels."""
    return {
        (one.name, *sorted(one.labels.items())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def scrape(inbox, at=NOON):
    registry = _registry(lambda: inbox)
    for collector in list(registry._collector_to_names):
        collector._clock = FrozenClock(at)
    return samples(generate_latest(registry).decode())


def test_labels_are_bounded_whatever_types_a_sender_invents(app_with):
    app = app_with(BILLHOOK_ENGINE="inline")
    for number in range(40):
        deliver(app, b"{}", f"Invented{number}", message_id=f"m{number}")

    with app.app_context():
        text = metrics_text(app.extensions["billhook"].inbox)

    assert "Invented" not in text
    labels = (("result", "accepted"), ("source", "default"), ("type", "*"))
    assert samples(text)["billhook_deliveries_total", *labels] == 40


def test_an_inbox_that_cannot_be_read_is_a_scrape_that_says_so(tmp_path):
    path, aside = tmp_path / "inbox.db", tmp_path / "aside"
    file = open_inbox(path)
    server = Inbox("postgresql+psycopg://postgres@127.0.0.1:1/none")

    path.rename(aside)
    found = [scrape(file), scrape(server)]
    aside.rename(path)

    assert found == [{("billhook_inbox_up",): 0}] * 2
    assert scrape(file)[("billhook_inbox_up",)] == 1
    file.close()


# --- over HTTP ----------------------------------------------------------------------------------------


@pytest.fixture
def client(app_with):
    app = app_with(BILLHOOK_ENGINE="inline")
    app.register_blueprint(metrics_blueprint(token=TOKEN))
    deliver(app)
    return app.test_client()


def test_metrics_are_given_as_openmetrics_to_those_who_ask_for_it_and_else_in_the_plain_format(client):
    def asked(accept):
        return client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}", "Accept": accept}).text

    kind = "application/openmetrics-text"
    families = {
        one.name for one in openmetrics.text_string_to_metric_families(asked(f"{kind}; version=1.0.0"))
    }
    assert {"billhook_deliveries", "billhook_attempt_duration_seconds"} <= families
    for unreadable in (f"{kind}; version=a", f"{kind}; version=", "\xff", ""):
        assert samples(asked(unreadable))[("billhook_inbox_up",)] == 1


def test_what_a_hook_refuses_of_the_metrics_is_the_apps(app_with, caplog):
    app = app_with(BILLHOOK_ENGINE="inline")
    app.register_blueprint(metrics_blueprint(token=TOKEN))
    app.before_request(lambda: abort(429))

    assert app.test_client().get("/metrics").status_code == 429
    assert caplog.records == []


def test_a_mistake_of_the_metrics_is_503_and_in_the_log(client, monkeypatch, caplog):
    monkeypatch.setattr("billhook.pages.pages.RAISE_AGAIN", False)
    monkeypatch.setattr("billhook.metrics._registry", lambda *_: 1 / 0)

    answers = [client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}) for _ in range(3)]

    assert [answer.status_code for answer in answers] == [503] * 3
    assert [record.exc_info[0] for record in caplog.records] == [ZeroDivisionError]


def test_metrics_are_refused_without_the_token(client):
    wrong = ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer \xff"]

    answers = [client.get("/metrics")]
    answers += [client.get("/metrics", headers={"Authorization": sent}) for sent in wrong]

    assert [answer.status_code for answer in answers] == [401] * 7
    assert "billhook_" not in "".join(answer.text for answer in answers)


def test_metrics_without_a_token_have_to_be_asked_for(app_with):
    app = app_with()
    app.register_blueprint(metrics_blueprint(token=None))

    assert app.test_client().get("/metrics").status_code == 200


def test_a_short_token_is_refused():
    with pytest.raises(ConfigError, match="fewer than 16 characters") as caught:
        metrics_blueprint(token="short")

    assert "short" not in str(caught.value)


@pytest.mark.parametrize("token", [None, TOKEN])
def test_the_standalone_receiver_has_metrics_with_a_token_file_only(tmp_path, monkeypatch, token):
    monkeypatch.chdir(tmp_path)
    environ = {"BILLHOOK_SECRETS": SECRET, "BILLHOOK_ENGINE": "worker"}
    if token is not None:
        file = tmp_path / "token"
        file.touch(mode=0o600)
        file.write_text(token + "\n")
        environ["BILLHOOK_METRICS_TOKEN_FILE"] = str(file)
    app = create_app(environ)

    statuses = [
        app.test_client().get("/metrics", headers=headers).status_code
        for headers in ({}, {"Authorization": f"Bearer {TOKEN}"})
    ]

    assert statuses == ([404, 404] if token is None else [401, 200])
    app.extensions["billhook"].close()


def test_a_token_file_that_is_missing_is_a_clear_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    environ = {"BILLHOOK_SECRETS": SECRET, "BILLHOOK_METRICS_TOKEN_FILE": str(tmp_path / "none")}

    with pytest.raises(ConfigError, match=r"TOKEN_FILE .* cannot be read: No such file"):
        create_app(environ)


# --- by command ---------------------------------------------------------------------------------------


def test_the_command_writes_through_no_link_and_into_no_file_that_another_user_planted(
    inbox, inbox_url, tmp_path, monkeypatch
):
    monkeypatch.setenv("BILLHOOK_INBOX_URL", inbox_url)
    victim, folder = tmp_path / "victim", tmp_path / "shared"
    folder.mkdir()
    victim.write_text("mine")
    file, hidden = folder / "billhook.prom", folder / ".billhook.prom.guessed"
    file.symlink_to(victim)
    (folder / f".billhook.prom.{os.getpid()}").symlink_to(victim)
    monkeypatch.setattr("billhook.basics.file_modes.secrets.token_hex", lambda _: "guessed")

    written = CliRunner().invoke(main, ["metrics", "--output", str(file)])
    assert (written.exit_code, file.is_symlink()) == (0, False)
    for plant in (lambda: hidden.symlink_to(victim), lambda: hidden.touch(0o666)):
        plant()
        refused = CliRunner().invoke(main, ["metrics", "--output", str(file)])
        hidden.unlink()
        assert f"cannot write {file} (File exists)" in " ".join(refused.output.split())

    assert victim.read_text() == "mine"


def test_the_command_prints_them_or_replaces_a_file(inbox, inbox_url, tmp_path, monkeypatch):
    monkeypatch.setenv("BILLHOOK_INBOX_URL", inbox_url)
    inbox.put(incoming("a"))
    file = tmp_path / "billhook.prom"
    file.write_text("old")

    printed = CliRunner().invoke(main, ["metrics"])
    result = CliRunner().invoke(main, ["metrics", "--output", str(file)])
    refused = CliRunner().invoke(main, ["metrics", "--output", str(tmp_path / "none" / "x.prom")])

    labels = (("result", "accepted"), ("source", "default"), ("type", "PingTest"))
    assert samples(printed.stdout)["billhook_deliveries_total", *labels] == 1
    assert (result.exit_code, result.output) == (0, "")
    assert samples(file.read_text())[("billhook_inbox_up",)] == 1
    assert [one.name for one in tmp_path.glob("*.prom*")] == ["billhook.prom"]
    assert refused.exit_code == 1
    assert "choose a file" in refused.output


def test_registering_the_collector_does_not_read_the_inbox():
    """An app registers it at import, before there is an inbox."""
    registry = _registry(lambda: pytest.fail("the inbox was read"))

    assert [type(one) for one in registry._collector_to_names] == [InboxCollector]


def test_an_engine_whose_last_worker_is_gone_is_shown_with_0(inbox):
    for name, engine, ago in (("gone", "thread", 5), ("here", "worker", 0)):
        inbox.record_worker(WorkerRecord(name, engine, 1, NOON), NOON - timedelta(minutes=ago))

    found = scrape(inbox)

    assert [found["billhook_workers", ("engine", engine)] for engine in ("thread", "worker")] == [0, 1]
