"""When a process counts as one without memory."""

from __future__ import annotations

import mmap

from billhook.supervising.memory import MemoryMonitor


def asked(monkeypatch, *fits):
    """What the monitor says each time, if memory is there or not."""
    monitor, told = MemoryMonitor(), []
    for there in fits:
        with monkeypatch.context() as patch:
            if not there:
                patch.setattr(mmap, "mmap", refuse)
            told.append(monitor.is_exhausted())
    return told


def refuse(*_):
    raise OSError(12, "Cannot allocate memory")


def test_memory_is_exhausted_after_five_refusals_in_a_row(monkeypatch):
    told = asked(monkeypatch, True, *[False] * 4, True, *[False] * 5)

    assert told == [False] * 10 + [True]


def test_a_process_that_never_had_memory_is_not_replaced(monkeypatch):
    assert not any(asked(monkeypatch, *[False] * 10))
