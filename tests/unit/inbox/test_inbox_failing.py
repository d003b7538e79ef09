"""While storage fails or hangs: one asks, the others are answered at once, and nothing ends for good."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest
from kit import Foreigner, hung, incoming, open_inbox, until

from billhook.errors import DeadlinePassed, InboxUnavailable
from billhook.inbox.probe import Probe


def test_a_probe_that_hangs_keeps_one_thread_however_many_ask():
    gate, writes = threading.Event(), []

    def write():
        writes.append(threading.current_thread())
        gate.wait(5)

    probe = Probe(write)

    for _ in range(3):
        with pytest.raises(DeadlinePassed, match=r"no write within 0\.05 s"):
            probe.ask(0.05)
    gate.set()
    writes[0].join()
    probe.ask(1.0)

    assert len(writes) == 2  # one hung, shared by three; one afterwards


def test_a_probe_tells_what_went_wrong():
    def write():
        raise InboxUnavailable("the disk is full")

    with pytest.raises(InboxUnavailable, match="the disk is full"):
        Probe(write).ask(1.0)


def test_readiness_has_a_deadline_even_while_storage_hangs(where):
    inbox = open_inbox(where, deadline_seconds=0.3)
    inbox.check_writable()

    with hung(where):
        started = time.monotonic()
        for _ in range(2):
            with pytest.raises(DeadlinePassed, match=r"no write within 0\.3 s"):
                inbox.check_writable()
        seconds = time.monotonic() - started

    assert seconds < 2.0
    until(lambda: writable(inbox))
    inbox.close()


def writable(inbox):
    with contextlib.suppress(DeadlinePassed):
        inbox.check_writable()
        return True
    return False


# --- one by one -----------------------------------------------------------------------------------


def put_together(inbox, where, count, *, answer):
    """Puts that wait for one commit; how long after the first each came back, in seconds."""
    returned = []

    def put(number):
        inbox.put(incoming(f"k{number}"))
        returned.append(time.monotonic())
        if answer:
            inbox.answered()

    with Foreigner(where):
        threads = [threading.Thread(target=put, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
    for thread in threads:
        thread.join()
    return [moment - returned[0] for moment in returned]


def test_the_next_of_a_batch_is_woken_when_the_one_before_has_answered(where):
    inbox = open_inbox(where, deadline_seconds=5)

    waits = put_together(inbox, where, 10, answer=True)

    assert len(waits) == 10
    inbox.close()


def test_one_that_never_says_it_answered_holds_the_others_up_for_a_moment_only(where):
    inbox = open_inbox(where, deadline_seconds=5)

    waits = put_together(inbox, where, 10, answer=False)

    assert len(waits) == 10
    assert max(waits) < 1
    inbox.close()
