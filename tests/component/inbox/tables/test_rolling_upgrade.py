"""Code of one release on the schema of the next: it stores deliveries where that is allowed, and no more."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from billhook.errors import InboxUnavailable, SchemaMismatch
from billhook.inbox import Inbox, PutStatus, RunPlan
from billhook.inbox.counting.counts import Counted, Counts
from billhook.inbox.tables.revision import REVISION
from support.inbox_view import NOON, change, incoming, open_inbox, rows, value
from support.next_release import NEXT, next_release
from support.runs import claim, planned, settle

STORES = (
    f"the inbox has schema {NEXT}, this billhook needs {REVISION}: it is newer than this billhook, which "
    "stores deliveries only: upgrade the package"
)


@pytest.fixture
def upgrade(inbox_url, tmp_path):
    """Upgrade the inbox to the next release's schema; by default that lets this code store deliveries."""

    def call(oldest_compatible=REVISION):
        with next_release(tmp_path / "next", oldest_compatible):
            Inbox(inbox_url).upgrade()

    return call


@pytest.mark.parametrize("started", ["before", "after"])
def test_deliveries_are_stored_on_a_newer_schema_that_allows_it(inbox, where, upgrade, started, caplog):
    inbox.put(incoming("k1"))
    upgrade()
    if started == "after":
        inbox.close()
        inbox = open_inbox(where)

    batch = [incoming("k2"), incoming("k1"), incoming("k1", body=b"[]"), incoming("k3", event_type="")]
    receipts = [inbox.put(new) for new in batch]
    with pytest.raises(SchemaMismatch, match=STORES):
        inbox.check_writable()
    refused = Counts()
    refused.add(Counted.REFUSED, NOON, source="default", event_type="", cause="mismatch")
    inbox._write_counts(refused)

    assert [receipt.status for receipt in receipts] == [
        PutStatus.ACCEPTED,
        PutStatus.DUPLICATE,
        PutStatus.CONFLICT,
        PutStatus.UNTYPED,
    ]
    assert value(where, "SELECT count(*) FROM delivery WHERE region = 'eu'") == 4
    counted = rows(where, "SELECT what FROM billhook_count")
    assert Counter(what for (what,) in counted) == Counter(["conflict", "untyped", "refused"])
    assert (STORES in caplog.text) == (started == "after")


def test_nothing_is_handled_on_a_newer_schema(inbox, where, upgrade):
    planned(inbox, "h", key="k1")
    claims = claim(inbox)
    upgrade()
    inbox.put(incoming("k2"))
    before = rows(where, "SELECT * FROM delivery"), rows(where, "SELECT * FROM run")

    pauses = partial(inbox.pause_handler, "h", None, NOON)
    for use in (partial(inbox.next_times, {}), partial(settle, inbox, claims), pauses):
        with pytest.raises(SchemaMismatch) as refused:
            use()
        assert refused.value.stores
        assert str(refused.value) == STORES
    assert (rows(where, "SELECT * FROM delivery"), rows(where, "SELECT * FROM run")) == before


def test_a_poll_of_a_schema_that_it_cannot_read_says_which_one_it_is(inbox, where, upgrade):
    """A log of workers names the cause, and one that is stopped does not wait for its grace period."""
    inbox.poll(9)
    upgrade()
    change(where, "ALTER TABLE delivery RENAME COLUMN event_type TO kind")

    with pytest.raises(SchemaMismatch) as refused:
        inbox.poll(9)

    assert str(refused.value) == STORES


@pytest.mark.parametrize("bare_url", ["postgresql"], indirect=True)
def test_a_transaction_that_an_upgrade_overtakes_is_rolled_back(inbox, where, upgrade):
    inbox.put(incoming("k1"))

    def plan_while_upgraded():
        with inbox.transaction("me") as transaction:
            upgrade()
            assert transaction.plan([RunPlan(1, ("h",))], NOON) == [1]

    with pytest.raises(SchemaMismatch, match=STORES):
        plan_while_upgraded()

    assert value(where, "SELECT state FROM delivery") == "received"
    assert value(where, "SELECT count(*) FROM run") == 0


@pytest.mark.parametrize("oldest_compatible", [None, NEXT])
def test_a_newer_schema_that_does_not_allow_it_refuses_deliveries(inbox, where, upgrade, oldest_compatible):
    inbox.put(incoming("k1"))
    upgrade(oldest_compatible)

    for new in (incoming("k2"), incoming("k1"), incoming("k3", event_type="")):
        with pytest.raises(
            InboxUnavailable, match=f"has schema {NEXT}, .* it is newer than this .*: upgrade"
        ):
            inbox.put(new)
    for use in (inbox.check_writable, inbox.upgrade, lambda: inbox.received(1), lambda: open_inbox(where)):
        with pytest.raises(SchemaMismatch, match="it is newer than this billhook: upgrade"):
            use()

    assert rows(where, "SELECT key FROM delivery") == [("k1",)]
    assert value(where, "SELECT oldest_compatible FROM billhook_version") == oldest_compatible
