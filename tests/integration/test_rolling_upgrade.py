"""Two releases on one inbox: a receiver and a worker of each, while deliveries arrive without a pause."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest

from billhook.inbox.tables.revision import REVISION
from support.acceptance.senders import load_on
from support.inbox_view import rows, value
from support.next_release import NEXT, next_release
from support.processes import clean_environment, logged, until
from support.server import gunicorn
from support.signing import SECRET
from support.worker_group import HANDLERS

TESTS = Path(__file__).parents[1]
NOTING = """
@handlers.on(InvoiceApproved, name="note")
def note(event, delivery):
    with open("notes.txt", "a") as output:
        output.write(f"{os.environ['RELEASE']} {delivery.key}\\n")
"""


@pytest.fixture
def release(tmp_path, inbox_url):
    """Start a command of a release, `old` or `new`; its process and its log."""
    (tmp_path / "noting.py").write_text(HANDLERS + NOTING)
    programs = {"old": ["-m", "billhook"], "new": ["-m", "support.next_release", str(tmp_path / "next")]}
    options = {"PYTHONPATH": str(TESTS), "BILLHOOK_INBOX_URL": inbox_url, "BILLHOOK_SECRETS": SECRET}

    with contextlib.ExitStack() as stack:

        def start(name, *arguments):
            log = tmp_path / f"{name}-{arguments[0]}.log"
            command = [sys.executable, *programs[name], *arguments]
            environ = clean_environment(RELEASE=name, **options)
            return stack.enter_context(logged(command, log, cwd=tmp_path, env=environ)), log

        yield start


@pytest.mark.slow
def test_an_upgrade_under_load_loses_and_refuses_nothing(release, inbox_url, where, tmp_path):
    with next_release(tmp_path / "next", oldest_compatible=REVISION):
        pass  # it has its migrations now

    def notes():
        path = tmp_path / "notes.txt"
        # Without the last line, which may be incomplete as yet.
        return [line.split() for line in path.read_text().split("\n")[:-1]] if path.exists() else []

    with (
        gunicorn(tmp_path, door="asgi", BILLHOOK_INBOX_URL=inbox_url) as server,
        load_on(server.port, 2) as load,
    ):
        _, waiting = release("old", "worker", "noting.py")
        until(lambda: len(notes()) > 5, 30)

        upgrading, _ = release("new", "db", "upgrade")
        assert upgrading.wait(60) == 0
        until(lambda: "this billhook, which stores deliveries only" in waiting.read_text(), 30)
        load.more(10)  # while the handlers that were running end
        noted = len(notes())
        load.more(30)
        unhandled = len(notes()) == noted
        ready = server.get("/readyz")
        release("new", "worker", "noting.py")
        load.more(30)
    keys = load.answered.keys()
    until(lambda: keys <= {key for _, key in notes()}, 60)

    assert load.statuses.keys() == {'200 {"status": "accepted"}'}
    assert unhandled
    assert ready.status == 200
    assert ready.json == {"status": "ready", "handling": "waits for an upgrade of this process"}
    assert value(where, "SELECT version_num FROM billhook_version") == NEXT
    assert sorted(keys) == sorted(key for (key,) in rows(where, "SELECT key FROM delivery"))
    assert {name for name, _ in notes()[noted:]} == {"new"}
    assert {name for name, _ in notes()[:noted]} == {"old"}
