"""Receivers that are stopped, reloaded and replaced under load: nothing but 200 and 503, and nothing is lost.

A sender keeps its connections, and sends a delivery again until it is answered 200. A connection may be
closed without an answer only while it is kept from an earlier delivery: a server cannot know that a request
is on its way when it closes an idle one, and HTTP has clients send such a request again (RFC 9112, 9.5).
"""

from __future__ import annotations

import os
import signal

import pytest

from support.acceptance.senders import Line, Load
from support.acceptance.stack import NO_FAULTS, Process, Stack, stack_on
from support.processes import until
from support.templates import new_inbox

pytestmark = pytest.mark.slow

CONNECTIONS = 8
BETWEEN = 60
"""Deliveries that are answered before and after each restart."""


class RestartLoad(Load):
    """Notes for each connection closed without an answer whether an earlier one was answered on it."""

    def _accepted(self, line: Line, key: str, body: bytes) -> bool:
        kept = line.own_port is not None
        try:
            answer = line.post(key, body)
        except OSError:
            self.count("closed while kept" if kept else "closed while new")
            return False
        self.count(str(answer.status))
        return answer.status == 200


@pytest.fixture
def stack(tmp_path):
    """Processes over a new inbox in SQLite, none of them started yet."""
    path = tmp_path / "inbox.db"
    with stack_on(tmp_path, new_inbox(f"sqlite:///{path}")) as made:
        yield made


def reload(stack: Stack, web: Process, door: str) -> Process:
    """SIGHUP: every worker is replaced."""
    before = set(web.children())
    os.kill(web.pid, signal.SIGHUP)
    until(lambda: len(set(web.children()) - before) == 2 and not before & set(web.children()), 60)
    return web


def replace(stack: Stack, web: Process, door: str) -> Process:
    """A second instance on the same socket, and SIGTERM for the first when that serves."""
    successor = stack.start_web(door=door)
    os.kill(web.pid, signal.SIGTERM)
    until(lambda: web.ended() is not None, 60)
    # uvicorn ends itself by the same signal when it has stopped in order.
    assert web.ended() == (-signal.SIGTERM if door == "uvicorn" else 0), web.log.read_text()
    return successor


def stop_and_start(stack: Stack, web: Process, door: str) -> Process:
    """SIGTERM, and another instance only when the first has ended."""
    os.kill(web.pid, signal.SIGTERM)
    until(lambda: web.ended() is not None, 60)
    return stack.start_web(door=door, wait=False)


def kill(stack: Stack, web: Process, door: str) -> Process:
    """SIGKILL for all processes at once: what no receiver can do in order."""
    web.kill()
    return stack.start_web(door=door, wait=False)


def send_through(stack: Stack, door: str, restart, times: int) -> RestartLoad:
    """Restart the receiver some times under load; gives what the senders saw."""
    web = stack.start_web(door=door)
    load = RestartLoad(stack.port, CONNECTIONS)
    try:
        for _ in range(times):
            load.more(BETWEEN)
            web = restart(stack, web, door)
        load.more(BETWEEN)
        load.stop()
    finally:
        load.give_up()
    return load


IN_SHORT = [("gthread", replace), ("asgi", reload)]
RESTARTS = [
    *IN_SHORT,
    *(
        pytest.param(door, restart, marks=pytest.mark.long)
        for door in ("gthread", "gevent", "asgi", "asgi-fast", "uvicorn")
        for restart in (reload, replace, stop_and_start)
        if (door, restart) not in [*IN_SHORT, ("uvicorn", reload)]
    ),
]


@pytest.mark.parametrize(
    ("door", "restart"),
    RESTARTS,
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_restart_answers_200_or_503_and_loses_nothing(stack, figures, long, door, restart):
    times = 20 if long else 1

    load = send_through(stack, door, restart, times)

    for closed in ("closed while new", "closed while kept"):
        figures.add(f"{closed}, {door}", load.statuses[closed], load.statuses.total(), times, "restarts")
    figures.add(f"lost, {door}", check(stack, load, times), len(load), times, "restarts")


def check(stack: Stack, load: RestartLoad, times: int) -> int:
    """Check that all answers were 200 or 503 and that nothing is lost; how much is."""
    found = stack.faults(load)
    assert found == NO_FAULTS
    assert load.statuses.keys() <= {"200", "503", "closed while kept"}, load.statuses
    # Once for each connection and restart at most: a closed connection is followed by one to the successor.
    assert load.statuses["closed while kept"] <= times * CONNECTIONS
    return sum(map(len, found.values()))


def test_control_a_kill_leaves_new_connections_without_an_answer_or_kept_ones_closed(stack):
    load = send_through(stack, "asgi", kill, 1)

    assert load.statuses["closed while kept"] + load.statuses["closed while new"] > 0
    assert stack.faults(load) == NO_FAULTS


@pytest.mark.long
def test_control_a_receiver_that_answers_before_it_commits_loses_deliveries(stack):
    web = stack.start_web("faulty_receivers:answers_first()")
    load = RestartLoad(stack.port, CONNECTIONS)
    try:
        load.more(BETWEEN)
        web.kill()
    finally:
        load.give_up()

    assert stack.faults(load)["lost"]
