"""Which deliveries of an issue are compared with which that its handler handled, and how much is read."""

from __future__ import annotations

import pytest

from billhook.inbox import RunState
from billhook.inbox.operating.operations import erase
from billhook.inbox.reading import compared_deliveries
from billhook.inbox.reading.compared_deliveries import ComparedDelivery, read_compared
from billhook.inbox.watching.issue_updates import update_issues
from billhook.inbox.watching.issues import list_issues
from billhook.inbox.watching.occurrences import IssueKind
from support.inbox_view import NOON, change, open_inbox
from support.query_plans import statements
from support.runs import claim, planned, settle


def handle(inbox, key, body=b"{}", *, fails=False, handler="book", group="bug", owner="host:1:a", **facts):
    """A delivery that a handler has had; its id."""
    delivery_id = planned(inbox, handler, key=key, body=body, **facts)
    state, group = (RunState.DEAD, group) if fails else (RunState.SUCCEEDED, None)
    settle(inbox, claim(inbox, 1, owner=owner), state, 1, group=group, owner=owner)
    return delivery_id


def issue_of(inbox, kind=IssueKind.FAILURE):
    update_issues(inbox, NOON)
    (one,) = [each for each in list_issues(inbox) if each.kind is kind]
    return one


def bodies(side):
    return [one.body for one in side]


@pytest.mark.parametrize(("kind", "group"), [(IssueKind.FAILURE, "bug"), (IssueKind.DEAD, None)])
def test_failed_deliveries_of_an_issue_are_compared_with_those_that_its_handler_handled(inbox, kind, group):
    handle(inbox, "before", b"[0]")
    for number in range(4):
        handle(inbox, f"k{number}", b"[%d]" % (number + 1), fails=number % 2 == 0, group=group)
        handle(inbox, f"other {number}", b"[9]", handler="mail")

    compared = read_compared(inbox, issue_of(inbox, kind))

    assert bodies(compared.failed) == [b"[3]", b"[1]"]
    assert bodies(compared.succeeded) == [b"[4]", b"[2]", b"[0]"]


def test_each_is_of_the_worker_and_the_release_that_handled_it(where):
    for name in ("1.0", "1.1"):
        inbox = open_inbox(where, release=name)
        handle(
            inbox, name, fails=name == "1.1", owner=f"{name}-host:7:ab", event_type="PingTest", source="eu"
        )

    compared = read_compared(inbox, issue_of(inbox))

    assert compared.failed == [ComparedDelivery("PingTest", "eu", "1.1", "1.1-host", b"{}")]
    assert compared.succeeded == [ComparedDelivery("PingTest", "eu", "1.0", "1.0-host", b"{}")]


def test_a_delivery_that_failed_by_the_issue_before_it_succeeded_counts_as_failed(inbox):
    handle(inbox, "good", b"[1]")
    planned(inbox, "book", key="retried", body=b"[2]")
    settle(inbox, claim(inbox, 1), RunState.DUE, 1, group="bug", due_at=NOON)
    settle(inbox, claim(inbox, 1, 2), RunState.SUCCEEDED, 3)

    compared = read_compared(inbox, issue_of(inbox))

    assert (bodies(compared.failed), bodies(compared.succeeded)) == ([b"[2]"], [b"[1]"])


def test_erased_deliveries_are_left_out_and_pruned_ones_have_no_body(inbox, where):
    ids = [handle(inbox, f"k{number}", b"[%d]" % number, fails=number < 2) for number in range(4)]
    one = issue_of(inbox)
    erase(inbox, [ids[3]], NOON)
    change(where, "UPDATE delivery SET body = ? WHERE id IN (?, ?)", b"", ids[0], ids[2])

    compared = read_compared(inbox, one)

    assert bodies(compared.failed) == [b"[1]", None]
    assert bodies(compared.succeeded) == [None]
    change(where, "UPDATE delivery SET digest = NULL WHERE id IN (?, ?)", ids[0], ids[1])
    assert read_compared(inbox, one) == compared_deliveries.ComparedDeliveries((), ())


def test_large_bodies_and_more_bytes_than_some_are_not_read(inbox, monkeypatch):
    monkeypatch.setattr(compared_deliveries, "LARGEST_BODY", 100)
    monkeypatch.setattr(compared_deliveries, "MOST_BYTES", 250)
    for number, size in enumerate((100, 100, 101, 100, 50)):
        handle(inbox, f"k{number}", b"x" * size, fails=True)

    compared = read_compared(inbox, issue_of(inbox))

    assert [one.body and len(one.body) for one in compared.failed] == [50, 100, None, 100, None]


def test_of_10_000_that_failed_some_hundreds_are_read(inbox, where):
    """The newest of each side, as long as that many are of them; the others are not looked at."""
    for number in range(2):
        handle(inbox, f"k{number}", fails=number == 0)
    one = issue_of(inbox)
    copies = "WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 10000)"
    shared = "source, variant, event_type, headers, received_at, digest, body"
    for key, state in (("k0", "dead"), ("k1", "done")):
        change(
            where,
            f"INSERT INTO delivery (key, state, {shared}) {copies} SELECT '{key} ' || CAST(n AS text), "
            f"'{state}', {shared} FROM number, delivery WHERE key = '{key}'",
        )
        change(
            where,
            "INSERT INTO run (delivery_id, handler, state, attempts, due_at, token, finished_at) "
            "SELECT copy.id, handler, run.state, 1, due_at, 1, finished_at FROM delivery AS copy, run "
            "JOIN delivery ON delivery.id = delivery_id "
            f"WHERE delivery.key = '{key}' AND copy.key LIKE '{key} %'",
        )
    change(
        where,
        "INSERT INTO failure (run_id, attempt, failed_at, error, retried, fingerprint) SELECT run.id, 1, "
        "failed_at, error, 0, fingerprint FROM run, failure WHERE run.state = 'dead' AND run.id > 2",
    )
    with statements(inbox) as asked:
        compared = read_compared(inbox, one)

    assert (len(compared.failed), len(compared.succeeded)) == (200, 200)
    assert {*bodies(compared.failed), *bodies(compared.succeeded)} == {b"{}"}
    assert sum(".body" in each for each in asked) == 4  # of each side the sizes, and the bodies of the newest
