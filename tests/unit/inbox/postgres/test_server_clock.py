"""The clock of a database server, as a process knows it whose own clock is wrong, is set, or stands still."""

from __future__ import annotations

from datetime import timedelta

import pytest

from billhook.clock import clock_off
from billhook.inbox.postgres.clock import EVERY_SECONDS, ServerClock
from support.inbox_view import NOON


class Machine:
    """A machine, and a server that is asked `slow` seconds before and after it reads its clock."""

    def __init__(self, clock):
        self.clock = clock
        self.uptime = 1_000.0
        self.server = NOON
        self.seconds = 0.0, 0.0
        self.known = ServerClock("postgresql://db/billing", clock, lambda: self.uptime)

    def passes(self, seconds):
        """Time goes on, on both machines."""
        self.clock.advance(seconds=seconds)
        self.uptime += seconds
        self.server += timedelta(seconds=seconds)

    def ask(self):
        there, back = self.seconds
        self.passes(there)
        at = self.server.timestamp()
        self.passes(back)
        return at

    def measure(self, there=0.0, back=0.0):
        self.seconds = there, back
        self.known.measure(self.ask)

    @property
    def error_seconds(self):
        return (self.known.now() - self.server).total_seconds()


@pytest.fixture
def machine(frozen_clock):
    return Machine(frozen_clock)


def test_before_it_was_asked_the_machines_clock_counts(machine, frozen_clock):
    assert machine.known.now() == frozen_clock.now()
    assert machine.known.is_due
    assert machine.known.machine_ahead_seconds == 0


def test_it_goes_on_with_the_server_whatever_the_machines_clock_does(machine, frozen_clock):
    machine.measure()

    for step in (0, 90, -4_000, 10**6):
        frozen_clock.advance(seconds=step)
        machine.passes(7)
        assert machine.error_seconds == pytest.approx(0, abs=1e-6)
    assert machine.known.machine_ahead_seconds == (frozen_clock.now() - machine.server).total_seconds()


def test_half_of_the_time_that_the_first_answer_takes_is_its_error_at_most(machine):
    machine.measure(there=1, back=3)

    assert machine.error_seconds == pytest.approx(-1, abs=1e-6)


def test_a_slow_answer_does_not_worsen_what_is_known(machine):
    machine.measure(there=0.01, back=0.01)

    machine.measure(there=60, back=0.01)
    machine.measure(there=0, back=3_600)

    assert machine.error_seconds == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("step", [30, -30])
def test_a_server_whose_clock_is_set_or_that_another_replaced_is_followed(machine, step):
    machine.measure()
    machine.server += timedelta(seconds=step)

    machine.measure(there=0.5, back=0.5)

    assert abs(machine.error_seconds) <= 0.5 + 1e-6


def test_it_is_asked_again_after_some_seconds(machine):
    machine.measure()
    assert not machine.known.is_due

    machine.passes(EVERY_SECONDS - 0.1)
    assert not machine.known.is_due
    machine.passes(0.1)

    assert machine.known.is_due


def test_a_clock_that_is_off_is_logged_once_and_again_when_that_changes(machine, frozen_clock, caplog):
    frozen_clock.advance(seconds=(NOON - frozen_clock.now()).total_seconds())
    for ahead in (0, 4, 5, 90, 92, 90, -3_600, 0, 90):
        frozen_clock.advance(seconds=ahead - (frozen_clock.now() - machine.server).total_seconds())
        machine.measure()

    expected = ["1 min 30 s ahead of", "1 h behind", "1 min 30 s ahead of"]
    assert [record.levelname for record in caplog.records] == ["WARNING"] * len(expected)
    for record, told in zip(caplog.records, expected, strict=True):
        assert record.message == (
            f"this machine's clock is {told} the database server's, postgresql://db/billing: "
            "due times go by the server's, the age of signatures by this machine's"
        )
        assert (record.cause, record.duration) == ("clock", pytest.approx(3_600 if "1 h" in told else 90))


def test_some_seconds_are_not_worth_a_word():
    assert [clock_off(seconds) for seconds in (0, 5, -5)] == [None] * 3
    assert clock_off(5.1) == "this machine's clock is 5.1 s ahead of the database server's"
