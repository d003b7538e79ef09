"""An app whose forms flask-wtf protects takes deliveries, in whichever order the two are set up."""

from __future__ import annotations

import pytest
from flask import Blueprint
from flask_wtf.csrf import CSRFProtect

from billhook import Billhook
from billhook.extension import get_state
from support.apps import deliver
from support.signing import PATH


@pytest.fixture
def protected(plain_app):
    def make(order: str):
        app = plain_app(SECRET_KEY="not-a-secret")
        app.post("/order")(lambda: "ordered")
        parts = {"csrf": lambda: CSRFProtect(app), "billhook": lambda: Billhook(app)}
        for name in order.split():
            parts[name]()
        return app

    return make


@pytest.mark.parametrize("order", ["csrf billhook", "billhook csrf"])
def test_a_delivery_needs_no_token_and_the_apps_own_forms_do(protected, order):
    app = protected(order)

    statuses = [
        deliver(app).status_code,
        deliver(app).status_code,
        app.test_client().post("/order").status_code,
    ]

    assert statuses == [200, 200, 400]
    assert app.test_client().post(PATH).status_code == 401  # the receiver's own, for there is no signature


@pytest.mark.parametrize("order", ["csrf billhook", "billhook csrf"])
def test_it_needs_no_token_inside_another_blueprint_whose_own_forms_do(plain_app, order):
    app, shop = plain_app(SECRET_KEY="not-a-secret"), Blueprint("shop", __name__, url_prefix="/shop")
    shop.post("/order")(lambda: "ordered")
    shop.register_blueprint(Billhook().blueprint("/hooks"))
    parts = {"csrf": lambda: CSRFProtect(app), "billhook": lambda: app.register_blueprint(shop)}
    for name in order.split():
        parts[name]()

    statuses = [
        deliver(app, path="/shop/hooks").status_code,
        app.test_client().post("/shop/order").status_code,
    ]

    assert statuses == [200, 400]


def test_without_the_exemption_it_would_be_refused(protected):
    app = protected("csrf billhook")
    app.extensions["csrf"]._exempt_blueprints.clear()

    assert deliver(app).status_code == 400


def test_an_app_without_flask_wtf_gets_no_hook(plain_app, monkeypatch):
    monkeypatch.setattr("billhook.extension.find_spec", lambda name: None)
    app = plain_app(BILLHOOK_ENGINE="thread")

    Billhook(app)

    hooks = [hook.__name__ for hook in app.before_request_funcs.get(None, [])]
    assert hooks == ["start_engine_on_request"]
    assert deliver(app).status_code == 200
    get_state(app).close()
