"""ConnectionLimits: what ends when its time is over, how many at once, and what makes room for a new one."""

from __future__ import annotations

import pytest

from billhook.servers.connection_limits import MIN_WAIT_SECONDS, ConnectionLimits


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class FakeConnection:
    """Notes how it was ended."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def refuse_head(self) -> None:
        self.ended.append("refused")

    def close(self) -> None:
        self.ended.append("closed")

    def abort(self) -> None:
        self.ended.append("aborted")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def limits(clock):
    """Limits of two connections, kept alive for 75 s."""
    return ConnectionLimits(2, 75.0, clock)


@pytest.mark.parametrize(
    ("waiting", "seconds", "ended"),
    [
        ("without_head", 10.0, "refused"),
        ("idle", 75.0, "closed"),
        ("idle_and_known", 75.0, "closed"),
        ("unread", 30.0, "aborted"),
        ("closing", 10.0, "aborted"),
    ],
)
def test_a_connection_ends_when_its_time_is_over_and_not_before(limits, clock, waiting, seconds, ended):
    connection = FakeConnection()
    getattr(limits, waiting).add(connection)

    clock.now += seconds - 0.01
    limits.end_overdue(10)
    before = list(connection.ended)
    clock.now += 0.01
    limits.end_overdue(10)

    assert (before, connection.ended) == ([], [ended])


def test_what_the_application_waits_for_has_no_limit_here(limits, clock):
    connections = [FakeConnection(), FakeConnection()]
    for waiting, connection in zip((limits.without_body, limits.ended), connections, strict=True):
        waiting.add(connection)

    clock.now += 1e6
    limits.end_overdue(10)

    assert [connection.ended for connection in connections] == [[], []]


def test_time_runs_anew_when_a_connection_waits_again(limits, clock):
    first, second = FakeConnection(), FakeConnection()
    limits.idle.add(first)
    clock.now += 1
    limits.idle.add(second)
    limits.idle.add(first)

    clock.now += 74.5
    limits.end_overdue(10)
    assert (first.ended, second.ended) == ([], [])
    clock.now += 0.5
    limits.end_overdue(10)

    assert (first.ended, second.ended) == (["closed"], ["closed"])


def test_no_more_end_at_once_than_allowed(limits, clock):
    connections = [FakeConnection() for _ in range(25)]
    for number, connection in enumerate(connections):
        (limits.without_head, limits.closing)[number % 2].add(connection)
    clock.now += 10

    more = [limits.end_overdue(10) for _ in range(3)]

    assert more == [True, True, False]
    assert all(len(connection.ended) == 1 for connection in connections)


def test_there_is_room_below_the_limit_without_ending_any(limits, clock):
    idle = FakeConnection()
    limits.idle.add(idle)
    limits.open = 1
    clock.now += 60

    assert limits.admit()
    assert idle.ended == []
    limits.discard(idle)
    limits.open = 2  # each of them is being answered
    assert not limits.admit()


@pytest.mark.parametrize(
    ("ages", "ended"),
    [
        # One that waits longer than the minimum goes before one that was used a while ago.
        ({"without_head": 2.0, "idle": 60.0}, "without_head"),
        ({"without_body": 1.5, "idle": 60.0}, "without_body"),
        ({"unread": 2.0, "without_head": 9.0}, "unread"),
        ({"closing": 2.0, "without_head": 9.0}, "closing"),
        # A new one is honest until it has waited, and one that is used is never idle for long.
        ({"without_head": 0.1, "idle": 60.0}, "idle"),
        ({"without_body": 0.1, "idle": 60.0}, "idle"),
        ({"without_head": 0.1, "idle": 0.2}, "without_head"),
        ({"without_body": 0.1, "idle": 0.2}, "without_body"),
        ({"without_head": 0.1, "without_body": 0.2}, "without_body"),
        ({"without_head": 0.2, "without_body": 0.1}, "without_head"),
        ({"idle": 0.2, "ended": 0.3}, "idle"),
        ({"ended": 0.3}, "ended"),
        # A connection on which a delivery was accepted is the last to go.
        ({"idle_and_known": 60.0, "without_head": 0.1}, "without_head"),
        ({"idle_and_known": 60.0, "without_body": 0.1}, "without_body"),
        ({"idle_and_known": 60.0, "idle": 0.1}, "idle"),
        ({"idle_and_known": 60.0, "ended": 0.1}, "ended"),
        ({"idle_and_known": 0.1}, "idle_and_known"),
    ],
)
def test_the_most_expendable_connection_is_closed_to_admit(limits, clock, ages, ended):
    limits.open = 2
    now = clock.now
    connections = {}
    for waiting, age in ages.items():
        clock.now = now - age
        connections[waiting] = FakeConnection()
        getattr(limits, waiting).add(connections[waiting])
    clock.now = now

    assert limits.admit()

    assert [waiting for waiting, one in connections.items() if one.ended] == [ended]


def test_of_several_the_one_that_has_waited_longest_makes_room_and_no_other(limits, clock):
    limits.open = 2
    connections = [FakeConnection() for _ in range(3)]
    for connection in connections:
        limits.without_head.add(connection)
        clock.now += 0.1
    clock.now += MIN_WAIT_SECONDS

    assert limits.admit()

    assert [one.ended for one in connections] == [["refused"], [], []]


def test_a_discarded_connection_is_never_ended(limits, clock):
    connection = FakeConnection()
    for waiting in (limits.without_head, limits.idle, limits.closing):
        waiting.add(connection)

    limits.discard(connection)
    limits.open = 2
    clock.now += 1e6

    assert not limits.end_overdue(10)
    assert not limits.admit()
    assert connection.ended == []
