"""Threads that eventlet has replaced, by a stand-in: it is no dependency. A --long test has the real one."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest

from billhook.basics.concurrency import run_blocking, threads_are_greenlets


@pytest.mark.parametrize(("patched", "are_greenlets"), [("thread", True), ("socket", False)])
def test_threads_are_greenlets_where_eventlet_has_replaced_them(monkeypatch, patched, are_greenlets):
    eventlets = SimpleNamespace(is_monkey_patched=lambda module: module == patched)
    monkeypatch.setitem(sys.modules, "eventlet.patcher", eventlets)

    assert threads_are_greenlets() is are_greenlets
    assert run_blocking(threading.get_ident) == threading.get_ident()
