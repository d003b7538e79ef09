"""An inbox of the first release is brought up to date with all that is in it. On both databases."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config

from billhook.errors import SchemaMismatch
from billhook.inbox import CountedAs, Inbox, PutStatus, RunOptions, RunPlan, RunResult, RunState, migrate
from billhook.inbox.schema import REVISION
from support.inbox_view import NOON, change, incoming, open_inbox, place_of, rows, value

# What the migrations make is compared with the code in test_schema.
pytestmark = pytest.mark.slow

TABLES = ("delivery", "run", "failure")
COLUMNS = {
    "delivery": "id, source, key, event_type, headers, state, error, signed_at, received_at, body",
    "run": "id, delivery_id, handler, state, attempts, due_at, lease_owner, token, last_error, finished_at",
    "failure": "id, run_id, attempt, failed_at, error, traceback",
}


def inbox_of_revision(url, revision):
    inbox = Inbox(url)
    config = Config()
    config.set_main_option("script_location", str(Path(migrate.__file__).parent / "migrations"))
    with inbox.database.migration_transaction() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    return inbox


@pytest.fixture
def old(bare_url):
    """An inbox as the first release left it: a delivery handled, one failed once, one unread, one pruned."""
    inbox = inbox_of_revision(bare_url, "0001")
    where = place_of(bare_url)
    for number, state in ((1, "done"), (2, "planned"), (3, "received"), (4, "pruned")):
        change(
            where,
            "INSERT INTO delivery (id, source, key, event_type, headers, state, received_at, body) "
            f"VALUES ({number}, 'default', 'k{number}', 'PingTest', '{{}}', '{state}', "
            "'2026-01-15 12:00:00.000000', ?)",
            b"" if state == "pruned" else b"{}",
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


def test_an_upgrade_keeps_every_row_and_unfinished_runs_continue(old):
    inbox, where = old
    before = content(where)

    inbox.upgrade()

    assert content(where) == before
    assert (
        rows(where, "SELECT order_key, identity, twin_of, alone, excused FROM run")
        == [(None, None, None, 0, 0)] * 2
    )
    opened = open_inbox(where)
    with opened.transaction("worker") as transaction:
        (claimed,) = transaction.claim(9, NOON, NOON.replace(hour=13))
        transaction.settle(
            [
                RunResult(
                    claimed.run_id, claimed.token, claimed.delivery.delivery_id, 2, RunState.SUCCEEDED, NOON
                )
            ]
        )
    assert (claimed.delivery.key, claimed.attempt) == ("k2", 2)
    assert value(where, "SELECT state FROM delivery WHERE id = 2") == "done"
    opened.close()


def test_after_an_upgrade_unplanned_deliveries_can_be_ordered(old):
    inbox, where = old
    inbox.upgrade()
    if isinstance(where, str):  # these ids were given by hand
        change(where, "SELECT setval('delivery_id_seq', 10), setval('run_id_seq', 10)")
    later = inbox.put(incoming("k5")).delivery_id

    with inbox.transaction("worker") as transaction:
        transaction.plan([RunPlan(one, ("h",), options={"h": RunOptions("k")}) for one in (3, later)], NOON)

    assert [state for (state,) in rows(where, "SELECT state FROM run ORDER BY delivery_id")] == [
        "succeeded",
        "due",
        "due",
        "waiting",
    ]


def test_after_an_upgrade_old_deliveries_are_counted_once_each(old):
    inbox, where = old
    inbox.upgrade()
    counted = "SELECT hour, event_type, what, number FROM billhook_count ORDER BY number"
    one_hour = "2026-01-15 12:00:00.000000"
    assert rows(where, counted) == [(one_hour, "PingTest", "accepted", 3)]

    with inbox.transaction("worker") as transaction:
        labels = CountedAs("default", "PingTest")
        planned_here = transaction.plan([RunPlan(3, counted_as=labels)], NOON)

    assert planned_here == [3]
    assert rows(where, "SELECT sum(number) FROM billhook_count") == [(4,)]


def test_an_inbox_that_was_not_upgraded_is_refused_with_the_command(old):
    inbox, _ = old

    with pytest.raises(
        SchemaMismatch, match=rf"has schema 0001, .* needs {REVISION}: run `billhook db upgrade`"
    ):
        inbox.check_writable()


def test_after_an_upgrade_old_deliveries_are_the_first_of_their_keys(old):
    """Its bytes are known, but for those of what was pruned: any are taken for the same there."""
    inbox, where = old
    inbox.upgrade()
    if isinstance(where, str):
        change(where, "SELECT setval('delivery_id_seq', 10)")

    receipts = [
        inbox.put(incoming(key, event_type=kind, body=body))
        for key, kind, body in [
            ("k1", "PingTest", b"{}"),
            ("k1", "Other", b"{}"),
            ("k1", "PingTest", b"[]"),
            ("k4", "PingTest", b"[]"),
        ]
    ]

    duplicate, conflict = PutStatus.DUPLICATE, PutStatus.CONFLICT
    assert [receipt.status for receipt in receipts] == [duplicate, conflict, conflict, duplicate]
    assert [receipt.conflict_of for receipt in receipts] == [None, 1, 1, None]
    assert (
        rows(where, "SELECT slot, sent_as, conflict_of FROM delivery WHERE id < 5") == [("", None, None)] * 4
    )


@pytest.mark.parametrize("bare_url", ["sqlite"], indirect=True)
def test_control_rebuilding_a_table_with_foreign_keys_on_loses_references(bare_url):
    """The control of the upgrade's connection: SQLite deletes a dropped table's rows, and what is of them."""
    inbox = Inbox(bare_url)
    inbox.upgrade()
    inbox.put(incoming("k"))
    with inbox.transaction("w") as transaction:
        transaction.plan([RunPlan(1, ("h",))], NOON)

    for write, left in ((inbox.database.migration_transaction, 1), (inbox.database.write, 0)):
        with write() as connection:
            connection.exec_driver_sql("CREATE TABLE anew AS SELECT * FROM delivery")
            connection.exec_driver_sql("DROP TABLE delivery")
            found = connection.exec_driver_sql("SELECT count(*) FROM run").scalar_one()
            connection.exec_driver_sql("ROLLBACK")
            connection.exec_driver_sql("BEGIN")
        assert found == left
    inbox.close()
