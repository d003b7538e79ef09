"""The blueprint as an object: registered by hand, under other prefixes, and inside another blueprint."""

from __future__ import annotations

import pytest
from flask import Blueprint, Flask

from billhook import Billhook, Handlers
from billhook.errors import ConfigError
from billhook.extension import get_state
from support.apps import deliver
from support.signing import PATH, signed
from support.templates import new_inbox

BODY = b"{}"


@pytest.fixture
def app(plain_app, tmp_path) -> Flask:
    new_inbox(f"sqlite:///{tmp_path / 'billhook.db'}")
    return plain_app(BILLHOOK_ENGINE="inline")


def handled() -> tuple[Handlers, list[str]]:
    handlers, seen = Handlers(), []

    @handlers.on_any(name="note")
    def note(event: object) -> None:
        seen.append(type(event).__name__)

    return handlers, seen


def test_the_blueprint_can_be_registered_by_hand(app):
    handlers, seen = handled()

    app.register_blueprint(Billhook(handlers=[handlers]).blueprint())

    assert deliver(app, BODY, "PingTest").status_code == 200
    assert seen == ["PingTest"]
    assert "billhook" in app.blueprints
    assert app.extensions["billhook"].mounts == ["/webhooks/billing"]


@pytest.mark.parametrize(
    ("given", "path"), [({}, "/in"), ({"url_prefix": "/hooks"}, "/hooks"), ({"url_prefix": ""}, "/")]
)
def test_the_prefix_of_the_registration_counts(app, given, path):
    app.register_blueprint(Billhook().blueprint("/in"), **given)

    assert deliver(app, BODY, "PingTest", path=path).status_code == 200


def test_any_method_but_post_is_405_with_an_allow_header(app):
    methods = ["GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "PURGE"]
    Billhook(app)
    client = app.test_client()

    replies = [
        client.open(path, method=method, data=BODY, headers=signed())
        for path in (PATH, PATH + "/")
        for method in methods
    ]

    assert {(reply.status_code, reply.headers["Allow"]) for reply in replies} == {(405, "POST")}
    assert {reply.json["code"] for reply in replies if reply.data} == {"method_not_allowed"}
    assert get_state(app).inbox.received(1) == []


def test_no_spelling_of_the_address_is_answered_with_a_redirect(app):
    Billhook(app)
    paths = [PATH + "/", "//webhooks/billing", "/webhooks//billing", PATH + "//", PATH + "/./"]

    replies = [app.test_client().post(path, data=BODY, headers=signed()) for path in paths]

    assert replies[0].status_code == 200
    assert {reply.status_code for reply in replies} <= {200, 404}


def test_a_nested_blueprint_has_both_prefixes_and_the_parents_hooks(app):
    handlers, seen = handled()
    shop, asked = Blueprint("shop", __name__, url_prefix="/shop"), []
    shop.before_request(lambda: asked.append("shop"))
    shop.register_blueprint(Billhook(handlers=[handlers]).blueprint("/hooks"))

    app.register_blueprint(shop)

    assert deliver(app, BODY, "PingTest", path="/shop/hooks").status_code == 200
    assert (seen, asked) == (["PingTest"], ["shop"])
    assert "shop.billhook" in app.blueprints
    assert app.extensions["billhook"].mounts == ["/shop/hooks"]


def test_a_blueprint_beside_init_app_shares_the_inbox_under_another_name(app):
    hooks = Billhook(app)
    app.register_blueprint(hooks.blueprint("/again"))

    assert set(app.blueprints) == {"billhook", "billhook_2"}
    assert deliver(app, BODY, "PingTest", message_id="msg_1").json == {"status": "accepted"}
    assert deliver(app, BODY, "PingTest", message_id="msg_1", path="/again").json == {"status": "duplicate"}


def test_a_prefix_with_a_variable_part_is_refused(app):
    tenants = Blueprint("tenants", __name__, url_prefix="/<tenant>")
    tenants.register_blueprint(Billhook().blueprint())

    with pytest.raises(ConfigError, match="has a variable part: use named sources instead"):
        app.register_blueprint(tenants)

    assert "billhook" not in app.extensions


def test_the_config_is_read_when_the_blueprint_is_registered(app):
    blueprint = Billhook().blueprint()
    app.config["BILLHOOK_TOLERANCE_SECONDS"] = "soon"

    with pytest.raises(ConfigError, match="BILLHOOK_TOLERANCE_SECONDS"):
        app.register_blueprint(blueprint)
