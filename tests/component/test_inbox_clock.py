"""By which clock an app goes: the database server's, the machine's, or one that the app was given."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from billhook.clock import FrozenClock, SystemClock
from billhook.doctor.checks import server_clock_text
from billhook.doctor.examined import Setup
from billhook.doctor.inbox import about_conditions
from billhook.extension import get_state
from billhook.inbox.postgres.clock import EVERY_SECONDS, ServerClock
from billhook.inbox.watching.overview import read_overview
from billhook.settings import Settings
from support.apps import deliver, inbox_at
from support.inbox_view import open_inbox, value
from support.races import only_postgres

NEAR = timedelta(seconds=60)


class OwnClock(SystemClock):
    """A clock of the user's, although it reads the machine's."""


@pytest.mark.usefixtures("inbox_url")
def test_an_app_without_a_clock_of_its_own_goes_by_that_of_the_inbox(app_with):
    state = get_state(app_with())

    clocks = {state.dispatcher.clock, state.rules.inbox_clock}
    assert clocks == {state.inbox.database.clock}
    assert isinstance(*clocks, ServerClock if state.inbox.database.has_own_clock else SystemClock)
    assert type(state.rules.clock) is SystemClock


@pytest.mark.usefixtures("inbox_url")
@pytest.mark.parametrize("given", [FrozenClock(datetime(2026, 1, 15, tzinfo=UTC)), OwnClock()])
def test_a_clock_that_is_given_decides_alone(app_with, given):
    state = get_state(app_with(clock=given))

    assert {state.dispatcher.clock, state.rules.inbox_clock, state.rules.clock} == {given}


@pytest.fixture
def ahead(postgres_url, inbox_url):
    """An inbox on a machine whose clock is 90 s ahead of the server's, before its first connection."""
    inbox = open_inbox(inbox_url)
    inbox.close()
    machine = FrozenClock(datetime.now(UTC) + timedelta(seconds=90))
    inbox.database.clock = ServerClock("the server", machine)
    return inbox


@only_postgres
def test_a_command_goes_by_the_servers_clock_before_its_first_connection(ahead):
    assert datetime.now(UTC) + NEAR < ahead.database.clock.now()

    assert abs(datetime.now(UTC) - ahead.now()) < NEAR


@only_postgres
def test_the_first_connection_measures_and_each_says_how_far_the_machine_is_off(ahead, caplog):
    overview = read_overview(ahead, ahead.now())

    assert abs(datetime.now(UTC) - ahead.now()) < NEAR
    assert overview.machine_ahead_seconds == pytest.approx(90, abs=60)
    setup = Setup(Settings.from_mapping({}), {}, tuple, lambda: ahead, tuple)
    assert "ahead of the database server's" in setup.judgement.sentence
    (finding,) = (one for one in about_conditions(setup) if one.code == "server-clock")
    assert (finding.code, finding.level) == ("server-clock", "warning")
    # But for the seconds: the machine's clock stands still, and the server's goes on.
    said, logged = (re.sub(r"\d+ s\b", "… s", text) for text in (finding.what, caplog.text))
    assert said in logged
    assert server_clock_text(setup).startswith("this machine's is +")


@only_postgres
@pytest.mark.parametrize("use", ["read", "poll", "write"])
def test_a_transaction_measures_again_after_some_seconds(inbox, use):
    uptime = [1_000.0]
    inbox.database.clock = clock = ServerClock("the server", uptime=lambda: uptime[0])
    begun = {"read": inbox.database.read, "write": inbox.database.write}
    begun["poll"] = lambda: inbox.database.read(checked=False)
    with begun[use]():
        pass
    uptime[0] += EVERY_SECONDS - 1
    with begun[use]():
        assert clock.now() > datetime.now(UTC)  # what has no connection to it goes on alone

    uptime[0] += 10_000
    with begun[use]():
        assert abs(datetime.now(UTC) - clock.now()) < NEAR


def test_on_sqlite_there_is_one_clock(app_with):
    setup = Setup.of_app(app_with())

    assert "server-clock" not in [one.code for one in about_conditions(setup)]
    assert server_clock_text(setup) == "the inbox goes by this machine's clock"


@only_postgres
def test_what_is_stored_has_the_servers_time_and_the_signature_is_judged_by_the_machines(app_with, inbox_url):
    app = app_with()
    state = get_state(app)
    hour = timedelta(hours=1)
    now = datetime.now(UTC)
    state.rules.clock = FrozenClock(now + hour)

    answers = [deliver(app, message_id=key, at=at) for key, at in (("a", now), ("b", now + hour))]

    assert [answer.status_code for answer in answers] == [401, 200]
    received_at = value(inbox_at(app), "SELECT received_at FROM delivery")
    assert abs(datetime.fromisoformat(f"{received_at}+00:00") - now) < NEAR
