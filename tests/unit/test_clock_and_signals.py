"""The clocks, and how signals are named and emitted."""

from __future__ import annotations

import ast
import gc
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest
from blinker import ANY, Signal

from billhook import events, signals
from billhook.clock import FrozenClock, SystemClock
from billhook.errors import ConfigError
from billhook.signals import CheckedSignal, emit


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
    assert moments == [midnight + timedelta(seconds=passed) for passed in (0, 0, 90, -0.5)]
    assert clock.now().tzinfo is UTC
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
    expected = {*signals.__all__, *own, "EVENT_SIGNALS"}  # the last for billhook's other modules
    assert {*declared, *functions} == expected, "src/billhook/signals.pyi has a line for each"


# --- receivers that would never work ----------------------------------------------------------------


async def asynchronous(sender, **facts): ...


class Awaited:
    async def __call__(self, sender, **facts): ...


def generator(sender, **facts):
    yield facts


def without_the_delivery(sender, *, event): ...


def by_position(event, delivery): ...


def takes_all(sender, **facts): ...


@pytest.mark.parametrize(
    ("signal", "receiver", "told"),
    [
        ("handler_dead", asynchronous, r"\.asynchronous is async, and signals\.handler_dead does not await"),
        ("handler_dead", Awaited(), r"\.Awaited is async, and signals\.handler_dead does not await"),
        ("handler_dead", partial(asynchronous), r"functools\.partial is async"),
        ("delivery_accepted", generator, "generator is a generator, which does nothing when signals"),
        ("ping_test", generator, r"generator is a generator, .* return instead of yield"),
        (
            "ping_test",
            without_the_delivery,
            r"without_the_delivery has the signature \(sender, \*, event\), and .*: take these, or \*\*facts",
        ),
        (
            "ping_test",
            by_position,
            r"signals\.ping_test calls it as \(sender, \*, event, delivery\):",
        ),
        ("unknown_event", without_the_delivery, "signals.unknown_event calls it as"),
        ("handler_paused", without_the_delivery, r"calls it as \(sender, \*, handler, why\)"),
    ],
)
@pytest.mark.parametrize("weak", [True, False])
def test_a_receiver_that_would_fail_at_each_call_is_refused_where_it_is_connected(
    signal, receiver, told, weak
):
    with pytest.raises(ConfigError, match=told):
        getattr(signals, signal).connect(receiver, weak=weak)

    assert receiver not in list(getattr(signals, signal).receivers_for(ANY))


def test_a_receiver_that_takes_what_is_sent_is_connected():
    signal = CheckedSignal("saved", None, ("fact",), is_observed=False)
    given = [takes_all, asynchronous, type, Mock(), AsyncMock(), lambda sender, fact=None, more=None: None]

    for receiver in given:
        signal.connect(receiver, weak=False)

    assert len(list(signal.receivers_for(ANY))) == len(given)


class Observers:
    """Observers as methods."""

    def note(self, sender, **facts): ...


class Sender:
    """Stands for an app."""


def test_a_receiver_that_nothing_holds_is_named_when_it_is_lost(caplog):
    signal = CheckedSignal("saved", None, ("fact",), is_observed=True)
    sender = Sender()

    signal.connect(lambda sender, **facts: None)
    signal.connect(Observers().note, sender=sender)
    held = Observers()
    signal.connect(held.note)

    place = "test_a_receiver_that_nothing_holds_is_named_when_it_is_lost.<locals>.<lambda>"
    assert [record.getMessage() for record in caplog.records] == [
        f"{name} is not called any more: nothing holds the function, and signals.saved does so weakly: "
        "connect a function of a module, or connect(…, weak=False)"
        for name in (f"{__name__}.{place}", f"{__name__}.Observers.note")
    ]
    assert list(signal.receivers_for(sender)) == [held.note]


def test_a_receiver_that_is_held_or_disconnected_or_whose_sender_is_gone_is_not_named(caplog):
    signal = CheckedSignal("saved", None, ("fact",), is_observed=True)
    signal.connect(lambda sender, **facts: None, weak=False)

    def passing(sender, **facts): ...

    with signal.connected_to(passing):
        pass
    signal.connect(passing)
    signal.connect(passing)
    signal.disconnect(passing)
    del passing

    def of_one(sender, **facts): ...

    sender = Sender()
    signal.connect(of_one, sender=sender)
    del sender
    del of_one
    gc.collect()

    assert caplog.text == ""


def test_a_coroutine_that_an_observer_returns_is_an_error_and_not_forgotten(caplog):
    signal = CheckedSignal("saved", None, ("fact",), is_observed=True)
    signal.connect(lambda sender, **facts: asynchronous(sender, **facts), weak=False)

    emit(signal, "sender", fact=1)  # and Python says nothing of a coroutine that was never awaited

    assert "TypeError: an observer is not awaited: make it a plain function" in caplog.text
