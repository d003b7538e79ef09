"""The receiver of a Flask app inside a Quart app, which mounts nothing by itself: over real sockets."""

from __future__ import annotations

import pytest

from support.processes import until
from support.server import gunicorn
from support.signing import APPROVED, signed

SHOP = """
from flask import Flask
from quart import Quart

from billhook import Billhook, Handlers
from billhook.events import InvoiceApproved

handlers, approved = Handlers(), []
handlers.on(InvoiceApproved, name="note")(lambda event: approved.append(event.invoice_id))

flask_app = Flask("receiver", instance_path=__file__ + ".d")
hooks = Billhook(flask_app, handlers=[handlers])
app = Quart("shop")
app.get("/healthz", endpoint="health")(lambda: "up")
app.get("/approved", endpoint="approved")(lambda: approved)
app.before_serving(lambda: hooks.start(flask_app))
receiver, quart = hooks.asgi_app(flask_app), app.asgi_app


async def route(scope, receive, send):
    ours = scope["type"] == "http" and scope["path"].startswith("/webhooks/")
    await (receiver if ours else quart)(scope, receive, send)


app.asgi_app = route
"""


@pytest.mark.slow
def test_quart_serves_its_own_routes_and_the_receiver_its_deliveries(tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    with gunicorn(tmp_path, door="asgi", app="shop:app", BILLHOOK_ENGINE="thread") as server:
        headers = signed(APPROVED, "InvoiceApproved")
        refused = server.post(APPROVED, {**headers, "webhook-signature": "v1,AAAA"})
        accepted = server.post(APPROVED, headers)
        until(lambda: server.get("/approved").json == ["inv_1"])

    assert (refused.status, accepted.status, accepted.json) == (401, 200, {"status": "accepted"})
    assert len(server.keys()) == 1
