"""The bell: rings are heard across threads and processes, may be lost, and never break anything."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from kit import in_children

from billhook.inbox.sqlite.bell import DEAF_SECONDS, Bell


@pytest.fixture
def bells(tmp_path):
    made = [Bell(tmp_path / "bell") for _ in range(2)]
    yield made
    for bell in made:
        bell.close()


def test_a_ring_wakes_who_listens_in_another_process(bells):
    listener, ringer = bells
    listener.listen()

    in_children(1, lambda _: ringer.ring() or b"")

    assert listener.wait(1) is True
    assert listener.wait(0) is False


def test_silence_lasts_as_long_as_asked(bells):
    started = time.monotonic()

    assert bells[0].wait(0.05) is False
    assert time.monotonic() - started >= 0.05


def test_a_ring_that_nobody_hears_is_lost_without_a_word(bells):
    bells[1].ring()

    assert bells[0].wait(0) is False


def test_rings_beyond_what_the_pipe_holds_are_one_ring(bells):
    listener, ringer = bells
    listener.listen()

    for _ in range(70_000):
        ringer.ring()

    assert listener.wait(0) is True
    assert listener.wait(0) is False


def test_a_listener_that_went_and_came_back_is_heard(bells):
    listener, ringer = bells
    listener.listen()
    ringer.ring()
    listener.close()
    ringer.ring()
    ringer.ring()
    listener.listen()
    time.sleep(DEAF_SECONDS)

    ringer.ring()

    assert listener.wait(1) is True


def test_something_else_in_its_place_is_told_to_the_listener_and_ignored_by_the_ringer(tmp_path, bells):
    (tmp_path / "bell").write_text("a file")

    bells[1].ring()

    with pytest.raises(OSError, match="is not a pipe: remove it"):
        bells[0].listen()


def test_many_threads_ring_while_listeners_come_and_go_and_no_descriptor_is_lost_or_taken(bells):
    listener, ringer = bells
    errors, stop = [], threading.Event()
    before = len(list(Path("/proc/self/fd").iterdir()))

    def ring():
        while not stop.is_set():
            try:
                ringer.ring()
            except Exception as error:  # noqa: BLE001 - collected for the assertion
                errors.append(error)

    threads = [threading.Thread(target=ring) for _ in range(4)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        listener.listen()
        with Path(os.devnull).open("rb") as other:  # whoever closes twice closes this one
            assert os.fstat(other.fileno())
        listener.close()
    stop.set()
    for thread in threads:
        thread.join()
    ringer.close()

    assert errors == []
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_descriptors_beyond_what_select_takes_are_fine(tmp_path):
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2_000:
        pytest.skip("the machine allows too few descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2_000, hard))
    fillers = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    bell = Bell(tmp_path / "bell")
    try:
        assert bell.listen() > 1_024
        bell.ring()
        assert bell.wait(1) is True
    finally:
        bell.close()
        for descriptor in fillers:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
