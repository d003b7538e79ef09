"""The dashboard of an app that is served as `Billhook.asgi_app`: pages and forms over real sockets."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest

from support.server import Reply, Server, gunicorn, request
from support.signing import APPROVED, PATH, signed

OWN = "http://receiver"
"""The origin of pages that are asked for with the host of `support.server.head`."""
SHOP = """
from flask import Flask
from flask_wtf.csrf import CSRFProtect

from billhook import Billhook
from billhook.dashboard import Dashboard


def create():
    app = Flask("shop", instance_path=__file__ + ".d")
    app.secret_key = "k" * 32
    app.get("/healthz")(lambda: "up")
    app.errorhandler(403)(lambda error: ("the shop's own page of errors", 403))
    CSRFProtect(app)
    hooks = Billhook(app)
    Dashboard(may_look=lambda: "alice", may_act=lambda: True).init_app(app)
    return hooks.asgi_app(app)
"""


def ask(server: Server, method: str, path: str, body: bytes = b"", **headers: str) -> Reply:
    sent = {name.replace("_", "-"): text for name, text in headers.items()}
    return server.ask(request(body, sent, method=method, path=path))


@pytest.mark.slow
def test_pages_and_forms_of_an_asgi_application(tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    with gunicorn(tmp_path, door="asgi", app="shop:create()") as server:
        accepted = server.ask(request(APPROVED, signed(APPROVED), path=PATH))
        page = ask(server, "GET", "/billhook/deliveries/1")
        token = re.search(rb'name="csrf_token" value="([^"]+)"', page.body)
        assert token is not None
        form = urlencode({"csrf_token": token[1].decode(), "reason": "by hand"}).encode()
        cookie = page.headers["Set-Cookie"].partition(";")[0]

        def discard(**headers: str) -> Reply:
            kind = "application/x-www-form-urlencoded"
            path = "/billhook/deliveries/1/discard"
            return ask(server, "POST", path, form, **{"Content-Type": kind, **headers})

        refused = [discard(Cookie=cookie), discard(Origin=OWN), discard(Cookie=cookie, Origin="http://a.b")]
        unchanged = ask(server, "GET", "/billhook/actions")
        done = discard(Cookie=cookie, Origin=OWN)
        actions = ask(server, "GET", "/billhook/actions")

    assert accepted.status == 200
    assert page.status == 200
    assert page.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert b"inv_1" in page.body
    assert [one.status for one in refused] == [403] * 3
    assert b"discard" not in unchanged.body
    assert (done.status, done.headers["Location"]) == (303, "/billhook/deliveries/1")
    assert b"discard" in actions.body
    assert b"alice" in actions.body
