"""Real Flask extensions that check every request, and servers with greenlets, installed beside billhook."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest

from support.examples import answers, free_port
from support.inbox_view import place_of, rows
from support.pages import ROOT
from support.processes import logged, output_of, strangers_environment, until
from support.server import ask
from support.server import request as http_request
from support.signing import SECRET, signed

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

EXTENSIONS = ("flask-limiter", "flask-seasurf", "flask-talisman", "flask-wtf")
GREENLETS = ("eventlet", "gevent", "flask-socketio")


call = partial(output_of, timeout=1200)


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """A Python with billhook and the newest of each."""
    folder = tmp_path_factory.mktemp("venv")
    call(sys.executable, "-m", "venv", str(folder))
    made = folder / "bin" / "python"
    call(made, "-m", "pip", "install", "--quiet", f"{ROOT}[postgres]", *EXTENSIONS, *GREENLETS)
    return made


def environ(tmp_path: Path, **more: str) -> dict[str, str]:
    url = f"sqlite:///{tmp_path / 'billhook.db'}"
    own = {"BILLHOOK_SECRETS": SECRET, "BILLHOOK_INBOX_URL": url, "PYTHONPATH": str(ROOT / "tests")}
    return strangers_environment(**{**own, **more})


# --- extensions ---------------------------------------------------------------------------------------

SHOP = """
from flask import Blueprint, Flask
from billhook import Billhook, Handlers

handlers = Handlers()
handlers.on_any(name="any")(lambda event: None)
app = Flask(__name__)
app.config.update(SECRET_KEY="not-a-secret", BILLHOOK_ENGINE="worker")
app.post("/order")(lambda: "ordered")

def flask_limiter():
    from flask_limiter import Limiter
    Limiter(lambda: "everyone", app=app, default_limits=["1/hour"], application_limits=["1/hour"])

def flask_seasurf():
    from flask_seasurf import SeaSurf
    SeaSurf(app)

def flask_wtf():
    from flask_wtf.csrf import CSRFProtect
    CSRFProtect(app)

def flask_talisman():
    from flask_talisman import Talisman
    Talisman(app)

def mount():
    if NESTED:
        shop = Blueprint("shop", __name__)
        shop.register_blueprint(Billhook(handlers=[handlers]).blueprint("/webhooks/billing"))
        app.register_blueprint(shop)
    else:
        Billhook(app, handlers=[handlers])
"""
DELIVER = """
from support.signing import signed
from shop import app

client = app.test_client()
for number in range(3):
    print(client.post("/webhooks/billing", data=b"{}", headers=signed()).status_code)
print([client.post("/order").status_code for _ in range(2)][-1])
"""
REFUSED = {"flask_limiter": "429", "flask_seasurf": "403", "flask_wtf": "400"}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("order", ["{extension}(); mount()", "mount(); {extension}()"])
@pytest.mark.parametrize("extension", REFUSED)
def test_deliveries_are_exempt_and_the_apps_own_forms_are_not(tmp_path, python, extension, order, nested):
    steps = f"NESTED = {nested}\n{order.format(extension=extension)}\n"
    (tmp_path / "shop.py").write_text(SHOP + steps)

    options = {"env": environ(tmp_path), "cwd": tmp_path}
    delivered = call(python, "-c", DELIVER, **options)
    checked = call(python, "-m", "flask", "--app", "shop", "billhook", "check", **options)

    assert delivered.split() == ["200", "200", "200", REFUSED[extension]]
    assert "deliveries are exempt from Flask-" in checked


def test_check_says_that_talisman_redirects_what_comes_without_tls(tmp_path, python):
    (tmp_path / "shop.py").write_text(SHOP + "NESTED = False\nflask_talisman(); mount()\n")

    options = {"env": environ(tmp_path), "cwd": tmp_path}
    delivered = call(python, "-c", DELIVER, **options)
    checked = call(python, "-m", "flask", "--app", "shop", "billhook", "check", **options)

    assert delivered.split()[0] == "302"
    assert "Flask-Talisman redirects requests that come without TLS" in " ".join(checked.split())


def test_the_dashboard_works_beside_each(tmp_path, python):
    dashboard = """
from billhook.dashboard import Dashboard
NESTED = False
mount(); flask_seasurf(); flask_wtf(); flask_limiter()
Dashboard(may_look=lambda: True, may_act=lambda: True).init_app(app)
"""
    (tmp_path / "shop.py").write_text(SHOP + dashboard)
    visit = "from shop import app; print(app.test_client().get('/billhook/').status_code)"

    assert call(python, "-c", visit, env=environ(tmp_path), cwd=tmp_path).split() == ["200"]


# --- greenlets ----------------------------------------------------------------------------------------

SOCKETS = """
import sys
how, port = sys.argv[1:]
if how == "eventlet":
    import eventlet
    eventlet.monkey_patch()
elif how == "gevent":
    from gevent import monkey
    monkey.patch_all()
import asyncio
from flask import Flask
from flask_socketio import SocketIO
from billhook import Billhook, Handlers
from billhook.events import PingTest

handlers = Handlers()

@handlers.on(PingTest, name="fails", retry=[0.1, 0.1])
def fail(event, delivery):
    raise ValueError(f"attempt {delivery.attempt}")

@handlers.on(PingTest, name="waits")
async def wait(event, delivery):
    await asyncio.sleep(0.05)

app = Flask("shop")
app.config.update(BILLHOOK_ENGINE="thread", BILLHOOK_RETRY_JITTER=0)
sockets = SocketIO(app, async_mode=None if how == "unpatched" else how)
Billhook(app, handlers=[handlers])
assert sockets.async_mode == ("eventlet" if how == "unpatched" else how)
sockets.run(app, port=int(port), allow_unsafe_werkzeug=True)
"""


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
@pytest.mark.parametrize("how", ["eventlet", "unpatched", "gevent"])
def test_under_socketio_each_run_gets_all_its_attempts(tmp_path, python, request, how, database):
    url, run, port = f"sqlite:///{tmp_path / 'billhook.db'}", "run", free_port()
    if database == "postgresql":
        url, run = request.getfixturevalue("database_url"), "billhook.run"
        call(python, "-m", "billhook", "db", "upgrade", env=environ(tmp_path, BILLHOOK_INBOX_URL=url))
    command = [python, "-c", SOCKETS, how, str(port)]
    options = {"env": environ(tmp_path, BILLHOOK_INBOX_URL=url), "cwd": tmp_path}

    with logged(command, tmp_path / "log", ready=lambda: answers(port), **options):
        assert [ask(port, http_request(b"{}", signed())).status for _ in range(5)] == [200] * 5
        ended = [("fails", "dead", 3)] * 5 + [("waits", "succeeded", 1)] * 5
        query = f"SELECT handler, state, attempts FROM {run} ORDER BY handler"
        until(lambda: rows(place_of(url), query) == ended, 60)


UNDER_EVENTLET = """
import eventlet; eventlet.monkey_patch()
import os, pathlib, sys
from billhook.inbox.sqlite.waker import FifoWaker
sender, listener = (FifoWaker(pathlib.Path(sys.argv[1])) for _ in range(2))
descriptor = listener.fileno()
sender.wake()
os.close(descriptor)  # as if its process were killed
with eventlet.Timeout(5):
    sender.wake()
print(os.listdir(sys.argv[1]))
"""


def test_under_eventlet_no_notification_waits_for_a_listener_that_was_killed(tmp_path, python):
    listed = call(python, "-c", UNDER_EVENTLET, str(tmp_path / "pipes"), env=environ(tmp_path), cwd=tmp_path)

    assert listed == "[]\n"
