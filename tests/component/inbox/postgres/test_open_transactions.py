"""What a poll reads while a transaction is open that is older than what was handled: a dump, a report."""

from __future__ import annotations

import pytest

from billhook.engines.pacing import Pacing
from billhook.inbox import RunPlan
from support.inbox_view import incoming, open_inbox, postgres
from support.query_plans import fill_unread, listening
from support.runs import at, claim, plan, settle
from support.templates import new_inbox

HANDLED = 4_000


@pytest.fixture
def inbox(postgres_url):
    opened = open_inbox(new_inbox(postgres_url))
    yield opened
    opened.close()


def blocks_of_a_poll(inbox, start):
    """How many blocks the server reads for a poll."""
    executed = []
    with listening(lambda _connection, _cursor, *asked: executed.append(asked[:2])):
        inbox.poll(10, start=start)
    with inbox.database.read() as connection:
        plans = [
            connection.exec_driver_sql(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", values)
            for statement, values in executed
            if "due_at" in statement or "received" in statement
        ]
        found = [plan.scalar_one()[0]["Plan"] for plan in plans]
    return sum(each["Shared Hit Blocks"] + each["Shared Read Blocks"] for each in found)


def test_a_poll_that_begins_later_does_not_pass_over_what_was_handled(inbox, postgres_url):
    with postgres(postgres_url) as other, other.transaction():
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT 1")
        fill_unread(postgres_url, HANDLED)
        for second in range(HANDLED // 500):
            unread = inbox.received(500)
            plan(inbox, *(RunPlan(one.delivery_id, ("h",)) for one in unread), seconds=second)
            settle(inbox, claim(inbox, 500, second))
        behind = [inbox.put(incoming(f"k{number}")).delivery_id for number in range(10)]
        pacing = Pacing(10, keeps_entries=True)
        for second in range(3):
            pacing.record_start(None, *inbox.poll(10), at(60), second, second + 0.5)
        start = pacing.start(10, 3, ("h",))
        whole, later = (blocks_of_a_poll(inbox, where) for where in (None, start))

    assert start.delivery_id == behind[0]
    assert later < 30
    assert whole > 5 * later  # the blocks of all rows that have left the indexes
