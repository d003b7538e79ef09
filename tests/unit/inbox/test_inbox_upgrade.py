"""An inbox of the first release is brought up to date with all that is in it. On both databases."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from kit import NOON, change, incoming, open_inbox, place_of, rows, value

from billhook.errors import SchemaMismatch
from billhook.inbox import Inbox, Outcome, Plan, RunState, Terms, migrate

TABLES = ("delivery", "run", "failure")
COLUMNS = {
    "delivery": "id, source, key, event_type, headers, state, error, signed_at, received_at, body",
    "run": "id, delivery_id, handler, state, attempts, due_at, lease_owner, token, last_error, finished_at",
    "failure": "id, run_id, attempt, failed_at, error, traceback",
}


@pytest.fixture
def old(bare_url):
    """The place of an inbox at revision 0001: a delivery handled, one in work and failed once, one unread."""
    inbox = Inbox(bare_url)
    config = Config()
    config.set_main_option("script_location", str(Path(migrate.__file__).parent / "migrations"))
    with inbox.database.write_unverified() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
    where = place_of(bare_url)
    for number, state in ((1, "done"), (2, "planned"), (3, "received")):
        change(
            where,
            "INSERT INTO delivery (id, source, key, event_type, headers, state, received_at, body) "
            f"VALUES ({number}, 'default', 'k{number}', 'PingTest', '{{}}', '{state}', "
            "'2026-01-15 12:00:00.000000', ?)",
            b"{}",
        )
    for number, state, attempts in ((1, "succeeded", 1), (2, "due", 1)):
        change(
            where,
            "INSERT INTO run (id, delivery_id, handler, state, attempts, due_at, token) VALUES "
            f"({number}, {number}, 'h', '{state}', {attempts}, '2026-01-15 12:00:00.000000', 7)",
        )
    change(
        where,
        "INSERT INTO failure (id, run_id, attempt, failed_at, error) VALUES "
        "(1, 2, 1, '2026-01-15 12:00:00.000000', 'e')",
    )
    yield inbox, where
    inbox.close()


def content(where):
    return {table: rows(where, f"SELECT {COLUMNS[table]} FROM {table} ORDER BY id") for table in TABLES}


def test_an_upgrade_keeps_every_row_and_what_was_under_way_goes_on(old):
    inbox, where = old
    before = content(where)

    inbox.upgrade()

    assert content(where) == before
    assert rows(where, "SELECT order_key, identity, twin_of FROM run") == [(None, None, None)] * 2
    opened = open_inbox(where)
    with opened.turn("worker") as turn:
        (claimed,) = turn.claim(9, NOON, NOON.replace(hour=13))
        turn.settle(
            [
                Outcome(
                    claimed.run_id, claimed.token, claimed.delivery.delivery_id, 2, RunState.SUCCEEDED, NOON
                )
            ]
        )
    assert (claimed.delivery.key, claimed.attempt) == ("k2", 2)
    assert value(where, "SELECT state FROM delivery WHERE id = 2") == "done"
    opened.close()


def test_after_an_upgrade_what_was_unread_may_take_its_turn(old):
    inbox, where = old
    inbox.upgrade()
    if isinstance(where, str):  # these ids were given by hand
        change(where, "SELECT setval('delivery_id_seq', 10), setval('run_id_seq', 10)")
    later = inbox.put(incoming("k4")).delivery_id

    with inbox.turn("worker") as turn:
        turn.plan([Plan(one, ("h",), terms={"h": Terms("k")}) for one in (3, later)], NOON)

    assert [state for (state,) in rows(where, "SELECT state FROM run ORDER BY delivery_id")] == [
        "succeeded",
        "due",
        "due",
        "waiting",
    ]


def test_an_inbox_that_was_not_upgraded_is_refused_and_told_how(old):
    inbox, _ = old

    with pytest.raises(SchemaMismatch, match=r"has schema 0001, .* needs 0002: run `billhook db upgrade`"):
        inbox.check_writable()
