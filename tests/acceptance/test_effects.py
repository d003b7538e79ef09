"""SIGKILL between an effect and the note that it was made: with `delivery.once` it happens once.

The effect is a row in a database of the user's, and the inbox is in a database of the other kind. Each
process is a fork that handles what is due until it is killed; the clock then passes its leases.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from billhook import Delivery, Handlers, effects
from billhook.basics import failpoints
from billhook.clock import FrozenClock
from billhook.events import PingTest
from billhook.extension import get_state
from support.apps import make_app
from support.inbox_view import NOON, change, hang_up, incoming, open_inbox, place_of, rows, upgraded, value
from support.own_database import by_driver, by_session
from support.postgres import BOTH
from support.processes import in_children

pytestmark = pytest.mark.slow

KEYS = [f"msg_{number}" for number in range(60)]
BETWEEN = ("after commit", "after_call", "in_settle")
"""Where the effect is committed, and the run is not settled."""
BEFORE = ("before commit",)

Effect = Callable[[str, Delivery, Callable[[str], None]], None]
"""Makes the effect of a delivery in a database; it names the places by which it comes."""


def pay(transaction, key: str) -> None:
    """Note a payment: by a session, or by a DB-API connection."""
    statement = f"INSERT INTO payment VALUES ('{key}')"
    transaction.execute(text(statement) if isinstance(transaction, Session) else statement)


def careful(url: str, delivery: Delivery, place: Callable[[str], None]) -> None:
    """As the README has it: the row of the effect, and the effect, in one transaction."""
    with (by_driver if url.startswith("sqlite") else by_session)(url) as transaction:
        if delivery.once(transaction):
            pay(transaction, delivery.key)
            place("before commit")
            transaction.commit()
        place("after commit")


def unprotected(url: str, delivery: Delivery, place: Callable[[str], None]) -> None:
    """Without `once`."""
    with by_session(url) as transaction:
        pay(transaction, delivery.key)
        transaction.commit()
        place("after commit")


def hasty(url: str, delivery: Delivery, place: Callable[[str], None]) -> None:
    """The row of the effect in a transaction of its own, before the effect."""
    with by_session(url) as transaction:
        first = delivery.once(transaction)
        transaction.commit()
        place("before commit")
        if first:
            pay(transaction, delivery.key)
            transaction.commit()


@dataclass
class Shop:
    """An inbox full of deliveries, and a database for their effects."""

    folder: Path
    inbox_url: str
    own_url: str
    killed: int = 0

    def app(self, effect: Effect, place: Callable[[str], None]) -> Flask:
        """An app of this process, at a time when the leases of the ones before it are over."""
        handlers = Handlers()

        @handlers.on(PingTest, name="pay", retry=[1] * 100)
        def pay(event: PingTest, delivery: Delivery) -> None:
            effect(self.own_url, delivery, place)

        return make_app(
            self.folder,
            handlers=[handlers],
            clock=FrozenClock(NOON + timedelta(minutes=5 * (self.killed + 1))),
            BILLHOOK_ENGINE="inline",
            BILLHOOK_INBOX_URL=self.inbox_url,
        )

    def handle(self, effect: Effect, dies_at: str = "", times: int = 0) -> None:
        """Handle what is due, in a process that dies at a place when it comes by for the n-th time."""

        def work(_: int) -> bytes:
            seen: Counter[str] = Counter()

            def place(name: str) -> None:
                seen[name] += 1
                if (name, seen[name]) == (dies_at, times):
                    os.kill(os.getpid(), signal.SIGKILL)

            failpoints._armed, failpoints._times, failpoints.ARMED = dies_at, str(times), True
            app = self.app(effect, place)
            get_state(app).handle_due()
            get_state(app).close()
            return b"ended"

        (said,) = in_children(1, work)
        assert said == (b"" if dies_at else b"ended")
        self.killed += bool(dies_at)

    def kill(self, effect: Effect, kills: int, places: tuple[str, ...]) -> None:
        """Kill so many processes, each somewhere; the last one ends by itself."""
        chance = random.Random(kills)
        for number in range(kills):
            self.handle(effect, places[number % len(places)], chance.choice((1, 1, 1, 2)))
        self.handle(effect)
        assert self.killed == kills
        states = rows(place_of(self.inbox_url), "SELECT state, count(*) FROM run GROUP BY state")
        assert states == [("succeeded", len(KEYS))]

    def effects(self) -> Counter[str]:
        """How often there is an effect of each delivery."""
        return Counter(key for (key,) in rows(place_of(self.own_url), "SELECT key FROM payment"))


@pytest.fixture(params=BOTH)
def shop(request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str) -> Shop:
    """With the effects on SQLite and the inbox on PostgreSQL, and the other way round."""
    file = f"sqlite:///{tmp_path}/some.db"
    (tmp_path / "some.db").touch(0o600)
    own, inbox_url = (file, postgres_url) if request.param == "sqlite" else (postgres_url, file)
    engine = create_engine(own, poolclass=NullPool)
    effects.create_all(engine)
    change(place_of(own), "CREATE TABLE payment (key TEXT)")
    inbox = open_inbox(place_of(upgraded(inbox_url)))
    for key in KEYS:
        inbox.put(incoming(key))
    inbox.close()
    hang_up(postgres_url)
    return Shop(tmp_path, inbox_url, own)


def test_kills_between_effect_and_settle_repeat_no_effect(shop, long):
    shop.kill(careful, 60 if long else 6, BETWEEN)

    assert shop.effects() == Counter(KEYS)
    assert value(place_of(shop.own_url), "SELECT count(*) FROM billhook_effect") == len(KEYS)


@pytest.mark.long
def test_kills_before_the_commit_lose_no_effect(shop):
    shop.kill(careful, 12, BEFORE)

    assert shop.effects() == Counter(KEYS)


def test_a_handler_without_once_is_caught(shop):
    shop.kill(unprotected, 3, BETWEEN)

    assert (len(shop.effects()), shop.effects().total()) == (len(KEYS), len(KEYS) + 3)


@pytest.mark.long
def test_a_handler_that_notes_its_effect_first_is_caught(shop):
    shop.kill(hasty, 5, BEFORE)

    assert shop.effects().total() == len(KEYS) - 5
