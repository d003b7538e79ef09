"""The waker of an inbox on PostgreSQL: its connections break, and no sender and no worker suffers."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from billhook.engines.worker import Wakeup
from billhook.inbox.postgres import database
from billhook.inbox.postgres import waker as module
from support.inbox_view import change, end_sessions, hang_up, open_inbox
from support.postgres import fresh_schema, with_options
from support.processes import few_descriptors, repeated, until
from support.proxy import proxied
from support.templates import new_inbox
from support.timeouts import scaled

NAME = f"wakers-{os.getpid()}"


@pytest.fixture
def url(postgres_url):
    return with_options(new_inbox(postgres_url), "", application_name=NAME)


@pytest.fixture
def inboxes(url):
    """Two inboxes on one schema, as two processes have them."""
    opened = [open_inbox(url) for _ in range(2)]
    yield opened
    for inbox in opened:
        inbox.close()


@pytest.fixture
def wakers(inboxes):
    return [inbox.waker for inbox in inboxes]


@pytest.fixture
def quick(monkeypatch):
    """Lost connections are opened again soon."""
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.2)


# --- notified, or not -----------------------------------------------------------------------------


def test_an_inbox_notifies_only_its_own_workers_in_a_shared_database(wakers, postgres_server):
    wakers[0].fileno()

    with fresh_schema(postgres_server.url) as elsewhere:
        other = open_inbox(new_inbox(elsewhere))
        other.waker.fileno()
        other.waker.wake()
        heard_there = other.waker.wait(5)
        other.close()
        hang_up(elsewhere)

    assert heard_there is True
    assert wakers[0].wait(0.1) is False


# --- broken connections ---------------------------------------------------------------------------


def test_a_connection_that_the_server_ended_is_an_error_once_and_opened_again(wakers, url, quick):
    listener, sender = wakers
    listener.fileno()
    sender.wake()
    assert listener.wait(5) is True
    time.sleep(0.3)  # it is older than the pause
    end_sessions(url, NAME)

    def wait():
        for _ in range(3):  # the goodbye is read before the end
            listener.wait(1)

    with pytest.raises(OSError, match=r"the waker's connection failed: .*(terminat|closed)"):
        wait()
    listener.fileno()
    sender.wake()  # this one is lost with its connection
    until(lambda: sender.wake() or listener.wait(0.1))


def test_without_a_connection_notify_is_silent_and_listening_fails_at_once(url, monkeypatch):
    monkeypatch.setattr(module, "PAUSE_SECONDS", 1.5)
    with proxied(url) as proxy:
        waker = open_inbox(proxy.url).waker
        proxy.fatal, proxy.heard = b"'synchronous_commit'", False
        before = proxy.connections

        waker.wake()
        with pytest.raises(OSError, match="the waker's connection failed: "):
            waker.fileno()
        started = time.monotonic()
        for _ in range(100):
            waker.wake()
            with pytest.raises(OSError, match="it was tried just now"):
                waker.fileno()
        seconds = time.monotonic() - started

        assert seconds < scaled(1)
        assert proxy.connections - before == 2
        proxy.fatal = None
        time.sleep(1.5)
        assert waker.fileno() > 0
        waker.close()


def test_notify_on_a_dead_connection_stops_in_time_and_never_raises(url, monkeypatch):
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.5)
    monkeypatch.setattr(database, "NOTIFY_TIMEOUT_SECONDS", 0.3)
    with proxied(url) as proxy:
        waker = open_inbox(proxy.url).waker
        waker.wake()
        proxy.hold()

        started = time.monotonic()
        for _ in range(20):  # one that gets no answer, one that gets no connection, and then none is tried
            waker.wake()
        seconds = time.monotonic() - started
        proxy.release()

        assert 0.2 < seconds < scaled(5)
        waker.close()


def test_without_the_tables_notify_is_silent_and_listening_fails(wakers, url):
    change(url, "ALTER TABLE delivery RENAME TO lost")

    wakers[0].wake()
    with pytest.raises(OSError, match=r'relation ".*\.delivery" does not exist'):
        wakers[1].fileno()


# --- the worker's wakeup -----------------------------------------------------------------------------


def sleeps(inbox, seconds):
    """How often a wait ends in this time without a notification."""
    wakeup, count = Wakeup(inbox), 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        wakeup.clear()
        wakeup.wait(0.1)
        count += 1
    return count


@pytest.mark.parametrize("pauses", [True, False])
def test_a_listener_whose_connections_break_does_not_spin(url, monkeypatch, pauses):
    """With the control: one that connected again at once would be busy."""
    if not pauses:
        monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    with proxied(url) as proxy:
        inbox = open_inbox(proxy.url)
        proxy.fatal, proxy.client_is_answered = b"LISTEN", True  # each line ends as soon as it listens
        before = proxy.connections

        count = sleeps(inbox, 1.0)

        assert (count <= 15 and proxy.connections - before <= 2) is pauses
        inbox.close()


# --- threads and descriptors ----------------------------------------------------------------------


def test_many_threads_notify_and_listen_and_no_descriptor_is_lost(inboxes, quick):
    listener, sender = (inbox.waker for inbox in inboxes)
    sender.wake()
    listener.fileno()
    before = len(list(Path("/dev/fd").iterdir()))

    acts = (sender.wake, sender.wake, lambda: listener.wait(0), lambda: listener.wait(0.01))

    assert repeated(0.5, *acts) == []
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_a_process_without_descriptors_has_no_waker_and_survives(url):
    inbox = open_inbox(url)
    with few_descriptors():
        inbox.waker.wake()
        with pytest.raises(OSError, match="the waker's connection failed: "):
            inbox.waker.fileno()
    inbox.close()
