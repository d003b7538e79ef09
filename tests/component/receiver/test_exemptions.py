"""Deliveries alone are exempt from extensions that check every request, whichever is set up first."""

from __future__ import annotations

import json
import logging

import pytest
from flask import Blueprint
from flask_wtf.csrf import CSRFProtect

from billhook import Billhook, Source
from billhook.dashboard import Dashboard
from support.apps import deliver
from support.request_checks import Limiter, SeaSurf, Talisman
from support.signing import PATH, SECRET

CHECKS = {
    CSRFProtect: ("Flask-WTF (CSRF tokens)", 400),
    SeaSurf: ("Flask-SeaSurf (CSRF tokens)", 403),
    Limiter: ("Flask-Limiter (rate limits)", 429),
}
each = pytest.mark.parametrize("kind", CHECKS)
in_each_order = pytest.mark.parametrize("order", ["extension first", "billhook first"])


@pytest.fixture
def made(plain_app):
    """Makes an app with an extension, a Billhook and a form of its own."""

    def make(kind, order: str, prefix: str = "", **config):
        app = plain_app(SECRET_KEY="not-a-secret", **config)
        outer = Blueprint("outer", __name__, url_prefix=prefix)
        outer.post("/order")(lambda: "ordered")
        hooks = Billhook(sources=[Source("eu", secrets=[SECRET])])
        if order == "extension first":
            kind(app)
        if prefix:
            outer.register_blueprint(hooks.blueprint(PATH))
        else:
            hooks.init_app(app)
        app.register_blueprint(outer)
        if order == "billhook first":
            kind(app)
        return app

    return make


def checked(app) -> dict[str, str]:
    result = app.test_cli_runner().invoke(args=["billhook", "check", "--json"])
    return {one["what"]: one["told"] for one in json.loads(result.stdout)["checks"]}


def exemptions_logged(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if "exempt" in record.getMessage()]


@each
@in_each_order
@pytest.mark.parametrize("prefix", ["", "/shop"], ids=["app", "another blueprint"])
def test_deliveries_to_any_source_are_exempt_and_the_apps_own_forms_are_not(made, kind, order, prefix):
    app, hooks = made(kind, order, prefix), f"{prefix}{PATH}"

    delivered = [deliver(app, path=path).status_code for path in (hooks, hooks, f"{hooks}/eu", f"{hooks}/eu")]
    ordered = [app.test_client().post(f"{prefix}/order").status_code for _ in range(2)]

    assert delivered == [200] * 4
    assert ordered[-1] == CHECKS[kind][1]
    assert app.test_client().post(hooks).status_code == 401  # the receiver's own, for there is no signature


@each
def test_control_without_the_exemption_they_are_refused(made, kind, monkeypatch):
    monkeypatch.setattr("billhook.receiver.exemptions._KNOWN", {})
    app = made(kind, "extension first")

    assert [deliver(app).status_code for _ in range(2)][-1] == CHECKS[kind][1]


@each
@in_each_order
def test_the_log_says_it_once_and_check_says_it(made, kind, order, caplog):
    caplog.set_level(logging.INFO, "billhook.receiver")
    app = made(kind, order)
    at_the_start = exemptions_logged(caplog)
    told = checked(app)["extensions"]
    for _ in range(2):
        deliver(app)

    name = CHECKS[kind][0]
    assert told == f"deliveries are exempt from {name}"
    line = f"deliveries are exempt from {name}: they are signed"
    assert exemptions_logged(caplog) == [line]
    assert at_the_start == ([line] if order == "extension first" else [])


@in_each_order
def test_an_app_keeps_its_rate_limits_by_an_option_and_check_says_what_that_means(made, order):
    app = made(Limiter, order, BILLHOOK_RATE_LIMITS="apply")

    told = checked(app)["extensions"]
    statuses = [deliver(app).status_code for _ in range(2)]

    assert told.startswith(
        "the rate limits of Flask-Limiter apply to deliveries: beyond them the service gets 429"
    )
    assert 429 in statuses


def test_no_hook_is_added_for_it(made):
    app = made(SeaSurf, "extension first")

    deliver(app)

    assert [hook.__name__ for hook in app.before_request_funcs[None]] == ["_before_request"]
    assert len(app.url_value_preprocessors["billhook"]) == 1  # as without an extension


def test_csrf_protection_never_applies(made):
    assert deliver(made(CSRFProtect, "billhook first", BILLHOOK_RATE_LIMITS="apply")).status_code == 200


def test_an_older_limiter_and_one_that_the_app_calls_itself_are_known(plain_app):
    app = plain_app()
    app.extensions["limiter"] = limiter = Limiter()
    app.before_request(lambda: limiter._check_request_limit())
    Billhook(app)

    assert [deliver(app).status_code for _ in range(3)] == [200] * 3


def test_an_extension_that_is_not_known_is_left_alone(plain_app):
    class Unknown:
        def exempt(self, view):
            raise AssertionError

        def check(self):
            return None

    app = plain_app()
    app.extensions["csrf"] = unknown = Unknown()
    app.before_request(unknown.check)
    Billhook(app)

    assert deliver(app).status_code == 200
    assert "extensions" not in checked(app)


def test_check_says_that_an_extension_redirects_what_comes_without_tls(made):
    app = made(Talisman, "billhook first")

    told = checked(app)["extensions"]

    assert told.startswith(
        "Flask-Talisman redirects requests that come without TLS: to the service a redirect is"
    )
    assert told.endswith("have the proxy send X-Forwarded-Proto: https")


def test_the_dashboard_has_tokens_of_its_own_and_keeps_the_apps_rate_limits(plain_app):
    app = plain_app(SECRET_KEY="not-a-secret")
    Billhook(app)
    Dashboard(may_look=lambda: True, may_act=lambda: True).init_app(app)
    SeaSurf(app)
    Limiter(app)

    posted = app.test_client().post("/billhook/deliveries/replay")
    seen = app.test_client().get("/billhook/")

    assert "The form was not sent from a page of this site" in posted.text  # and not SeaSurf's answer
    assert seen.status_code == 429
