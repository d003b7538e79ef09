"""The clocks, and how signals are named and emitted."""

from __future__ import annotations

import ast
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from blinker import Signal

from billhook import events, signals
from billhook.clock import FrozenClock, SystemClock
from billhook.signals import emit


def test_the_system_clock_is_aware_utc():
    before = datetime.now(UTC)

    now = SystemClock().now()

    assert now.tzinfo is UTC
    assert before <= now <= datetime.now(UTC)


def test_a_frozen_clock_changes_only_when_moved():
    clock = FrozenClock(datetime(2026, 1, 31, 2, tzinfo=timezone(timedelta(hours=2))))
    moments = [clock.now(), clock.now()]
    clock.advance(seconds=90)
    moments.append(clock.now())
    clock.advance(seconds=-90.5)
    moments.append(clock.now())

    midnight = datetime(2026, 1, 31, tzinfo=UTC)
    assert moments == [
        midnight,
        midnight,
        midnight + timedelta(seconds=90),
        midnight - timedelta(seconds=0.5),
    ]
    assert clock.now().tzinfo is UTC


def test_a_naive_moment_is_refused():
    with pytest.raises(
        ValueError, match="FrozenClock needs an aware datetime, got the naive 2026-01-31T00:00:00"
    ):
        FrozenClock(datetime(2026, 1, 31))  # noqa: DTZ001 - that it is naive is the point


def test_each_observer_is_called_although_others_raised_and_as_blinker_sends_they_would_not_be(caplog):
    signal, told = Signal(), []

    def make(number):
        def observer(sender, *, fact):
            told.append((number, sender, fact))
            raise LookupError("observer")

        return observer

    observers = [make(number) for number in range(5)]
    for observer in observers:
        signal.connect(observer)

    with pytest.raises(LookupError, match="observer"):
        signal.send("sender", fact=1)
    sent = len(told)
    told.clear()
    emit(signal, "sender", fact=1)

    assert (sent, sorted(told)) == (1, [(number, "sender", 1) for number in range(5)])
    assert caplog.text.count("an observer of a lifecycle signal raised") == 5


def test_the_stub_has_the_names_of_the_module_and_of_every_event_type():
    stub = ast.parse(Path(signals.__file__).with_suffix(".pyi").read_text())
    declared = [node.target.id for node in stub.body if isinstance(node, ast.AnnAssign)]
    functions = [node.name for node in stub.body if isinstance(node, ast.FunctionDef)]

    own = {getattr(events, name).signal_name for name in events.__all__ if name in events.EVENT_TYPES}
    assert sorted([*declared, *functions]) == sorted({*signals.__all__, *own})
    assert len(own) == 23
