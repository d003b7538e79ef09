"""SIGKILL at random moments under load: whatever was answered 200 is stored, once, as sent, and handled."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable

import pytest

from support.acceptance.senders import Load, load_on
from support.acceptance.stack import NO_FAULTS, STANDALONE, Process, Stack
from support.processes import until

CONNECTIONS = 16

pytestmark = pytest.mark.slow


class Killer:
    """Kills one thing at a time, and starts it again where nobody else does."""

    def __init__(self, stack: Stack, app: str, seed: int, *, workers: int) -> None:
        self._stack = stack
        self._app = app
        self._chance = random.Random(seed)
        self._left: list[Callable[[], None]] = []
        self.web = stack.start_web(app)
        self.workers = [stack.start_worker() for _ in range(workers)]

    def kill(self) -> None:
        """A web process, the web server with or without its processes, a worker: each in its turn."""
        time.sleep(0.05 * self._chance.random())
        if not self._left:
            workers = [self.kill_worker] if self.workers else []
            self._left = [self.kill_web_process, self.kill_server, self.kill_master, *workers]
            self._chance.shuffle(self._left)
        self._left.pop()()

    def kill_web_process(self) -> None:
        """One that gunicorn will replace."""
        children = until(self.web.children, 30)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._chance.choice(children), signal.SIGKILL)

    def kill_server(self) -> None:
        """gunicorn's master and all of its children at one moment."""
        self.web.kill()
        self.web = self._stack.start_web(self._app, wait=False)

    def kill_master(self) -> None:
        """gunicorn's master alone: its processes see that, a little later, and end by themselves."""
        os.kill(self.web.pid, signal.SIGKILL)
        self.web = self._stack.start_web(self._app, wait=False)

    def kill_worker(self) -> None:
        """One of the workers, whatever it is at."""
        number = self._chance.randrange(len(self.workers))
        self.workers[number].kill()
        self.workers[number] = self._stack.start_worker(wait=False)


def send_and_kill(stack: Stack, killer: Killer, kills: int, between: int) -> Load:
    """Kill once for every `between` deliveries answered; those answered until the last was."""
    with load_on(stack.port, CONNECTIONS) as load:
        for _ in range(kills):
            load.more(between)
            killer.kill()
        load.more(between)
    return load


def alive(processes: list[Process]) -> bool:
    return all(process.ended() is None for process in processes)


def test_killing_any_process_loses_no_delivery_that_was_answered_200(stack, figures, long):
    kills, between = (200, 520) if long else (4, 40)
    killer = Killer(stack, STANDALONE, seed=1, workers=2)

    load = send_and_kill(stack, killer, kills, between)
    stack.drain(600 if long else 60)

    found = stack.faults(load)
    lost = sum(map(len, found.values()))
    figures.add("accepted deliveries lost", lost, len(load), kills, "SIGKILLs")
    assert found == NO_FAULTS
    assert len(load) >= kills * between
    assert alive([killer.web, *killer.workers])
    noted = {key for key, _, _ in stack.noted()}
    unhandled = load.answered.keys() - noted
    figures.add("accepted, never handled", len(unhandled), len(load), kills, "SIGKILLs")
    assert unhandled == set()
    assert stack.rows("SELECT state, count(*) FROM run GROUP BY state") == [("succeeded", len(noted))]


def test_a_receiver_that_answers_before_it_commits_is_caught(stack):
    killer = Killer(stack, "faulty_receivers:answers_first()", seed=2, workers=0)

    load = send_and_kill(stack, killer, kills=3, between=100)
    settle(stack)

    assert stack.faults(load)["lost"]


def settle(stack: Stack) -> None:
    """Wait until nothing more is stored: the faulty receiver is still at it."""
    count = -1
    while (now := stack.value("SELECT count(*) FROM delivery")) != count:
        count = now
        time.sleep(0.5)
