"""Accepting in a thread: one error loses no other connection, and a lack of descriptors is waited for."""

from __future__ import annotations

import errno
import os

import pytest

from billhook.servers.accepting import accept_connections


class Listener:
    """Accepts what it is given in turn: a connection, or an error."""

    def __init__(self, *turns: str | int) -> None:
        self._turns = iter(turns)

    def accept(self) -> tuple[str, None]:
        turn = next(self._turns)
        if isinstance(turn, int):
            raise OSError(turn, os.strerror(turn))
        return turn, None


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_it_pauses_while_the_system_has_nothing_left_and_goes_on(monkeypatch, number):
    pauses, errors, taken = [], [], []
    monkeypatch.setattr("billhook.servers.accepting.time.sleep", pauses.append)
    turns = Listener("first", number, errno.ECONNABORTED, number, "second", errno.ETIMEDOUT, "third")

    taken.extend(accept_connections(turns, lambda: "third" in taken, errors.append))

    assert taken == ["first", "second", "third"]
    assert [error.errno for error in errors] == [number, number]
    assert pauses == [1.0, 1.0]


def test_it_ends_when_the_listener_has_been_shut_down():
    answers = iter([False, True])
    assert list(accept_connections(Listener(errno.EINVAL), lambda: next(answers), print)) == []
