"""The waker on both databases: it wakes listeners in other processes, and never breaks its sender."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from pathlib import Path

import pytest

from support.inbox_view import open_inbox
from support.processes import in_children, limited


@pytest.fixture
def wakers(where):
    """The wakers of two inboxes on one database, as two processes have them."""
    return [open_inbox(where).waker for _ in range(2)]


def test_a_notification_wakes_a_listener_in_another_process(wakers):
    listener, sender = wakers
    listener.fileno()

    in_children(1, lambda _: sender.wake() or b"")
    started = time.monotonic()

    assert listener.wait(30) is True
    assert time.monotonic() - started < 30
    assert listener.wait(0) is False


def test_a_wait_without_a_notification_takes_its_time(wakers):
    started = time.monotonic()

    assert wakers[0].wait(0.05) is False
    assert time.monotonic() - started >= 0.05


def test_a_notification_without_a_listener_is_lost_silently(wakers):
    wakers[1].wake()

    assert wakers[0].wait(0.1) is False


def test_descriptors_beyond_what_select_takes_are_fine(wakers):
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2_000:
        pytest.skip("the machine allows too few descriptors")
    listener, sender = wakers
    with limited(resource.RLIMIT_NOFILE, 2_000), contextlib.ExitStack() as fillers:
        for _ in range(1_100):
            fillers.enter_context(Path(os.devnull).open("rb"))
        assert listener.fileno() > 1_024
        sender.wake()
        assert listener.wait(5) is True
        listener.close()
