"""What an app's servers and workers say to do can be typed as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.processes import until
from support.server import gunicorn
from support.signing import signed

pytestmark = pytest.mark.slow

SHOP = """
from flask import Flask
from billhook import Billhook, Handlers
from billhook.events import PingTest

app = Flask(__name__)
handlers = Handlers()


@handlers.on(PingTest)
def send(event):
    pass


@app.get("/")
def index():
    return "a shop"


hooks = Billhook(app, handlers=[handlers])
application = hooks.asgi_app(app)
"""
WANTED = "run `flask --app shop billhook db upgrade`"


@pytest.mark.parametrize(("door", "app"), [("gthread", "shop:app"), ("asgi", "shop:application")])
def test_servers_name_flask_and_the_app_in_what_they_log(
    tmp_path: Path, postgres_url: str, door: str, app: str
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    options = {"BILLHOOK_INBOX_URL": postgres_url, "BILLHOOK_ENGINE": "thread"}

    with gunicorn(tmp_path, door=door, app=app, wait_for="/", **options) as server:
        assert server.post(b"{}", signed()).status == 503
        # Of the start, of a request, and of a thread of the engine's.
        for line in ("schema fits: ", "refused with 503 ", "worker poll failed, "):
            until(lambda line=line: re.search(f"{line}.*{WANTED}", server.log.read_text()), 15)
        assert re.findall(r"(?<!--app shop )billhook db\b.*", server.log.read_text()) == []
