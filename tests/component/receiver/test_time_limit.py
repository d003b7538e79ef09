"""TimeLimit: waits end when their time is over, a few at a time, and nothing else is cancelled by it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from asyncio import Timeout
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack
from types import SimpleNamespace

import pytest

from billhook.receiver.time_limit import _SWEEP_AT_MOST, _SWEEP_SECONDS, TimeLimit, _Limited, _Waiting


def limited(limit: TimeLimit):
    task = asyncio.current_task()
    assert task is not None
    return limit.of(task)


async def wait(limit: TimeLimit, seconds: float) -> str:
    try:
        with limited(limit):
            await asyncio.sleep(seconds)
    except TimeoutError:
        return "too long"
    return "in time"


def test_tasks_over_the_limit_are_cancelled_and_others_finish():
    async def main() -> list[str]:
        limit = TimeLimit(0.1)
        return await asyncio.gather(wait(limit, 0), wait(limit, 60), wait(limit, 0), wait(limit, 60))

    assert asyncio.run(main()) == ["in time", "too long", "in time", "too long"]


def test_it_ends_no_wait_before_its_time():
    async def main() -> float:
        started = time.monotonic()
        await wait(TimeLimit(0.1), 60)
        return time.monotonic() - started

    assert asyncio.run(main()) >= 0.09


def test_it_limits_one_wait_after_another_when_none_was_there_in_between():
    async def main() -> list[str]:
        limit = TimeLimit(0.05)
        found = [await wait(limit, 60)]
        await asyncio.sleep(0.1)
        return [*found, await wait(limit, 0), await wait(limit, 60)]

    assert asyncio.run(main()) == ["too long", "in time", "too long"]


def test_the_same_object_serves_one_loop_after_another():
    limit = TimeLimit(0.05)

    assert [asyncio.run(wait(limit, 60)) for _ in range(3)] == ["too long"] * 3


def most_at_once(waiting: Callable[[], AbstractContextManager[None] | Timeout]) -> int:
    """How many of a hundred waits that began together end in one turn of the loop."""
    turns: list[int] = []
    turn = 0

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def one() -> None:
        async with AsyncExitStack() as stack:
            stack.enter_context(contextlib.suppress(TimeoutError))
            limit = waiting()
            if isinstance(limit, Timeout):
                await stack.enter_async_context(limit)
            else:
                stack.enter_context(limit)
            await asyncio.sleep(60)
        turns.append(turn)

    async def main() -> None:
        counter = asyncio.create_task(count_turns())
        asyncio.get_running_loop().call_later(0.05, time.sleep, 0.2)  # the loop is late for all of them
        await asyncio.gather(*(one() for _ in range(100)))
        counter.cancel()

    asyncio.run(main())
    return max(Counter(turns).values())


def test_many_that_began_together_do_not_end_at_once():
    limit = TimeLimit(0.1)

    assert most_at_once(lambda: limited(limit)) <= _SWEEP_AT_MOST


def test_control_with_a_timer_each_they_do():
    assert most_at_once(lambda: asyncio.timeout(0.1)) > 2 * _SWEEP_AT_MOST


def test_a_task_that_is_cancelled_by_another_stays_cancelled():
    async def main() -> bool:
        task = asyncio.create_task(wait(TimeLimit(60), 60))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return task.cancelled()

    assert asyncio.run(main())


def test_a_task_that_is_cancelled_as_its_time_ends_stays_cancelled():
    async def main() -> bool:
        task = asyncio.create_task(wait(TimeLimit(0.05), 60))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.05, task.cancel)
        time.sleep(0.1)  # both are due in the same turn of the loop
        with pytest.raises(asyncio.CancelledError):
            await task
        return task.cancelled()

    assert asyncio.run(main())


@pytest.mark.parametrize("checked", [True, False], ids=["checked", "control: not checked"])
def test_a_wait_that_loses_its_cancellation_ends_when_it_is_checked(checked):
    async def loses_it() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    async def main() -> tuple[str, int]:
        task = asyncio.current_task()
        assert task is not None
        found = "went on"
        try:
            with limited(TimeLimit(0.05)) as limit:
                await loses_it()
                if checked and limit.over:
                    raise TimeoutError  # noqa: TRY301 - as the receiver does
        except TimeoutError:
            found = "ended"
        return found, task.cancelling()

    assert asyncio.run(main()) == ("ended" if checked else "went on", 0)


def test_an_error_within_the_limit_is_raised_as_it_is():
    async def main() -> None:
        with limited(TimeLimit(60)):
            raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        asyncio.run(main())


def test_the_loop_serves_others_between_two_sweeps():
    timers = []
    loop = SimpleNamespace(time=lambda: 5.0, call_at=lambda at, *_: timers.append(at))
    waiting = _Waiting(1.0)
    for _ in range(_SWEEP_AT_MOST + 1):
        waiting.due[_Limited(waiting, SimpleNamespace(cancel=lambda: None), loop)] = 5.0

    waiting.sweep(loop)

    assert (len(waiting.due), timers) == (1, [5.0 + _SWEEP_SECONDS])
