"""`billhook check`: a probe goes through the app, who answered is told, and nothing is stored."""

from __future__ import annotations

import errno
import http.client
import json
import os
import socket
import threading
from datetime import UTC, datetime

import pytest
from flask import Flask, Response, abort, redirect, request
from flask_wtf.csrf import CSRFProtect
from werkzeug.exceptions import NotFound
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.middleware.proxy_fix import ProxyFix

from billhook import Billhook, Handlers, Source
from billhook.errors import ConfigError
from billhook.events import PingTest
from billhook.inbox import WorkerRecord
from billhook.receiver.wsgi import PROBE
from billhook.signing import TimestampedRSA
from support.apps import deliver, inbox_file
from support.inbox_view import rows
from support.signing import PATH, SECRET, signed
from support.signing_cases import rsa_pems
from support.timeouts import scaled


def a_group():
    handlers = Handlers()
    handlers.on(PingTest, name="ping")(lambda event: None)
    return handlers


@pytest.fixture
def shop(app_with, run):
    """Makes apps with a handler; `run` leaves no option in the environment."""

    return lambda **config: app_with(**{"handlers": [a_group()], **config})


def checked(app, *arguments: str) -> tuple[int, dict[str, str]]:
    result = app.test_cli_runner().invoke(args=["billhook", "check", "--json", *arguments])
    facts = json.loads(result.stdout)
    assert facts["ok"] is (result.exit_code == 0)
    return result.exit_code, {one["what"]: one["told"] for one in facts["checks"]}


def refusal(app) -> str:
    """What is told of the probe, of an app that does not pass the check."""
    code, found = checked(app)
    assert code == 1
    return found[f"POST {PATH}"]


def stored(app) -> list[tuple]:
    return rows(inbox_file(app), "SELECT * FROM delivery")


def test_check_of_a_working_app_succeeds_and_stores_nothing(shop):
    app = shop(sources=[Source("eu", secrets=[SECRET]), Source("us", secrets=[SECRET], type_field="type")])

    code, told = checked(app)

    assert code == 0
    assert told[f"POST {PATH}"] == "verified and answered by billhook (source default)"
    assert told[f"POST {PATH}/eu"] == "verified and answered by billhook (source eu)"
    assert told[f"POST {PATH}/us"] == "verified and answered by billhook (source us)"
    assert "`shop billhook worker`; make sure that one is running" in told["engine"]
    assert stored(app) == []
    assert deliver(app).status_code == 200
    assert len(stored(app)) == 1  # as any other would have been


def test_check_starts_no_handling_of_stored_deliveries(shop):
    app = shop(BILLHOOK_ENGINE="thread")
    engine = app.extensions["billhook"].engine

    code, _ = checked(app)
    after_the_probe = engine.running
    app.test_client().get("/")
    after_a_request = engine.running

    assert code == 0
    assert (after_the_probe, after_a_request) == (False, True)


EXCLUDE = 'exclude requests with request.blueprint == "billhook" from'
AFTER = f"{EXCLUDE} after_request and teardown hooks and from middleware"
APP = "came from the app, not from billhook"
HOOK = "a before_request hook (test_check.<lambda>)"
CHANGED = "billhook answered 200, but a hook or middleware of the app changed it"


def before(hook):
    hook.__module__ = "test_check"
    return lambda app: app.before_request(hook)


def to_https():
    return None if request.is_secure else redirect(request.url.replace("http", "https", 1))


def read_two_bytes(app):
    inner = app.wsgi_app
    app.wsgi_app = lambda environ, start: [environ["wsgi.input"].read(2), inner(environ, start)][1]


def break_off(response):
    request.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    return response


BROKEN = [
    (before(lambda: abort(401)), f"401 {APP}: {HOOK} or an error handler: {EXCLUDE} it"),
    (
        before(lambda: redirect("/login")),
        f"302 {APP}: a redirect, for example to a login page, by {HOOK} or middleware: {EXCLUDE} it",
    ),
    (before(lambda: ("no", 429)), f"429 {APP}: a rate limit, by {HOOK} or middleware: {EXCLUDE} it"),
    (
        before(to_https),
        "it came over plain HTTP with X-Forwarded-Proto: https, and over https it is received",
    ),
    (before(lambda: request.environ.pop("HTTP_WEBHOOK_SIGNATURE") and None), "billhook answered 401"),
    (lambda app: app.before_request(CSRFProtect(app).protect), f"400 {APP}: a before_request hook ("),
    (
        read_two_bytes,
        "billhook answered 400: code of the app read the body before billhook and put nothing in its place",
    ),
    (lambda app: app.after_request(lambda _: Response(status=204)), f"{CHANGED} to 204: {AFTER}"),
    (lambda app: app.after_request(lambda _: Response("{}")), f"{CHANGED} by another with the same status: "),
    (lambda app: app.after_request(break_off), "its sender got no answer (RemoteDisconnected"),
]


@pytest.mark.parametrize(("change", "told"), BROKEN)
def test_check_reports_what_the_app_does_to_a_delivery_and_the_remedy(shop, change, told):
    # An engine that starts with the first request has a hook of its own, which is not named.
    options = {"BILLHOOK_ENGINE": "thread", "BILLHOOK_DEADLINE_SECONDS": 0.5}
    app = shop(SECRET_KEY="x", WTF_CSRF_CHECK_DEFAULT=False, **options)
    change(app)

    assert told in refusal(app)


def test_check_of_an_app_that_redirects_to_https_needs_proxy_fix(shop):
    app = shop()
    app.before_request(to_https)
    app.wsgi_app = ProxyFix(app.wsgi_app)

    assert checked(app)[0] == 0


# --- what a test client would not show --------------------------------------------------------------


class Impatient:
    """Middleware that reads the body through the server's own stream, when the app has answered."""

    def __init__(self, app):
        self.app = app

    def __call__(self, environ, start):
        stream = environ["wsgi.input"]
        yield from [b"".join(self.app(environ, start)), b"".join(iter(lambda: stream.read(2), b""))]


def test_check_reports_an_answer_that_the_sender_does_not_get(shop, monkeypatch):
    monkeypatch.setattr("billhook.doctor.probe._SECONDS", 0.5)
    app = shop()
    app.wsgi_app = Impatient(app.wsgi_app)

    assert refusal(app) == (
        "billhook answered 200, but its sender got no answer (no answer in time): code of the app that runs "
        f"after billhook does not end, or reads more of the body than there is: {AFTER}"
    )
    assert app.test_client().post(PATH, data=b"{}", headers=signed()).status_code == 200  # sees nothing of it


def test_check_reports_code_before_the_receiver_that_does_not_end(shop, monkeypatch):
    monkeypatch.setattr("billhook.doctor.probe._SECONDS", 0.5)
    app, given_up = shop(), threading.Event()
    app.before_request(lambda: given_up.wait(scaled(20)) and None)

    code, found = checked(app)
    given_up.set()

    assert code == 1
    assert found[f"POST {PATH}"] == (
        "no answer (no answer in time), and billhook was not reached: code of the app that runs before it "
        f"does not end: {EXCLUDE} before_request hooks and from middleware"
    )


def test_hooks_of_the_app_may_read_the_probes_body(shop):
    app, seen = shop(), []
    app.before_request(lambda: seen.append(request.get_data()))
    app.after_request(lambda response: [response, seen.append(request.stream.read())][0])

    assert checked(app)[0] == 0
    assert seen == [b"{}"] * 4  # over https, and over http


def test_a_stranger_who_finds_the_port_of_a_check_reaches_nothing_of_the_app(shop):
    """The control is the checker's own request, in which the stranger's are made."""
    app, ports, answers = shop(), [], []
    inner = app.wsgi_app

    def noting(environ, start):
        ports.append(environ["werkzeug.socket"].getsockname()[1])
        tokens = ["", "0" * 43, "\u00e9", environ.get("HTTP_X_BILLHOOK_PROBE", "none")]
        for forged in [{}, *({"X-Billhook-Probe": token.encode("latin-1")} for token in tokens)]:
            stranger = http.client.HTTPConnection("127.0.0.1", ports[-1], timeout=scaled(5))
            headers = {**signed(), **forged, PROBE: "1", "Host": "localhost"}
            stranger.request("POST", PATH, b"{}", headers)
            answer = stranger.getresponse()
            answers.append((answer.status, answer.read()))
            stranger.close()
        return inner(environ, start)

    app.wsgi_app = noting

    code, _ = checked(app)

    assert code == 0
    assert answers == [(403, b"")] * 10
    assert len(ports) == 2  # the checker's own requests, over https and over http
    assert stored(app) == []
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


def test_check_reports_an_app_that_raises_and_prints_nothing_of_the_server_that_it_runs(shop, caplog):
    app = shop(TESTING=True)
    app.before_request(lambda: 1 // 0)

    result = app.test_cli_runner().invoke(args=["billhook", "check", "--json"])

    told = [one["told"] for one in json.loads(result.stdout)["checks"] if one["what"] == f"POST {PATH}"]
    assert "the app raised ZeroDivisionError" in told[0]
    assert (result.stderr, caplog.text) == ("", "")


def test_check_where_no_port_can_be_opened_says_so(shop, monkeypatch):
    app = shop()

    def forbidden(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(socket, "create_server", forbidden)
    assert refusal(app) == (
        "no probe was sent over a port of 127.0.0.1: Permission denied; send a delivery to the "
        "app where it runs, with `shop billhook send --to URL`"
    )


# --- where the app is mounted -------------------------------------------------------------------------


def mounted_within(app):
    """Mount an app by a dispatcher which is a part of it."""
    app.wsgi_app = DispatcherMiddleware(NotFound(), {"/shop": app.wsgi_app})


@pytest.mark.parametrize("mount", [lambda app: None, mounted_within])
def test_check_reaches_an_app_with_a_root_that_a_dispatcher_strips(shop, mount):
    app, roots = shop(APPLICATION_ROOT="/shop"), []
    app.before_request(lambda: roots.append((request.script_root, request.path)))
    mount(app)

    assert checked(app)[0] == 0
    assert roots == [("/shop", PATH)] * 2


@pytest.mark.parametrize(
    ("config", "host"),
    [
        ({}, "localhost"),
        ({"SERVER_NAME": "shop.example:8443"}, "shop.example:8443"),
        ({"TRUSTED_HOSTS": [".shop.example", "localhost"]}, "shop.example"),
        ({"TRUSTED_HOSTS": ["shop.example"], "SERVER_NAME": "shop.example"}, "shop.example"),
    ],
)
def test_check_names_a_host_that_the_app_answers_for(shop, config, host):
    app, hosts = shop(**config), []
    app.before_request(lambda: hosts.append(request.host))

    assert checked(app)[0] == 0
    assert hosts == [host] * 2


def test_check_reaches_a_receiver_of_a_subdomain(tmp_path, run):
    app, hosts = Flask("shop", instance_path=str(tmp_path), subdomain_matching=True), []
    app.config.update(BILLHOOK_SECRETS=[SECRET], BILLHOOK_ENGINE="worker", SERVER_NAME="shop.example")
    app.register_blueprint(Billhook(handlers=[a_group()]).blueprint(PATH), subdomain="hooks")
    app.before_request(lambda: hosts.append(request.host))

    code, found = checked(app)

    assert (code, hosts) == (0, ["hooks.shop.example"] * 2), found


def test_check_reaches_a_receiver_of_one_host(tmp_path, run):
    app, hosts = host_matching_app(tmp_path), []
    Billhook(handlers=[a_group()]).init_app(app, host="shop.example")
    view = app.view_functions["billhook.default"]
    app.add_url_rule("/in", host="in.example", view_func=view, endpoint="in", methods=["POST"])
    app.before_request(lambda: hosts.append(request.host))

    _, found = checked(app, "--path", "/in")

    assert found["POST /in"] == "verified and answered by billhook (source default)"
    assert hosts == ["in.example"] * 2


@pytest.mark.parametrize("root", ["/", "/shop"])
def test_check_takes_a_path_below_the_root_of_the_app(shop, root):
    app = shop(APPLICATION_ROOT=root)

    assert [checked(app, "--path", path)[0] for path in (f"{PATH}/", "/webhooks/bill")] == [0, 1]


@pytest.mark.parametrize("as_ids", [False, True])
def test_check_of_a_source_with_only_public_keys_accepts_401(shop, as_ids):
    public = rsa_pems("case")[1]
    scheme = TimestampedRSA(key_id_header="X-Key") if as_ids else TimestampedRSA()
    app = shop(sources=[Source("eu", scheme=scheme, secrets=[{"a": public} if as_ids else public])])

    code, found = checked(app)

    assert code == 0
    assert "the source has only public keys" in found[f"POST {PATH}/eu"]


def test_check_reports_an_inbox_that_cannot_be_written(shop):
    app = shop()
    inbox_file(app).unlink()
    inbox_file(app).mkdir()

    code, found = checked(app)

    assert code == 1
    assert "is writable" not in found["inbox"]


@pytest.mark.parametrize("key", ["BILLHOOK_API_REFRESH_TOKEN_FILE", "BILLHOOK_METRICS_TOKEN_FILE"])
def test_check_reports_a_file_of_a_token_that_is_empty(shop, tmp_path, key):
    path = tmp_path / "token"
    path.touch(0o600)

    code, found = checked(shop(**{key: str(path)}))
    path.write_text("a-token-of-many-characters")

    assert code == 1
    assert found["tokens"].startswith(f"{key} {str(path)!r}: the token in it must be")
    assert checked(shop(**{key: str(path)}))[0] == 0


def test_a_probe_cannot_be_sent_from_outside(shop):
    app = shop()
    forged = {PROBE: "1", "Billhook-Probe": "1", "billhook.probe": "1"}

    answer = app.test_client().post(
        PATH, data=b"{}", headers={**signed(), **forged}, environ_overrides={PROBE: "an object is needed"}
    )

    assert answer.json == {"status": "accepted"}
    assert len(stored(app)) == 1


HANDLED = """
from billhook import Handlers

handlers = Handlers()
handlers.on_any(name="note")(lambda event: None)
"""


def test_check_and_doctor_take_handlers_as_the_worker_does(run, tmp_path):
    (tmp_path / "few.py").write_text(HANDLED)
    (tmp_path / "none.py").write_text("from billhook import Handlers\n\nhandlers = Handlers()\n")

    without = json.loads(run("check", "--json", SECRETS=SECRET).stdout)
    named = json.loads(run("check", "few.py", "--json", SECRETS=SECRET).stdout)
    examined = json.loads(run("doctor", "few.py", "--json", SECRETS=SECRET).stdout)["findings"]
    unnamed = json.loads(run("doctor", "--json", SECRETS=SECRET).stdout)["findings"]

    (missing,) = [one for one in without["checks"] if one["what"] == "handlers"]
    assert not missing["ok"]
    assert "name your modules or files as arguments, or in BILLHOOK_HANDLERS" in missing["told"]
    assert [one["told"] for one in named["checks"] if one["what"] == "handlers"] == ["1 registered here"]
    assert "no-handlers" not in [one["code"] for one in examined]
    empty = json.loads(run("doctor", "none.py", "--json", SECRETS=SECRET).stdout)["findings"]
    assert "no handler was examined: no file was named" in [one["what"] for one in unnamed]
    assert "no handler is registered in none.py" in [one["what"] for one in empty]


def test_an_app_has_its_own_handlers(shop):
    app = shop()
    for command in ("check", "doctor", "handlers", "worker"):
        result = app.test_cli_runner().invoke(args=["billhook", command, "few.py"])
        assert result.exit_code == 2
        assert "HANDLERS is for `billhook` only: the Flask app has its own handlers" in result.stderr


def test_check_of_a_standalone_file_names_the_engine_that_serve_runs(run, tmp_path):
    (tmp_path / "few.py").write_text(HANDLED)

    checks = json.loads(run("check", "few.py", "--json", SECRETS=SECRET, ENGINE="thread").stdout)["checks"]

    engine = next(one["told"] for one in checks if one["what"] == "engine")
    assert engine.startswith("worker: `billhook serve`")


def test_check_names_options_that_were_set_after_billhook_had_read_them(shop):
    app = shop(sources=[Source("eu", secrets=[SECRET])])
    well, _ = checked(app)
    app.config.update(BILLHOOK_SECRETS=["whsec_" + "B" * 32], BILLHOOK_LEASE_SECONDS=60)

    code, found = checked(app)

    assert (well, code) == (0, 1)
    assert found["late options"] == (
        "BILLHOOK_SECRETS, BILLHOOK_LEASE_SECONDS changed after init_app, and not for billhook: it reads its "
        "options once, when it is mounted; set them before init_app(app)"
    )


def test_the_engine_of_an_app_is_that_of_its_options_whichever_process_was_seen_last(shop):
    app = shop(BILLHOOK_ENGINE="worker")
    now = datetime.now(UTC)
    app.extensions["billhook"].inbox.record_worker(WorkerRecord("web:1", "thread", 1, now), now)

    _, found = checked(app)

    assert found["engine"].startswith("worker: ")


def host_matching_app(tmp_path, **config):
    app = Flask("shop", instance_path=str(tmp_path), host_matching=True, static_host="shop.example")
    app.config.update(BILLHOOK_SECRETS=[SECRET], BILLHOOK_ENGINE="worker", **config)
    return app


@pytest.mark.parametrize("trusted", [None, ["shop.example", "hooks.example"]])
def test_check_and_send_reach_the_receivers_of_the_host_that_init_app_was_given(tmp_path, run, trusted):
    app, hosts = host_matching_app(tmp_path, TRUSTED_HOSTS=trusted), []
    hooks = Billhook(handlers=[a_group()], sources=[Source("eu", secrets=[SECRET])])
    hooks.init_app(app, host="hooks.example")
    app.before_request(lambda: hosts.append(request.host))

    code, found = checked(app)
    sent = app.test_cli_runner().invoke(args=["billhook", "send", "PingTest", "--source", "eu"])
    elsewhere = app.test_client().post(PATH, base_url="http://shop.example", data=b"{}", headers=signed())

    assert code == 0, found
    assert found[f"POST {PATH}/eu"] == "verified and answered by billhook (source eu)"
    assert '200 {"status": "accepted"}' in sent.output
    assert hosts == ["hooks.example"] * 5 + ["shop.example"]
    assert elsewhere.status_code == 404


def test_an_app_that_matches_hosts_needs_one_and_another_has_none(tmp_path, plain_app, run):
    with pytest.raises(ConfigError, match=r"each route belongs to a host: give .*, init_app\(app, host="):
        Billhook(host_matching_app(tmp_path))
    with pytest.raises(
        ConfigError, match=r"host is 'a.example', but this app tells no hosts apart: leave it out"
    ):
        Billhook().init_app(plain_app(), host="a.example")


def test_check_says_so_where_no_connection_to_the_probe_could_be_accepted(shop, monkeypatch):
    def accepts_none(listener, is_over, exhausted):
        exhausted(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
        yield from ()

    monkeypatch.setattr("billhook.doctor.probe.accept_connections", accepts_none)
    monkeypatch.setattr("billhook.doctor.probe._SECONDS", 0.5)

    assert refusal(shop()).startswith("no probe was sent over a port of 127.0.0.1: Too many open files; ")
