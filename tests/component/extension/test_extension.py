"""Billhook beside what an app has already: prefixes, several sources, hooks, error handlers, other apps."""

from __future__ import annotations

import atexit
import gc
import re
import sys
import time
import weakref
from datetime import datetime
from types import ModuleType

import pytest
from click.testing import CliRunner
from flask import Blueprint, Flask, jsonify, request
from flask.cli import FlaskGroup
from werkzeug.exceptions import HTTPException

from billhook import Billhook, Handlers, Source, signals
from billhook.clock import FrozenClock
from billhook.dashboard import Dashboard
from billhook.errors import ConfigError, DuplicateHandlerName, SchemaMismatch
from billhook.events import PingTest
from billhook.extension import get_state
from billhook.inbox.tables.revision import REVISION
from billhook.signing import TimestampedHMAC
from billhook.standalone import create_app
from support.apps import deliver, inbox_file, make_app
from support.inbox_view import change, rows
from support.processes import until
from support.signing import OTHER_SECRET, PATH, SECRET, signed

TEXT_SECRET = "a-shared-secret-of-32-characters"


def stored(app):
    return rows(inbox_file(app), "SELECT source, key, event_type, body FROM delivery ORDER BY id")


# --- where ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "/", "a", "/a/b/"])
def test_any_prefix_takes_deliveries_and_named_sources_are_below_it(app_with, prefix):
    app = app_with(prefix=prefix, sources=[Source("eu", secrets=[SECRET])])
    root = "/" + prefix.strip("/")

    replies = [
        deliver(app, path=path)
        for path in (root, root.rstrip("/") + "/", root.rstrip("/") + "/eu", root.rstrip("/") + "/eu/")
    ]

    assert [reply.status_code for reply in replies] == [200] * 4
    assert [row[0] for row in stored(app)] == ["default", "default", "eu", "eu"]


def test_an_app_has_health_routes_where_it_registers_them(plain_app, monkeypatch):
    monkeypatch.setattr("billhook.extension.extension.READY_SECONDS", 0)  # a good answer holds for a second
    app, hooks = plain_app(), Billhook()
    hooks.init_app(app)
    app.register_blueprint(hooks.health_blueprint(), url_prefix="/internal")
    client = app.test_client()
    assert [client.get(path).status_code for path in ("/healthz", "/readyz")] == [404, 404]

    found = [client.get(f"/internal/{name}").json["status"] for name in ("healthz", "readyz")]
    inbox_file(app).rename(inbox_file(app).with_name("aside"))

    assert found == ["up", "ready"]
    assert client.get("/internal/readyz").status_code == 503


def test_each_source_has_its_own_url_scheme_secrets_and_keys(app_with):
    eu = Source("eu", secrets=[OTHER_SECRET])
    old = Source("old", scheme=TimestampedHMAC(), secrets=[TEXT_SECRET])
    app = app_with(sources=[eu, old])
    client = app.test_client()
    same = signed(message_id="msg_1")
    other = signed(message_id="msg_1", secret=OTHER_SECRET)
    now = get_state(app).dispatcher.clock.now()
    hmac = TimestampedHMAC().sign(b"{}", TEXT_SECRET, event_type="PingTest", now=now)
    good = [("", same), ("/eu", other), ("/old", hmac)]
    wrong = [("/eu", same), ("", other), ("/old", same), ("/none", same)]

    statuses = [
        client.post(PATH + path, data=b"{}", headers={"X-Webhook-Type": "PingTest", **headers}).status_code
        for path, headers in good + wrong
    ]

    assert statuses == [200, 200, 200, 401, 401, 401, 404]
    assert [row[0] for row in stored(app)] == ["default", "eu", "old"]
    assert [row[1] for row in stored(app)][:2] == ["msg_1", "msg_1"]


def of_sources(seen, **options):
    """A group with a handler of every source, and one with these options."""
    handlers = Handlers()
    handlers.on(PingTest, name="all")(lambda event, delivery: seen.append(("all", delivery.source)))
    handlers.on(PingTest, name="some", **options)(
        lambda event, delivery: seen.append(("some", delivery.source))
    )
    return handlers


@pytest.mark.parametrize(
    ("options", "some"),
    [({}, ["default", "eu"]), ({"sources": ("eu",)}, ["eu"]), ({"sources": ["default"]}, ["default"])],
)
def test_a_handler_is_called_for_deliveries_of_its_sources(app_with, options, some):
    seen = []
    eu = Source("eu", secrets=[OTHER_SECRET])
    app = app_with(handlers=[of_sources(seen, **options)], sources=[eu])

    deliver(app)
    deliver(app, path=PATH + "/eu", secret=OTHER_SECRET)
    get_state(app).handle_due()

    assert sorted(seen) == [("all", "default"), ("all", "eu"), *(("some", source) for source in some)]


def test_a_source_that_is_not_there_is_refused_at_start(plain_app):
    hooks = Billhook(handlers=[of_sources([], sources=("us",))], sources=[Source("eu", secrets=[SECRET])])

    with pytest.raises(
        ConfigError, match="'some' names the source 'us', which is not here: there is default, eu"
    ):
        hooks.init_app(plain_app())


def test_the_sources_of_an_earlier_mount_are_there(plain_app):
    app = plain_app()
    Billhook(sources=[Source("eu", secrets=[OTHER_SECRET])]).init_app(app, url_prefix="/one")
    Billhook(handlers=[of_sources([], sources=("eu",))]).init_app(app, url_prefix="/two")


def test_a_text_in_place_of_sources_is_refused():
    with pytest.raises(ConfigError, match=r"sources is the text 'eu': give a tuple, sources=\('eu',\)"):
        Handlers().on(PingTest, sources="eu")


def test_several_billhooks_in_one_app_share_its_inbox(plain_app):
    app = plain_app()
    first, second, seen = Handlers(), Handlers(), []
    first.on(PingTest, name="first")(lambda event: seen.append("first"))
    second.on(PingTest, name="second")(lambda event: seen.append("second"))
    Billhook(handlers=[first]).init_app(app, url_prefix="/one")
    Billhook(handlers=[second], sources=[Source("eu", secrets=[OTHER_SECRET])]).init_app(
        app, url_prefix="/two"
    )

    statuses = [
        deliver(app, path="/one").status_code,
        deliver(app, path="/two").status_code,
        deliver(app, path="/two/eu", secret=OTHER_SECRET).status_code,
    ]
    get_state(app).handle_due()

    assert statuses == [200, 200, 200]
    assert sorted(seen) == ["first"] * 3 + ["second"] * 3


def test_two_apps_in_one_process_have_separate_deliveries_and_handlers(tmp_path, app_with):
    (tmp_path / "other").mkdir()
    mine, theirs, seen = Handlers(), Handlers(), []
    mine.on(PingTest, name="ping")(lambda event: seen.append("mine"))
    theirs.on(PingTest, name="ping")(lambda event: seen.append("theirs"))
    one = app_with(handlers=[mine])
    two = app_with(handlers=[theirs], BILLHOOK_INBOX_URL=f"sqlite:///{tmp_path}/other/billhook.db")

    deliver(one)
    get_state(one).handle_due()
    get_state(two).handle_due()

    assert seen == ["mine"]
    assert (len(stored(one)), len(stored(two))) == (1, 0)


def test_one_group_of_handlers_serves_two_apps(tmp_path, app_with):
    handlers, seen = Handlers(), []
    handlers.on(PingTest)(lambda event: seen.append(1))
    apps = [
        app_with(handlers=[handlers], BILLHOOK_INBOX_URL=f"sqlite:///{tmp_path}/{name}.db") for name in "ab"
    ]

    for app in apps:
        deliver(app)
        get_state(app).handle_due()

    assert len(seen) == 2


# --- the app's own doings -------------------------------------------------------------------------


def test_the_apps_error_handlers_do_not_answer_for_us(app_with):
    app = app_with()
    for caught in (Exception, HTTPException, 405, 413, 400, 401, 415, 500, 503):
        app.register_error_handler(caught, lambda error: ("the app's own page", 200))
    client = app.test_client()

    replies = [
        client.get(PATH),
        client.open(PATH, method="OPTIONS"),
        client.post(PATH, data=b"{}"),
        client.post(PATH, data=b"{}", headers={"X-Webhook-Type": "PingTest"}),
        client.post(PATH, data=b"x" * 262_145, headers=signed(b"x" * 262_145)),
        client.post(PATH, data=b"{}", headers={**signed(), "Content-Encoding": "gzip"}),
    ]

    assert [reply.status_code for reply in replies] == [405, 405, 401, 401, 413, 415]
    assert all("type" in reply.json for reply in replies)
    assert client.get("/nowhere").data == b"the app's own page"


def test_a_smaller_max_content_length_of_the_app_does_not_apply(app_with):
    app = app_with(MAX_CONTENT_LENGTH=10, MAX_FORM_MEMORY_SIZE=10)
    body = b'{"longer": "than ten bytes"}'

    form = b"a=%32&a=" + b"b" * 50

    replies = [deliver(app, body), deliver(app, form, headers={"Content-Type": FORM})]

    assert [reply.status_code for reply in replies] == [200, 200]
    assert [row[3] for row in stored(app)] == [body, form]


def test_a_full_backlog_is_503_until_deliveries_are_handled(app_with):
    app = app_with(BILLHOOK_BACKLOG_LIMIT=2)

    statuses = [deliver(app).status_code for _ in range(3)]
    get_state(app).handle_due()

    assert statuses == [200, 200, 503]
    assert until(lambda: deliver(app).status_code == 200)


def test_a_larger_max_content_length_does_not_raise_billhooks_limit(app_with):
    app = app_with(MAX_CONTENT_LENGTH=10**7, BILLHOOK_MAX_BODY_BYTES=100)

    assert deliver(app, b"x" * 100).status_code == 200
    assert deliver(app, b"x" * 101).status_code == 413


FORM = "application/x-www-form-urlencoded"


def reads_the_body():
    request.get_data()


def test_a_hook_that_read_the_body_first_leaves_it_to_us(app_with):
    app = app_with()
    app.before_request(reads_the_body)
    sent = [
        ("application/json", b"{}"),
        ("application/json", b""),
        (FORM, b"a=1"),
        ("multipart/form-data; boundary=x", b"{}"),
        ("", b"{}"),
    ]

    replies = [deliver(app, body, headers={"Content-Type": content_type}) for content_type, body in sent]

    assert [reply.status_code for reply in replies] == [200] * len(sent)
    assert [row[3] for row in stored(app)] == [body for _, body in sent]


def test_a_json_provider_of_the_app_does_not_change_our_bodies(app_with):
    app = app_with()
    app.json.compact = True
    app.add_url_rule("/own", "own", lambda: jsonify(a=1))

    assert deliver(app).data == b'{"status": "accepted"}'


# --- what fails behind the answer ----------------------------------------------------------------


def explode(*_, **__):
    raise SystemExit("nobody must do this")


def test_no_failure_of_a_handler_changes_the_answer(app_with):
    handlers = Handlers()
    handlers.on_any(name="explode")(lambda event: explode())
    app = app_with(handlers=[handlers], BILLHOOK_ENGINE="inline")

    reply = deliver(app)

    assert (reply.status_code, reply.json) == (200, {"status": "accepted"})


# --- set up wrongly -------------------------------------------------------------------------------


def a_handler(event): ...


def a_factory(): ...


LOOSE, GROUP = ModuleType("shop.billing"), Handlers()
LOOSE.events = GROUP
EU = Source("eu", secrets=[SECRET])


HERE = re.escape(__name__)
OTHERS = [
    ({"handlers": a_handler}, rf"handlers is the function {HERE}\.a_handler: register it, @handlers\.on\("),
    ({"handlers": [a_handler]}, rf"handlers has the function {HERE}\.a_handler: register it"),
    ({"handlers": LOOSE}, r"the module shop\.billing: pass its Handlers, handlers=\[billing\.events\]"),
    ({"handlers": [sys]}, r"the module sys: pass its Handlers, handlers=\[sys\.handlers\]"),
    ({"handlers": "shop.billing"}, r"handlers is a text: pass the Handlers in which your functions are"),
    ({"handlers": ["shop.billing"]}, r"handlers has a text: pass the Handlers in which"),
    ({"handlers": Handlers}, "handlers is the class Handlers: pass the Handlers in which"),
    ({"handlers": None}, "handlers is None: pass the Handlers"),
    ({"handlers": {"a": GROUP}}, "handlers is an object of the class dict: pass the Handlers"),
    ({"handlers": Flask("shop")}, "handlers is an object of the class Flask: pass the Handlers"),
    ({"handlers": [GROUP, GROUP.on(PingTest)]}, "handlers has an object of the class Registration: "),
    ({"sources": SECRET}, r"sources is a text: give each sender as a Source, sources=\[Source\("),
    ({"sources": [SECRET.encode()]}, "sources has an object of the class bytes"),
    ({"sources": {"name": "eu", "secrets": [SECRET]}}, "sources is an object of the class dict"),
    ({"sources": Source}, "sources is the class Source"),
    ({"sources": [TimestampedHMAC()]}, "sources has an object of the class TimestampedHMAC"),
    ({"sources": [EU, EU]}, "two sources have the same name: each name is one URL and one set of keys"),
    ({"clock": datetime}, r"clock is the class datetime: its now\(\) must return an aware datetime"),
    ({"clock": FrozenClock}, "clock is the class FrozenClock: its now"),
    ({"clock": None}, "clock is None: its now"),
    ({"clock": time.time}, r"clock is the function time\.time: its now"),
    ({"app": a_factory}, rf"app is the function {HERE}\.a_factory: call it, or call hooks\.init_app\(app"),
    ({"app": [GROUP]}, r"of the class list: handlers have a name, Billhook\(handlers=\[handlers\]\)"),
    ({"app": GROUP}, "an object of the class Handlers: handlers have a name"),
    ({"app": "shop"}, r"the app is a text: give the Flask app, hooks\.init_app\(app\)"),
    ({"app": Blueprint("shop", "shop")}, r"in a blueprint, register hooks\.blueprint\(\)"),
]


@pytest.mark.parametrize(("arguments", "told"), OTHERS)
def test_an_argument_of_another_kind_is_refused_with_what_to_give(arguments, told):
    with pytest.raises(ConfigError, match=told) as caught:
        Billhook(**arguments)

    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda hooks: hooks.init_app(None), "the app is None: give the Flask app"),
        (lambda hooks: hooks.init_app(a_factory), "the app is the function .*a_factory: call it"),
        (lambda hooks: hooks.init_app("/hooks", Flask("shop")), "the app is a text"),
        (lambda hooks: hooks.start(a_factory), "the app is the function .*a_factory: call it"),
        (lambda hooks: hooks.asgi_app(a_factory), "the app is the function .*a_factory: call it"),
        (lambda hooks: hooks.init_app(Flask("shop"), None), "url_prefix is None: give the path that"),
        (
            lambda hooks: hooks.blueprint(Blueprint("b", "b")),
            "url_prefix is an object of the class Blueprint",
        ),
    ],
)
def test_a_call_with_another_kind_of_argument_is_refused_with_what_to_give(call, told):
    with pytest.raises(ConfigError, match=told):
        call(Billhook())


@pytest.mark.parametrize(
    "prefix", ["https://shop.example/hooks", "/hooks?a=1", "/hooks#a", "/hooks ", "/ho oks"]
)
def test_a_prefix_that_no_request_has_is_refused(plain_app, prefix):
    app = plain_app()

    with pytest.raises(ConfigError, match=r"url_prefix '.*' is no path: give the path alone, as /webhooks"):
        Billhook().init_app(app, url_prefix=prefix)

    assert "billhook" not in app.extensions


def test_one_group_and_one_source_need_no_list(app_with):
    seen = []
    app = app_with(handlers=of_sources(seen, sources=["eu"]), sources=Source("eu", secrets=[OTHER_SECRET]))

    deliver(app, path=PATH + "/eu", secret=OTHER_SECRET)
    get_state(app).handle_due()

    assert sorted(seen) == [("all", "eu"), ("some", "eu")]


def test_duplicate_handler_names_are_refused_before_anything_is_created(plain_app, tmp_path):
    app = plain_app()
    groups = [Handlers(), Handlers()]
    for group in groups:
        group.on(PingTest, name="send")(lambda event: None)

    with pytest.raises(DuplicateHandlerName, match="two handlers are named 'send': give one of them another"):
        Billhook(handlers=groups).init_app(app)

    assert "billhook" not in app.extensions
    assert list(app.blueprints) == []
    assert not (tmp_path / "billhook.db").exists()


def test_a_second_billhook_with_a_name_that_is_taken_is_refused(plain_app):
    app = plain_app()
    groups = [Handlers(), Handlers()]
    groups[0].on(PingTest, name="new", aliases=["old"])(lambda event: None)
    groups[1].on(PingTest, name="old")(lambda event: None)
    Billhook(handlers=groups[:1]).init_app(app)

    with pytest.raises(DuplicateHandlerName, match="two handlers are named 'old'"):
        Billhook(handlers=groups[1:]).init_app(app, url_prefix="/second")


def test_a_plain_subscriber_with_a_handlers_name_refuses_to_start(plain_app):
    app, handlers = plain_app(), Handlers()

    def subscriber(sender, *, event, delivery): ...

    handlers.on(PingTest, name=f"{__name__}.{subscriber.__qualname__}")(lambda event: None)
    signals.ping_test.connect(subscriber, sender=app)

    with pytest.raises(DuplicateHandlerName, match=r"two handlers are named .*subscriber"):
        Billhook(handlers=[handlers]).init_app(app)


def test_sources_alone_need_no_default_one(plain_app):
    app = plain_app(BILLHOOK_SECRETS=[])
    Billhook(sources=[Source("eu", secrets=[SECRET])]).init_app(app)

    assert deliver(app, path=PATH + "/eu").status_code == 200
    assert deliver(app).status_code == 404


def test_a_source_named_default_takes_the_place_of_the_configured_one(plain_app):
    app = plain_app()
    Billhook(sources=[Source("default", secrets=[OTHER_SECRET])]).init_app(app)

    assert deliver(app).status_code == 401
    assert deliver(app, secret=OTHER_SECRET).status_code == 200


def test_an_inbox_that_cannot_be_opened_refuses_to_start(plain_app, tmp_path):
    (tmp_path / "billhook.db").write_bytes(b"this is no database" * 100)
    app = plain_app()

    with pytest.raises(ConfigError, match=r"the inbox .*billhook\.db failed: file is not a database"):
        Billhook().init_app(app)

    assert "billhook" not in app.extensions


def test_an_app_starts_with_any_schema_of_its_inbox_and_answers_deliveries_503(app_with, tmp_path, caplog):
    app_with()
    change(tmp_path / "billhook.db", "UPDATE billhook_version SET version_num = '9999'")
    app = app_with(name="myshop", BILLHOOK_ENGINE="inline")
    app.get("/own")(lambda: "the app's own page")
    Dashboard(may_look=lambda: True).init_app(app)

    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "deliveries get 503 until the inbox's schema fits: the inbox has schema 9999" in caplog.text
    assert app.test_client().get("/own").text == "the app's own page"
    assert CliRunner().invoke(FlaskGroup(create_app=lambda: app), ["routes"]).exit_code == 0
    assert deliver(app).status_code == 503
    assert app.test_client().get("/billhook/").status_code == 503
    change(tmp_path / "billhook.db", f"UPDATE billhook_version SET version_num = '{REVISION}'")
    assert deliver(app).status_code == 200
    assert app.test_client().get("/billhook/").status_code == 200


def test_the_standalone_app_refuses_a_schema_that_does_not_fit(app_with, tmp_path, monkeypatch):
    app_with()
    change(tmp_path / "billhook.db", "UPDATE billhook_version SET version_num = '9999'")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(SchemaMismatch, match="the inbox has schema 9999"):
        create_app({"BILLHOOK_SECRETS": SECRET, "BILLHOOK_ENGINE": "worker"})


# --- the end of an app ------------------------------------------------------------------------------


def test_an_app_that_is_closed_is_kept_by_nothing(tmp_path):
    """A test suite may make one for each of its tests."""
    apps = [make_app(tmp_path, BILLHOOK_ENGINE="inline") for _ in range(2)]
    assert [deliver(app).status_code for app in apps] == [200, 200]
    closed, control = map(weakref.ref, apps)
    get_state(closed()).close()
    apps.clear()
    gc.collect()

    assert closed() is None
    assert control() is not None  # one that is open is closed as the process ends
    get_state(control()).close()


def test_an_app_that_is_started_again_is_closed_once_as_the_process_ends(app_with, monkeypatch):
    at_exit = []
    monkeypatch.setattr(atexit, "register", at_exit.append)
    monkeypatch.setattr(atexit, "unregister", lambda close: close in at_exit and at_exit.remove(close))
    state = get_state(app_with())
    assert at_exit == [state.close]

    state.start()
    assert at_exit == [state.close]
    state.close()
    assert at_exit == []
    state.start()
    assert at_exit == [state.close]
