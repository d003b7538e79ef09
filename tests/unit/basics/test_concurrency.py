"""What follows a fork, and threads that eventlet has replaced.

Eventlet's are a stand-in: it is no dependency. A --long test has the real one.
"""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace
from weakref import WeakMethod

import pytest

from billhook.basics import concurrency
from billhook.basics.concurrency import run_blocking, threads_are_greenlets


@pytest.mark.parametrize(("patched", "are_greenlets"), [("thread", True), ("socket", False)])
def test_threads_are_greenlets_where_eventlet_has_replaced_them(monkeypatch, patched, are_greenlets):
    eventlets = SimpleNamespace(is_monkey_patched=lambda module: module == patched)
    monkeypatch.setitem(sys.modules, "eventlet.patcher", eventlets)

    assert threads_are_greenlets() is are_greenlets
    assert run_blocking(threading.get_ident) == threading.get_ident()


class Registered:
    """An object that is reset in every child."""

    def __init__(self) -> None:
        concurrency.reset_in_child(self.reset)

    def reset(self) -> None:
        pass


@pytest.fixture
def looks(monkeypatch):
    """The looks at registered objects; no others are registered."""
    seen = []

    class Counted(WeakMethod):
        def __call__(self):
            seen.append(self)
            return super().__call__()

    monkeypatch.setattr(concurrency, "WeakMethod", Counted)
    monkeypatch.setattr(concurrency, "_resets", [])
    monkeypatch.setattr(concurrency, "_most_resets", 64)
    return seen


def test_a_registration_does_not_look_at_all_registered_objects(looks):
    kept = [Registered() for _ in range(1_000)]

    assert len(concurrency._resets) == len(kept)
    assert len(looks) < 4 * len(kept)


def test_registrations_of_objects_that_ended_are_dropped(looks):
    for _ in range(1_000):
        Registered()

    assert len(concurrency._resets) < 200
