"""Each server answers a delivery as if it were alone, whatever code of the app reads its body afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.examples import answers, free_port
from support.inbox_view import column
from support.processes import clean_environment, logged, output_of, run_command, until
from support.server import ask, request
from support.signing import PATH, SECRET, signed
from support.templates import new_inbox
from support.timeouts import scaled

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
BODIES = {FORM: b"a=1", JSON: b'{"a": "1"}'}
TOO_LARGE = b"a=" + b"1" * 2_000
READS = [
    "after_request get_data",
    "middleware server's stream",
    "after_request form",
    "closing stream, in pieces",
]
"""Where and how; all ways are tried in tests/component/receiver/test_hooks.py."""

WSGI, ASGI = "support.reading_app:make_app", "support.reading_app:make_asgi_app"
GUNICORN = ["-m", "gunicorn", "-b", "127.0.0.1:{port}", "--no-control-socket"]
PROGRAMS = {
    "gevent": """
from gevent import monkey; monkey.patch_all()
from gevent.pywsgi import WSGIServer
from support.reading_app import make_app
WSGIServer(("127.0.0.1", {port}), make_app()).serve_forever()
""",
    "eventlet": """
import eventlet; eventlet.monkey_patch()
from eventlet import wsgi
from support.reading_app import make_app
wsgi.server(eventlet.listen(("127.0.0.1", {port})), make_app())
""",
    "flask-socketio": """
import eventlet; eventlet.monkey_patch()
from flask_socketio import SocketIO
from support.reading_app import make_app
app = make_app()
SocketIO(app, async_mode="eventlet").run(app, host="127.0.0.1", port={port})
""",
    "cheroot": """
from cheroot.wsgi import Server
from support.reading_app import make_app
Server(("127.0.0.1", {port}), make_app()).start()
""",
}
SERVERS = {
    "flask run": ["-m", "flask", "--app", WSGI, "run", "--port", "{port}"],
    "gunicorn gthread": [*GUNICORN, "-k", "gthread", "--threads", "4", f"{WSGI}()"],
    "gunicorn gevent": [*GUNICORN, "-k", "gevent", f"{WSGI}()"],
    "gevent": ["-c", PROGRAMS["gevent"]],
    "gunicorn asgi": [*GUNICORN, "-k", "billhook.gunicorn_worker.AsgiWorker", f"{ASGI}()"],
    "uvicorn": ["-m", "uvicorn", "--port", "{port}", "--factory", ASGI],
    "hypercorn": ["-m", "hypercorn", "-b", "127.0.0.1:{port}", f"{ASGI}()"],
}
PACKAGES = ["waitress", "pyuwsgi", "eventlet", "flask-socketio", "cheroot", "granian", "sentry-sdk"]
GRANIAN = ["-m", "granian", "--port", "{port}", "--factory", "--interface"]
OTHER_SERVERS = {
    "gunicorn sync": [*GUNICORN, f"{WSGI}()"],
    "waitress": ["-m", "waitress", "--listen", "127.0.0.1:{port}", "--call", WSGI],
    "uwsgi": [
        "-c", "import sys, pyuwsgi; pyuwsgi.run(sys.argv[1:])", "--http-socket", "127.0.0.1:{port}",
        "--master", "--enable-threads", "--die-on-term", "--module", f"{WSGI}()",
    ],
    "eventlet": ["-c", PROGRAMS["eventlet"]],
    "flask-socketio": ["-c", PROGRAMS["flask-socketio"]],
    "cheroot": ["-c", PROGRAMS["cheroot"]],
    "granian": [*GRANIAN, "wsgi", WSGI],
    "granian asgi": [*GRANIAN, "asgi", ASGI],
}  # fmt: skip
"""Those that the extra `test` does not bring."""
LONG = [pytest.mark.long, pytest.mark.timeout(1800)]


@dataclass
class Shop:
    """A server with the app that reads, and the sender of deliveries to it."""

    port: int
    folder: Path

    def deliver(
        self, read: str, content_type: str = FORM, *, body: bytes = b"", method: str = "POST", secret=SECRET
    ) -> int:
        """Sign and send a delivery; the status of its answer."""
        body = body or BODIES[content_type]
        headers = {**signed(body, secret=secret), "Content-Type": content_type, "X-Read": read}
        return ask(self.port, request(body, headers, method=method)).status

    def found(self, count: int) -> list[Any]:
        """Wait until so many readers have written down what they found; all of that."""
        file = self.folder / "read.jsonl"
        until(lambda: file.exists() and len(file.read_text().splitlines()) >= count)
        return [json.loads(line) for line in file.read_text().splitlines()]

    def stored(self) -> list[bytes]:
        """The bodies in the inbox."""
        return column(self.folder / "billhook.db", "SELECT body FROM delivery ORDER BY id")


@contextlib.contextmanager
def serving(folder: Path, command: list[str], python: str, **environ: str) -> Iterator[Shop]:
    """The app under a server, until the block ends."""
    port = free_port()
    new_inbox(f"sqlite:///{folder / 'billhook.db'}")
    environ = {
        "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
        "READ_FILE": str(folder / "read.jsonl"),
        "BILLHOOK_SECRETS": SECRET,
        "BILLHOOK_ENGINE": "worker",
        "BILLHOOK_INBOX_URL": f"sqlite:///{folder / 'billhook.db'}",
        "BILLHOOK_MAX_BODY_BYTES": "1000",
        **environ,
    }
    started = [python, *(part.replace("{port}", str(port)) for part in command)]
    options = {"cwd": folder, "env": clean_environment(**environ)}
    with logged(started, folder / "server.log", ready=lambda: answers(port), **options):
        yield Shop(port, folder)


def expected(read: str, content_type: str) -> list[Any]:
    """What a reader finds in the body with this type."""
    form = {"a": "1"} if content_type == FORM else {}
    return [read, form if read.endswith("form") else BODIES[content_type].decode()]


def check_readers(shop: Shop) -> None:
    """Each delivery is answered 200 and stored, and what reads its body finds it; after a refusal nothing."""
    sent = [(read, content_type) for read in READS for content_type in BODIES]

    statuses = [(*each, shop.deliver(*each)) for each in sent]
    refused = [
        shop.deliver(READS[0], body=b"a=2", secret="whsec_" + "QUJD" * 8),
        shop.deliver(READS[0], body=TOO_LARGE),
        shop.deliver(READS[1], method="PUT"),
    ]
    shop.deliver("")

    assert statuses == [(*each, 200) for each in sent]
    assert refused == [401, 413, 405]
    found = shop.found(len(sent) + 3)
    by_text = sorted(map(json.dumps, found[:-3]))
    assert by_text == sorted(json.dumps(expected(*each)) for each in sent)
    assert found[-3:] == [[READS[0], "a=2"], [READS[0], ""], [READS[1], ""]]
    assert shop.stored() == [BODIES[content_type] for _, content_type in sent] + [BODIES[FORM]]


def check_sentry(shop: Shop) -> None:
    """Sentry, with its defaults and tracing, finds the body of a delivery."""
    assert [shop.deliver("", content_type) for content_type in BODIES] == [200, 200]
    assert shop.found(2) == [["sentry", {"a": "1"}]] * 2
    assert shop.stored() == list(BODIES.values())


def check_asgi(shop: Shop) -> None:
    """Middleware around the ASGI application reads the body, replays it, and has it afterwards."""
    sent = ["asgi x", "asgi y"]
    assert [shop.deliver(read) for read in sent] == [200, 200]
    assert shop.deliver("asgi z", body=TOO_LARGE) == 413
    assert shop.deliver("asgi p", method="PUT") == 405
    assert shop.found(4) == [
        ["asgi x", "a=1"], ["asgi y", "a=1"], ["asgi z", TOO_LARGE.decode()], ["asgi p", "a=1"],
    ]  # fmt: skip
    assert shop.stored() == [BODIES[FORM]] * 2


@pytest.fixture(scope="module")
def other_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of an environment with billhook and these servers."""
    folder = tmp_path_factory.mktemp("servers") / "venv"
    python = str(folder / "bin" / "python")
    output_of(sys.executable, "-m", "venv", folder)
    output_of(python, "-m", "pip", "install", "--quiet", str(TESTS.parent), *PACKAGES, timeout=1200)
    return python


@pytest.mark.parametrize("server", [*SERVERS, *(pytest.param(name, marks=LONG) for name in OTHER_SERVERS)])
def test_whatever_reads_the_body_of_a_delivery_afterwards_finds_it(tmp_path, request, server):
    """As middleware of ASGI too, which replays it; and Sentry with tracing."""
    is_long = request.config.getoption("--long")
    python = request.getfixturevalue("other_python") if server in OTHER_SERVERS else sys.executable
    command = (SERVERS | OTHER_SERVERS)[server]
    for name in ("readers", "sentry"):
        (tmp_path / name).mkdir()
    with serving(tmp_path / "readers", command, python) as shop:
        if ASGI in command[-1]:
            check_asgi(shop)
        else:
            check_readers(shop)
    if ASGI not in command[-1] and (is_long or server == "flask run"):
        with serving(tmp_path / "sentry", command, python, SENTRY="1") as shop:
            check_sentry(shop)


PATCHED_LATE = """
import eventlet
eventlet.monkey_patch()
from support.reading_app import make_app
app = make_app()
"""


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_check_serves_an_app_that_eventlet_patches_when_all_is_imported(tmp_path, other_python):
    """A server that waits in a selector of the unpatched library would stop the checker's own thread."""
    (tmp_path / "shop.py").write_text(PATCHED_LATE, encoding="utf-8")
    environ = clean_environment(BILLHOOK_SECRETS=SECRET, PYTHONPATH=str(TESTS))

    done = run_command(
        [other_python, "-m", "flask", "--app", "shop", "billhook", "check", "--json"],
        cwd=tmp_path,
        env=environ,
        timeout=scaled(60),
    )

    told = {check["what"]: check["told"] for check in json.loads(done.stdout)["checks"]}
    assert told[f"POST {PATH}"] == "verified and answered by billhook (source default)"
