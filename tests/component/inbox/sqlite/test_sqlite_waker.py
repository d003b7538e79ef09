"""The waker of an inbox on SQLite: named pipes, which may be full, replaced or without a reader."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path

import pytest

from billhook.inbox.sqlite.waker import FifoWaker
from support.processes import few_descriptors, repeated


@pytest.fixture
def wakers(tmp_path):
    made = [FifoWaker(tmp_path / "pipes") for _ in range(2)]
    yield made
    for waker in made:
        waker.close()


@pytest.mark.parametrize("of_a_follower", [False, True])
def test_more_notifications_than_the_pipe_holds_are_one_wake_up(wakers, of_a_follower):
    waker, sender = wakers
    waker.fileno()
    listener = waker.listener() if of_a_follower else waker

    for _ in range(70_000):
        sender.wake()

    assert (listener.wait(0), listener.wait(0)) == (True, False)
    listener.close()


def test_a_listener_that_closed_and_opened_again_is_notified(wakers):
    listener, sender = wakers
    listener.fileno()
    sender.wake()
    listener.close()
    sender.wake()
    sender.wake()
    listener.fileno()

    sender.wake()

    assert listener.wait(1) is True


def test_all_that_wait_are_notified_and_nothing_stays_after_the_last(tmp_path, wakers):
    for waker in wakers:
        waker.fileno()

    wakers[1].wake()

    assert [waker.wait(1) for waker in wakers] == [True, True]
    for waker in wakers:
        waker.close()
    assert list(tmp_path.iterdir()) == []


def test_the_pipe_of_a_killed_process_is_removed_when_another_begins_to_listen(tmp_path, wakers):
    left = tmp_path / "pipes" / "left"
    left.parent.mkdir()
    os.mkfifo(left)

    wakers[0].fileno()

    (own,) = left.parent.iterdir()
    assert own != left


def test_a_process_short_of_descriptors_notifies_whom_it_can_and_removes_no_pipe(tmp_path, wakers):
    listener, sender = wakers
    early, late = listener.listener(), listener.listener()
    sender.wake()  # has opened both
    assert (early.wait(0), late.wait(0)) == (True, True)
    sender.close()
    before = sorted((tmp_path / "pipes").iterdir())
    with few_descriptors(1):  # enough to list the folder, and to open one of the two
        sender.wake()
        sender.wake()
        notified = [early.wait(0), late.wait(0)]

    assert sorted(notified) == [False, True]
    assert sorted((tmp_path / "pipes").iterdir()) == before
    sender.wake()
    assert (early.wait(1), late.wait(1)) == (True, True)
    early.close()
    late.close()


def test_a_listener_whose_folder_was_deleted_makes_its_pipe_again(tmp_path, wakers):
    listener, sender = wakers
    listener.fileno()
    shutil.rmtree(tmp_path / "pipes")

    listener.fileno()
    sender.wake()

    assert listener.wait(1) is True


def test_notifications_do_not_go_by_the_write_that_eventlet_replaces(wakers, monkeypatch):
    """It tries for ever where a listener was killed: see tests/acceptance/test_beside_extensions.py."""
    listener, sender = wakers
    listener.fileno()
    monkeypatch.setattr(os, "write", lambda *_: pytest.fail("eventlet's"))

    sender.wake()

    assert listener.wait(1) is True


def test_root_notifies_the_workers_of_the_user_whose_inbox_it_is(tmp_path, wakers, monkeypatch):
    listener, sender = wakers
    listener.fileno()
    with contextlib.suppress(PermissionError):  # whoever is not root is the user itself
        os.chown(tmp_path / "pipes", 12345, -1)
        os.chown(tmp_path, 12345, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    sender.wake()

    assert listener.wait(1) is True


def test_a_replaced_folder_is_an_error_for_the_listener_only(tmp_path, wakers):
    (tmp_path / "pipes").write_text("a file")

    wakers[1].wake()

    with pytest.raises(OSError, match="File exists"):
        wakers[0].fileno()


def test_many_threads_notify_while_listeners_open_and_close_and_no_descriptor_is_lost(wakers):
    listener, sender = wakers
    before = len(list(Path("/dev/fd").iterdir()))

    def open_and_close():
        listener.fileno()
        with Path(os.devnull).open("rb") as other:  # closing a descriptor twice would close this one
            assert os.fstat(other.fileno())
        listener.close()

    errors = repeated(0.5, *[sender.wake] * 4, open_and_close)
    sender.close()

    assert errors == []
    assert len(list(Path("/dev/fd").iterdir())) == before


def planted(folder, form):
    """A file of somebody else's, and a link to it where the waker opens its pipes."""
    victim = folder / "victim"
    victim.write_text("precious")
    pipes = folder / "pipes"
    if form == "link":
        pipes.mkdir()
        (pipes / "x").symlink_to(victim)
    elif form == "file":
        pipes.mkdir()
        (pipes / "x").hardlink_to(victim)
    elif form == "socket":  # which cannot be opened, as a pipe that nobody reads
        pipes.mkdir()
        os.mknod(pipes / "x", stat.S_IFSOCK | 0o600)
    else:
        (folder / "elsewhere").mkdir()
        (folder / "elsewhere" / "x").hardlink_to(victim)
        pipes.symlink_to(folder / "elsewhere")
    return victim


@pytest.mark.parametrize("form", ["link", "file", "socket", "folder"])
def test_a_link_in_place_of_a_pipe_is_neither_written_to_nor_removed(tmp_path, wakers, form):
    victim = planted(tmp_path, form)
    before = sorted(path for path in tmp_path.rglob("*"))

    wakers[1].wake()

    assert victim.read_text() == "precious"
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_a_link_to_a_pipe_elsewhere_is_not_written_to(tmp_path, wakers):
    (tmp_path / "pipes").mkdir()
    os.mkfifo(tmp_path / "victim")
    (tmp_path / "pipes" / "x").symlink_to(tmp_path / "victim")
    reader = os.open(tmp_path / "victim", os.O_RDONLY | os.O_NONBLOCK)

    wakers[1].wake()

    assert os.read(reader, 1) == b""
    os.close(reader)


def test_nobody_listens_in_the_folder_of_another_user(tmp_path, wakers, monkeypatch):
    (tmp_path / "pipes").mkdir()
    if os.geteuid() == 0:  # whose folders anyone may trust
        os.chown(tmp_path / "pipes", 1, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 2)

    with pytest.raises(OSError, match="is not a folder of this user: remove it"):
        wakers[0].listener()


def test_nobody_listens_in_a_folder_that_is_a_link(tmp_path, wakers):
    planted(tmp_path, "folder")

    with pytest.raises(OSError, match="is not a folder of this user: remove it"):
        wakers[0].listener()
