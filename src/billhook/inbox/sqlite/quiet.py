"""No fork while SQLite is at work, or a child of it might never read or write the file.

SQLite keeps the locks of a process in its memory, by file, for all of its connections. A forked child has a
copy: what another thread of its parent was reading at that moment stays locked there, for ever, and for the
connections that the child itself opens too. So whoever forks waits for what is under way, and closes what is
open; the next use opens it again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakMethod

from billhook.inbox.forking import at_fork

__all__ = ["QUIET", "Quiet"]

_LONGEST_SECONDS = 3.0
"""Longer than any answer may take: what takes longer hangs, and a fork is not to hang with it."""


class Quiet:
    """Who is at work in this process. One for all files: a fork is a fork of all of them."""

    def __init__(self) -> None:
        self._closers: list[WeakMethod[Callable[[], None]]] = []
        self._own = threading.local()
        self._start_over()

    def _start_over(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._forking = False
        self._inside = int(self._depth > 0)

    @property
    def _depth(self) -> int:
        depth: int = getattr(self._own, "depth", 0)
        return depth

    def closes(self, close: Callable[[], None]) -> None:
        """Have this method called before each fork, while nobody is at work; held weakly."""
        self._closers = [one for one in self._closers if one() is not None] + [WeakMethod(close)]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Nobody forks meanwhile; whoever forks now is waited for."""
        depth = self._depth
        if not depth:
            with self._changed:
                self._changed.wait_for(lambda: not self._forking, _LONGEST_SECONDS)
                self._inside += 1
        self._own.depth = depth + 1
        try:
            yield
        finally:
            self._own.depth = depth
            if not depth:
                with self._changed:
                    self._inside -= 1
                    self._changed.notify_all()

    def before(self) -> None:
        """Wait until nobody is at work, and keep it so. In the thread that forks."""
        own = int(self._depth > 0)
        with self._changed:
            self._forking = True
            quiet = self._changed.wait_for(lambda: self._inside <= own, _LONGEST_SECONDS)
        if quiet and not own:
            for close in [one() for one in self._closers]:
                if close is not None:
                    close()

    def after_in_parent(self) -> None:
        """Work may go on."""
        with self._changed:
            self._forking = False
            self._changed.notify_all()

    def after_in_child(self) -> None:
        """There is no other thread any more."""
        self._start_over()


QUIET = Quiet()
at_fork(QUIET.before, QUIET.after_in_parent, QUIET.after_in_child)
