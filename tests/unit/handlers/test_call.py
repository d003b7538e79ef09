"""Calling one handler once, and deciding what follows: whatever it raises is a result."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime

import pytest

from billhook import Discard, Handlers, Retry
from billhook.events import PingTest
from billhook.handlers import Delivery, Handler, RetrySchedule, call, retry_after
from billhook.handlers.handler import ERROR_LIMIT, TRACEBACK_LIMIT

NOON = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)
DELIVERY = Delivery(7, "k", "default", "PingTest", 1, NOON, None, b"{}", {})
EVENT = PingTest()


def attempt(function, context=nullcontext):
    handlers = Handlers()
    handlers.on(PingTest, name="h")(function)
    ((_, handler),) = handlers.freeze()
    return call(handler, "app", context, EVENT, DELIVERY)


def raising(error, *, is_async=False):
    def handler(event):
        raise error

    async def async_handler(event):
        raise error

    return async_handler if is_async else handler


# --- calling --------------------------------------------------------------------------------------


def test_any_returned_value_is_success():
    for value in (None, False, ValueError("returned, not raised")):
        assert attempt(lambda event, value=value: value) is None


@pytest.mark.parametrize("is_async", [False, True])
def test_a_handler_that_returns_a_generator_fails(is_async):
    given = []

    def handler(event):
        yield given.append(event)

    async def async_handler(event):
        yield given.append(event)

    made = async_handler if is_async else handler
    failed = attempt(lambda event: made(event))

    assert failed is not None
    assert failed.error == "TypeError: the handler returned a generator, of which nothing has run"
    assert given == []


def test_an_async_handler_or_object_is_awaited():
    given = []

    async def handler(event, delivery):
        await asyncio.sleep(0)
        given.append(delivery.id)

    class Callable:
        async def __call__(self, event):
            given.append(event)

    assert (attempt(handler), attempt(Callable())) == (None, None)
    assert given == [7, EVENT]


@pytest.mark.parametrize("is_async", [False, True])
def test_plain_subscribers_are_called_with_the_sender(is_async):
    given = []

    def subscriber(sender, *, event, delivery):
        given.append((sender, event, delivery))

    async def async_subscriber(sender, *, event, delivery):
        given.append((sender, event, delivery))

    handler = Handler(async_subscriber if is_async else subscriber, plain=True)

    assert call(handler, "app", nullcontext, EVENT, DELIVERY) is None
    assert given == [("app", EVENT, DELIVERY)]


def test_a_handler_runs_inside_the_context():
    trail = []

    @contextmanager
    def context():
        trail.append("in")
        yield
        trail.append("out")

    attempt(lambda event: trail.append("called"), context)

    assert trail == ["in", "called", "out"]


@pytest.mark.parametrize("is_async", [False, True])
def test_any_exception_of_a_handler_is_a_failed_attempt(is_async):
    for error in (ValueError("no"), KeyError("k"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()):
        failed = attempt(raising(error, is_async=is_async))

        assert failed.exception is error
        assert failed.error.startswith(type(error).__name__)
        assert "handler" in failed.traceback


def test_a_context_that_fails_is_a_failed_attempt():
    @contextmanager
    def context():
        raise LookupError("no context")
        yield

    assert attempt(lambda event: None, context).error == "LookupError: no context"


class Unspeakable(Exception):
    def __str__(self):
        raise SystemExit("even this")


class Untraceable(Unspeakable):
    @property
    def __notes__(self):
        raise SystemExit("and this")


@pytest.mark.parametrize("kind", [Unspeakable, Untraceable])
def test_an_exception_without_a_text_keeps_its_traceback(kind):
    failed = attempt(raising(kind()))

    assert failed.error == f"{kind.__name__}: <exception str() failed>"
    assert failed.traceback.rstrip().endswith(failed.error)
    assert "test_call.py" in failed.traceback


def test_error_texts_are_escaped_for_any_database():
    stored = {"a\x00b": r"a\x00b", "\ud800": r"\ud800", "\u00e9\U0001f600": "\u00e9\U0001f600"}

    for text in stored:
        failed = attempt(raising(ValueError(text)))

        assert failed.error == f"ValueError: {stored[text]}"
        assert failed.traceback.encode()
        assert "\x00" not in failed.traceback


def test_texts_are_cut_to_a_size_worth_storing():
    failed = attempt(raising(ValueError("x" * 100_000)))

    assert len(failed.error) == ERROR_LIMIT
    assert len(failed.traceback) == TRACEBACK_LIMIT


# --- deciding -------------------------------------------------------------------------------------

SCHEDULE = RetrySchedule.of((10, 60))


def test_the_wait_depends_on_the_error_and_the_attempt():
    decisions = [
        (ValueError(), 1, 10),
        (ValueError(), 2, 60),
        (ValueError(), 3, None),
        (ValueError(), 99, None),
        (Retry(), 1, 10),
        (Retry(after_seconds=5), 1, 5),
        (Retry(after_seconds=0), 2, 0),
        (Retry(after_seconds=5), 3, None),
        (SystemExit(), 1, 10),
    ]

    found = [(error, number, retry_after(error, number, SCHEDULE)) for error, number, _ in decisions]
    assert found == decisions
    assert (SCHEDULE.attempts, RetrySchedule.of(()).attempts) == (3, 1)


def test_a_handlers_own_decision_has_a_text_and_a_wait_that_can_be():
    told = {str(each) for each in (Retry(), Retry("busy"), Discard(), Discard("old"))}

    assert told == {
        "the handler asked for another attempt", "busy", "the handler discarded the delivery", "old",
    }  # fmt: skip
    for seconds in (-1, 31 * 86_400 + 1, float("nan")):
        with pytest.raises(ValueError, match="after_seconds must be between 0 and 31 days, got"):
            Retry(after_seconds=seconds)


def test_a_delivery_does_not_show_its_body_or_headers():
    shown = repr(Delivery(7, "k", "s", "T", 1, NOON, None, b"hidden body", {"h": "hidden header"}))

    assert "hidden" not in shown
    assert "id=7" in shown


def test_a_step_of_the_schedule_takes_up_to_the_jitter_longer_and_never_less():
    schedule = RetrySchedule.of([10, 0, 60])
    waits = {
        attempt: [retry_after(OSError(), attempt, schedule, jitter=0.1) for _ in range(500)]
        for attempt in (1, 2, 3)
    }

    assert all(10 <= wait <= 11 for wait in waits[1])
    assert (min(waits[1]) < 10.2, max(waits[1]) > 10.8, len(set(waits[1])) > 400) == (True, True, True)
    assert set(waits[2]) == {0}
    assert all(60 <= wait <= 66 for wait in waits[3])
    assert retry_after(OSError(), 4, schedule, jitter=0.1) is None
    assert {retry_after(OSError(), 1, schedule) for _ in range(20)} == {10}
    assert retry_after(Retry(after_seconds=7), 1, schedule, jitter=1.0) == 7
