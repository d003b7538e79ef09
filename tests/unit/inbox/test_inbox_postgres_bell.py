"""The bell on PostgreSQL: heard in every process of its inbox and in no other, and quiet when it breaks."""

from __future__ import annotations

import os
import resource
import threading
import time
from pathlib import Path

import pytest
from databases import fresh_schema, with_options
from kit import change, hang_up, in_children, open_inbox, rows, until, upgraded
from patience import within
from proxy import proxied

from billhook.engines.alarm import Alarm
from billhook.inbox.postgres import bell as module
from billhook.inbox.postgres import database

NAME = f"bells-{os.getpid()}"


@pytest.fixture
def url(postgres_url):
    return with_options(upgraded(postgres_url), "", application_name=NAME)


@pytest.fixture
def inboxes(url):
    """Two inboxes on one schema, as two processes have them."""
    opened = [open_inbox(url) for _ in range(2)]
    yield opened
    for inbox in opened:
        inbox.close()


@pytest.fixture
def bells(inboxes):
    return [inbox.bell for inbox in inboxes]


@pytest.fixture
def quick(monkeypatch):
    """Lost connections are opened again soon."""
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.2)


def hang_up_all(url):
    """The server ends the bells' sessions; returns when they are gone."""
    sessions = "SELECT pid FROM pg_stat_activity WHERE application_name = ?"
    rows(url, f"SELECT pg_terminate_backend(pid) FROM ({sessions}) AS ours", NAME)
    until(lambda: rows(url, sessions, NAME) == [])


# --- heard, or not --------------------------------------------------------------------------------


def test_a_ring_wakes_who_listens_in_another_process(inboxes):
    listener, ringer = inboxes
    listener.bell.listen()

    in_children(1, lambda _: ringer.bell.ring() or b"")

    assert listener.bell.wait(5) is True
    assert listener.bell.wait(0) is False


def test_silence_lasts_as_long_as_asked(bells):
    started = time.monotonic()

    assert bells[0].wait(0.05) is False
    assert time.monotonic() - started >= 0.05


def test_a_ring_that_nobody_hears_is_lost_without_a_word(bells):
    bells[1].ring()

    assert bells[0].wait(0.1) is False


def test_many_rings_are_heard_as_one_or_a_few(bells):
    listener, ringer = bells
    listener.listen()

    for _ in range(500):
        ringer.ring()
    heard = 0
    while listener.wait(0.2):
        heard += 1

    assert 1 <= heard <= 500
    assert listener.wait(0) is False


def test_the_bell_of_another_inbox_in_the_same_database_is_not_heard(bells, postgres_server):
    bells[0].listen()

    with fresh_schema(postgres_server.url) as elsewhere:
        other = open_inbox(upgraded(elsewhere))
        other.bell.listen()
        other.bell.ring()
        heard_there = other.bell.wait(5)
        other.close()
        hang_up(elsewhere)

    assert heard_there is True
    assert bells[0].wait(0.1) is False


# --- broken lines ---------------------------------------------------------------------------------


def test_a_line_that_the_server_ended_is_told_to_the_listener_and_opened_again(bells, url, quick):
    listener, ringer = bells
    listener.listen()
    ringer.ring()
    assert listener.wait(5) is True
    time.sleep(0.3)  # it is older than the pause
    hang_up_all(url)

    def wait():
        for _ in range(3):  # the goodbye is read before the end
            listener.wait(1)

    with pytest.raises(OSError, match=r"the bell's connection failed: .*(terminat|closed)"):
        wait()
    listener.listen()
    ringer.ring()  # this one is lost with its line
    until(lambda: ringer.ring() or listener.wait(0.1))


def test_while_no_line_is_to_be_had_ringing_is_silent_and_listening_says_so_at_once(url, monkeypatch):
    monkeypatch.setattr(module, "PAUSE_SECONDS", 1.5)
    with proxied(url) as proxy:
        bell = open_inbox(proxy.url).bell
        proxy.fatal, proxy.heard = b"('synchronous_commit')", False
        before = proxy.connections

        bell.ring()
        with pytest.raises(OSError, match="the bell's connection failed: "):
            bell.listen()
        started = time.monotonic()
        for _ in range(100):
            bell.ring()
            with pytest.raises(OSError, match="it was tried just now"):
                bell.listen()
        seconds = time.monotonic() - started

        assert seconds < within(1)
        assert proxy.connections - before == 2
        proxy.fatal = None
        time.sleep(1.5)
        assert bell.listen() > 0
        bell.close()


def test_a_ring_on_a_line_that_is_dead_is_given_up_and_never_raises(url, monkeypatch):
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.5)
    monkeypatch.setattr(database, "RING_SECONDS", 0.3)
    with proxied(url) as proxy:
        bell = open_inbox(proxy.url).bell
        bell.ring()
        proxy.hold()

        started = time.monotonic()
        for _ in range(20):  # one that gets no answer, one that gets no line, and then none is tried
            bell.ring()
        seconds = time.monotonic() - started
        proxy.release()

        assert 0.2 < seconds < within(5)
        bell.close()


def test_without_the_tables_there_is_no_bell_and_no_noise(bells, url):
    change(url, "ALTER TABLE delivery RENAME TO lost")

    bells[0].ring()
    with pytest.raises(OSError, match='relation "delivery" does not exist'):
        bells[1].listen()


# --- the loop's alarm -----------------------------------------------------------------------------


def sleeps(inbox, seconds):
    """How often an alarm wakes in so long, when nobody rings."""
    alarm, count = Alarm(inbox), 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        alarm.hush()
        alarm.sleep(0.1)
        count += 1
    return count


def test_a_listener_whose_lines_break_at_once_sleeps_all_the_same(url):
    with proxied(url) as proxy:
        inbox = open_inbox(proxy.url)
        proxy.fatal, proxy.told = b"LISTEN", True  # each line ends as soon as it listens
        before = proxy.connections

        count = sleeps(inbox, 1.0)

        assert count <= 15
        assert proxy.connections - before <= 2
        inbox.close()


def test_a_listener_that_looked_at_once_for_a_new_line_would_be_busy(url, monkeypatch):
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    with proxied(url) as proxy:
        inbox = open_inbox(proxy.url)
        proxy.fatal, proxy.told = b"LISTEN", True
        before = proxy.connections

        count = sleeps(inbox, 1.0)

        assert count > 15 or proxy.connections - before > 5
        inbox.close()


def test_a_ring_wakes_a_sleeping_alarm(inboxes):
    alarm = Alarm(inboxes[0])
    alarm.hush()
    ringing = threading.Timer(0.2, inboxes[1].bell.ring)
    ringing.start()

    started = time.monotonic()
    alarm.sleep(10)
    seconds = time.monotonic() - started
    ringing.join()

    assert seconds < within(5)


def test_a_terminated_line_wakes_the_alarm_which_then_listens_on_a_new_one(inboxes, url, quick):
    alarm = Alarm(inboxes[0])
    alarm.hush()
    time.sleep(0.3)
    hang_up_all(url)

    started = time.monotonic()
    alarm.sleep(10)
    alarm.hush()
    ringing = threading.Timer(0.1, inboxes[1].bell.ring)
    ringing.start()
    alarm.sleep(10)
    seconds = time.monotonic() - started
    ringing.join()

    assert seconds < within(5)


# --- threads and descriptors ----------------------------------------------------------------------


def test_many_threads_ring_and_listen_and_no_descriptor_is_lost(inboxes, quick):
    listener, ringer = (inbox.bell for inbox in inboxes)
    errors, stop = [], threading.Event()
    ringer.ring()
    listener.listen()
    before = len(list(Path("/proc/self/fd").iterdir()))

    def repeat(act):
        while not stop.is_set():
            try:
                act()
            except Exception as error:  # noqa: BLE001 - collected for the assertion
                errors.append(error)

    acts = [ringer.ring, ringer.ring, lambda: listener.wait(0), lambda: listener.wait(0.01)]
    threads = [threading.Thread(target=repeat, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    stop.set()
    for thread in threads:
        thread.join()

    assert errors == []
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_descriptors_beyond_what_select_takes_are_fine(bells):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2_000:
        pytest.skip("the machine allows too few descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2_000, hard))
    fillers = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    listener, ringer = bells
    try:
        assert listener.listen() > 1_024
        ringer.ring()
        assert listener.wait(5) is True
    finally:
        listener.close()
        for descriptor in fillers:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_without_descriptors_has_no_bell_and_survives(url):
    inbox = open_inbox(url)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used - 1, hard))
    try:
        inbox.bell.ring()
        with pytest.raises(OSError, match="the bell's connection failed: "):
            inbox.bell.listen()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    inbox.close()
