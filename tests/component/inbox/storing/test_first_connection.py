"""The look at the database at the start of a process: waited for a little, and never for long."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time

import click
import pytest

from billhook import Billhook
from billhook.errors import InboxUnavailable, SchemaMismatch
from billhook.extension import get_state
from billhook.inbox import Inbox
from billhook.inbox.storing.probe import StartupCheck
from support.inbox_view import incoming
from support.processes import until
from support.signing import signed

LONG = 60.0
"""More than any test takes: whoever waits so long is not to be told by the clock."""


@pytest.fixture
def gate():
    """What holds a look up until the test lets it go."""
    opened = threading.Event()
    yield opened
    opened.set()


@pytest.fixture
def late(gate):
    """Ends a look in an error, which comes when nobody waits for it any more."""

    def look():
        gate.wait(LONG)
        raise SchemaMismatch("0001", "0002")

    def fail(caplog):
        check = StartupCheck(look, "here")
        with pytest.raises(InboxUnavailable):
            check.result(0.01)
        gate.set()
        until(lambda: "has schema 0001" in caplog.text)

    return fail


@pytest.fixture
def silent():
    """A server that accepts connections, and says nothing: the URL of an inbox there."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0), backlog=64)) as listener:
        yield f"postgresql+psycopg://u:p@127.0.0.1:{listener.getsockname()[1]}/db"


def test_a_startup_check_in_time_raises_its_error():
    StartupCheck(lambda: None, "here").result(LONG)

    def look():
        raise SchemaMismatch("0001", "0002")

    with pytest.raises(SchemaMismatch, match="has schema 0001"):
        StartupCheck(look, "here").result(LONG)


def test_a_slow_startup_check_is_logged_and_continues(gate, caplog):
    caplog.set_level(logging.INFO)
    look = StartupCheck(lambda: gate.wait(LONG), "here")

    with pytest.raises(InboxUnavailable, match=r"the inbox here has not answered within 0\.01 s"):
        look.result(0.01)
    gate.set()

    until(lambda: "inbox here is available again" in caplog.text)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("send", "inbox unavailable to this command: "),
        ("serve", "inbox unavailable, deliveries get 503 until"),
    ],
)
def test_a_command_that_receives_nothing_does_not_speak_of_deliveries(plain_app, late, caplog, command, told):
    app = plain_app(BILLHOOK_INBOX_URL="postgresql+psycopg://nobody@127.0.0.1:1/none")
    with click.Context(click.Group("billhook")) as group, click.Context(click.Command(command), group):
        Billhook(app)
        late(caplog)

    said = [(record.levelname, record.getMessage().startswith(told)) for record in caplog.records]
    assert said == [("ERROR", True)] * 2


def waited(look):
    started = time.monotonic()
    look.wait(LONG)
    return time.monotonic() - started


def test_only_the_first_deliveries_wait_for_it(gate):
    look = StartupCheck(lambda: gate.wait(LONG), "here")

    with pytest.raises(InboxUnavailable, match="the inbox here has not answered since this process began"):
        look.wait(0.01)

    assert waited(look) < LONG / 2  # their deadline is their own


def test_a_delivery_waits_until_the_look_is_over(gate):
    look = StartupCheck(lambda: gate.wait(LONG), "here")
    threading.Timer(0.05, gate.set).start()

    assert 0.04 < waited(look) < LONG
    assert look.done


def test_a_forks_child_waits_for_no_thread_that_it_has_not(gate, monkeypatch):
    look = StartupCheck(lambda: gate.wait(LONG), "here")

    look._end_in_child()

    assert waited(look) < LONG / 2


@pytest.mark.slow
def test_start_and_first_delivery_wait_a_bounded_time_for_a_silent_server(silent, app_with, caplog):
    """What is waited is counted, not measured: 0.8 s and 0.5 s, and nobody asked the committer."""
    app = app_with(BILLHOOK_INBOX_URL=silent)
    inbox = get_state(app).inbox

    answer = app.test_client().post("/webhooks/billing", data=b"{}", headers=signed())

    assert answer.status_code == 503
    assert 5 <= int(answer.headers["Retry-After"]) <= 60
    assert "inbox unavailable, deliveries get 503 until it recovers: " in caplog.text
    assert "has not answered within 0.8 s" in caplog.text
    assert "has not answered since this process began" in caplog.text
    assert inbox._committer._thread is None
    assert ":p@" not in caplog.text


def test_control_without_a_startup_check_a_delivery_waits_for_the_server(silent):
    """The control: without it the delivery would wait for a connection."""
    inbox = Inbox(silent, deadline_seconds=0.3)

    with pytest.raises(InboxUnavailable, match="no commit within"):
        inbox.put(incoming("k"))

    assert inbox._committer._thread is not None
